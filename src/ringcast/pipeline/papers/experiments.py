"""Experiments of the papers, each written down in one TOML file of ``papers/``.

``[tables.NAME]`` is what is measured: a study for the sweep, or a function (``probes.py``) of the
runs of a study or of a grid of arguments. ``[[claims]]`` and the lines of ``[[pictures]]`` are read
off these tables by a query in Spark's SQL, in which ``{NAME}`` stands for a table. ``[common]`` is
what all its studies have in common, over which each of them is laid; ``[quick]`` is laid over the
rest for a short run. So a further experiment is a further file.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec

from ringcast.pipeline.sweep.study import Study, overlay
from ringcast.pipeline.sweep.study import of_table as study_of

PAPERS = files("ringcast.pipeline") / "papers"


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Source(_Strict, frozen=True):
    """Where a table comes from."""

    study: dict[str, Any] = {}
    """Runs of the simulator, in the words of a study file; empty if there are none."""
    function: str = ""
    """What is done with each run or each point of the grid; empty: what the sweep does."""
    grid: dict[str, list[Any]] = {}
    """Arguments of the function, all combinations of these values."""
    fixed: dict[str, Any] = {}
    """Arguments that are the same at all points."""
    seeds: int | str = 0
    """Of each point of the grid: one, or a range such as ``0..10``."""
    alone: bool = False
    """Whether a point of the grid takes seconds and is a task of its own, like a study's run."""

    def runs(self) -> Study:
        """The study, looked up and checked."""
        return study_of(self.study, Path())


class PictureLine(_Strict, frozen=True):
    """One line of a picture, or several."""

    label: str = ""
    """Empty if the query has a column ``line``: then there is one for each value of it."""
    kind: Literal["ours", "paper", "model"] = "ours"
    """What we measured, what was published, or what a formula says."""
    points: tuple[tuple[float, float], ...] = ()
    query: str = ""
    """Gives x, y and, if it has that column, half the width of a band around y."""
    colour: int | None = None
    """Lines that belong together have the same; by default, each has its own."""


class Picture(_Strict, frozen=True):
    """Lines on common axes."""

    title: str
    x: str
    y: str
    lines: tuple[PictureLine, ...]
    logarithmic: bool = False
    """The axis of y."""


class Claim(_Strict, frozen=True):
    """A number of the paper and the query that gives ours."""

    text: str
    ours: str
    """Gives one row. Where a bound is given, all its numbers have to be within."""
    paper: str = ""
    """As it is said there, if it is."""
    show: str = "{:.3g}"
    """How they are written."""
    low: float | None = None
    high: float | None = None
    """What still agrees with the paper: 5 % beside its numbers, 10 % beside what it says is about
    so much."""


class Experiment(_Strict, frozen=True):
    """Something a paper measured, and how we measure it."""

    place: int
    """Among the others on the page."""
    title: str
    source: str
    """Paper, section and figures."""
    says: str
    """What the paper says came of it."""
    comment: str
    """How ours was made, where it differs and why."""
    tables: dict[str, Source]
    claims: tuple[Claim, ...]
    pictures: tuple[Picture, ...]


def names() -> list[str]:
    """All experiments, in the order of the page."""
    there = (each.name for each in PAPERS.iterdir())
    found = [name.removesuffix(".toml") for name in there if name.endswith(".toml")]
    return sorted(found, key=lambda name: (read(name).place, name))


def read(name: str, quick: bool = False) -> Experiment:
    """The experiment of that name, or a short version of it."""
    raw = msgspec.toml.decode((PAPERS / f"{name}.toml").read_text("utf-8"))
    return of_table(raw, quick)


def of_table(raw: Mapping[str, Any], quick: bool = False) -> Experiment:
    """An experiment as its file has it."""
    rest = {key: value for key, value in raw.items() if key != "quick"}
    if quick:
        rest = overlay(rest, raw.get("quick", {}))
    if common := rest.pop("common", None):
        for table in rest["tables"].values():
            table["study"] = overlay(common, table["study"])
    return msgspec.convert(rest, Experiment)
