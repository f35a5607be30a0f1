"""The suite is deterministic: Hypothesis draws the same examples every time."""

from hypothesis import settings

settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")
