"""What holds for all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# Timing decides no test: a busy machine may take as long as it likes for an example.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")

# A shell starts what runs in the background with Ctrl-C ignored, and so would every process that a
# test starts: those that end one by SIGINT would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
