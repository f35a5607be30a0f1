"""What can go wrong in the pipeline that its user can mend."""

from __future__ import annotations

from ringcast.core.errors import RingcastError


class PipelineError(RingcastError):
    """The text is one line that says what is wrong and what to do; commands print it as it is."""
