"""One Spark on this machine for all tests that need one; they run in one process, one at a time.

Give a module that uses these fixtures ``pytestmark = pytest.mark.xdist_group("spark")``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ringcast.pipeline.session import Where, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine."""
    with open_session(Where(cores=2)) as session:
        yield session
