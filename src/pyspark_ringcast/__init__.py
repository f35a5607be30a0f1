"""Where Spark looks for ``format("ringcast")``: a module of this name with ``DefaultSource``.

Spark imports it, and every other module with such a name, before it uses any source written in
Python. So it must not fail, whatever is missing: that is said when ``ringcast`` is asked for.
"""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource

try:
    from ringcast.pipeline.stream.source import RingcastSource as DefaultSource
except ImportError as error:
    MISSING = (
        f"format('ringcast') cannot be used with what is installed here ({error}); it needs "
        "PySpark 4.3 or later, and what comes with pip install 'ringcast[spark]'"
    )

    class Unusable(DataSource):
        """Says why."""

        @classmethod
        def name(cls) -> str:
            """As it is asked for."""
            return "ringcast"

        def schema(self) -> NoReturn:
            """Refused."""
            raise ImportError(MISSING)

        def writer(self, schema: object, overwrite: bool) -> NoReturn:
            """Refused."""
            raise ImportError(MISSING)

        streamWriter = writer

    DefaultSource = Unusable  # type: ignore[misc, assignment]

__all__ = ["DefaultSource"]
