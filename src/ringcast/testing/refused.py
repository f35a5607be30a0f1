"""What cannot be simulated, and what its user is told: threads, processes, signals, waits."""

from __future__ import annotations

import _thread
import concurrent.futures
import multiprocessing.process
import os
import select
import signal
import subprocess
import threading
from typing import Any

from ringcast.testing.replaced import replaces


def refuses(owned: Any, name: str, what: str, instead: str) -> None:
    """Let something raise ``Escape`` within a world."""
    replaces(owned, name)(lambda world, *args, **kwargs: world.escapes.escape(what, instead))


THREAD = "use asyncio.to_thread() or loop.run_in_executor(), which run in virtual time"
HOST = "make it a host of its own with world.host()"
SIGNAL = "it reaches real processes, the test runner's at best; use host.crash() or host.pause()"
WAIT = "nobody else runs meanwhile; wait with asyncio's primitives"
refuses(concurrent.futures.ProcessPoolExecutor, "submit", "a process pool", THREAD)
refuses(threading.Thread, "start", "a thread", THREAD)
refuses(threading.Condition, "wait", "a blocking wait", WAIT)
refuses(select, "select", "select.select()", WAIT)
refuses(subprocess.Popen, "__init__", "a subprocess", HOST)
refuses(multiprocessing.process.BaseProcess, "start", "a process", HOST)
for name in ("start_new_thread", "start_joinable_thread"):
    refuses(_thread, name, "a thread", THREAD)
for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "execv", "execve"):
    refuses(os, name, f"os.{name}()", HOST)
for name in ("kill", "killpg"):  # a simulated process id is somebody else's real one
    refuses(os, name, f"os.{name}()", SIGNAL)
refuses(signal, "raise_signal", "signal.raise_signal()", SIGNAL)
for name in ("_exit", "abort"):
    refuses(os, name, f"os.{name}()", "it ends the test runner; use sys.exit() or host.crash()")
