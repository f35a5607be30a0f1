"""Our own check of a trace: on Spark, and the same functions in plain processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ringcast.checks import Verdict
from ringcast.pipeline.spark.session import Where, open_session
from ringcast.pipeline.verify.condense.window import look
from ringcast.pipeline.verify.job import verify
from ringcast.pipeline.verify.run_verifier import Case, VerifyRequest
from ringcast.pipeline.verify.verdicts import RunVerdict
from ringcast.protocols.totem_single import CLAIMS
from ringcast.traces import Claims

TAGS = {"order": ("total-order",), "order, contents": ("total-order", "D1"), "full": ()}
ASKS = {check: VerifyRequest(tags, Claims(CLAIMS)) for check, tags in TAGS.items()}

Answer = list[dict[str, Any]]


def told(runs: Iterable[RunVerdict]) -> Answer:
    """The violations; a run that was not judged is an error."""
    found = []
    for run in runs:
        unknown = {tag for tag, verdict in run.verdicts.items() if verdict is Verdict.UNKNOWN}
        if run.error or unknown or not run.verdicts:
            raise RuntimeError(f"not judged: {run.error or run.reasons}")
        found += [msgspec.to_builtins(violation) for violation in run.violations]
    return found


@contextmanager
def open_spark(cores: int) -> Iterator[Callable[[str, Path], Answer]]:
    """As ``ringcast verify`` does it, in a session that is open already."""
    with open_session(Where(cores=cores)) as spark:
        yield lambda check, folder: told(verify(spark, [folder], ASKS[check], quiet=True).runs)


@contextmanager
def open_plain(cores: int) -> Iterator[Callable[[str, Path], Answer]]:
    """Windows of the one run of a trace in processes that are there already."""
    with multiprocessing.get_context("fork").Pool(cores) as pool:

        def ask(check: str, folder: Path) -> Answer:
            case = Case(folder, 0, ASKS[check])
            while numbers := case.open_windows():
                windows = [case.windows[number] for number in numbers]
                for number, found in zip(numbers, pool.imap(look, windows), strict=True):
                    case.take(number, found)
            return told([case.verdict()])

        yield ask
