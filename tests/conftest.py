"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell starts what runs in the background with Ctrl-C ignored, and so would every process that a
# test starts: those that end one by SIGINT would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
