"""The results of a sweep: a row of each run, the tidy table of all, and estimates over seeds.

The folder of a sweep holds

- ``rows/<key>.parquet``: one row for each finished run;
- ``traces/``: the traces, if they are kept; ``failed/<key>.toml``: run files of runs that failed;
- ``results.parquet``: the table, in the order of the study; ``timing.parquet``: what each run cost;
- ``manifest.json``: written last, so where it is the tables are whole.

Everything but the timing is a function of the study and of the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from hashlib import sha256
from importlib.metadata import version
from math import pi, sqrt, tan
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.sweep.measures import MEASURES
from ringcast.pipeline.sweep.study import Study
from ringcast.sim.run import RunResult

Row: TypeAlias = dict[str, Any]


class RunStatus(StrEnum):
    """How a run ended."""

    OK = "ok"
    VIOLATED = "violated"
    """A property did not hold; ``property`` is the first one, and ``explanation`` says how."""
    ERROR = "error"
    """The simulation itself failed; ``explanation`` says where."""


KEY = pa.field("key", pa.string(), nullable=False)
OUTCOME = (
    pa.field("status", pa.string(), nullable=False),
    pa.field("property", pa.string()),
    pa.field("explanation", pa.string()),
)
MEASURED = {
    name: pa.field(name, pa.int64() if measure.whole else pa.float64())
    for name, measure in MEASURES.items()
}
COST = (pa.field("cpu_s", pa.float64()), pa.field("wall_s", pa.float64()))
NODES = pa.field("nodes", pa.int64())
DIGEST = pa.field("digest", pa.string())

ROW = pa.schema([KEY, NODES, *OUTCOME, *MEASURED.values(), DIGEST, *COST])
"""One finished run, whatever the study that it belongs to."""

PARAMETERS = b"ringcast.parameters"
"""In the metadata of a table of results: which columns tell its runs apart, besides the seed."""


def row_of(key: str, nodes: int, result: RunResult) -> Row:
    """The row of a run that came to its end, but for its cost."""
    first = result.violations[0] if result.violations else None
    return {
        "key": key,
        "nodes": nodes,
        "status": RunStatus.VIOLATED if first else RunStatus.OK,
        "property": first.property if first else None,
        "explanation": first.explanation if first else None,
        **{name: measure.read(result) for name, measure in MEASURES.items()},
        "digest": result.digest,
    }


class Folder(msgspec.Struct, frozen=True):
    """The places in the folder of a sweep; files get their names when they are whole."""

    path: Path

    @property
    def rows(self) -> Path:
        """Rows of finished runs."""
        return self.path / "rows"

    @property
    def traces(self) -> Path:
        """Traces, as ``ringcast verify`` takes them."""
        return self.path / "traces"

    @property
    def failed(self) -> Path:
        """Run files of the runs that failed."""
        return self.path / "failed"

    @property
    def staging(self) -> Path:
        """What is being written."""
        return self.path / "staging"

    @property
    def manifest(self) -> Path:
        """Names the tables of a finished sweep."""
        return self.path / "manifest.json"

    def row(self, key: str) -> Path:
        """The file of one row."""
        return self.rows / f"{key}.parquet"

    def write(self, file: Path, contents: bytes) -> None:
        """Let ``file`` have these contents, all at once."""
        with writing(self.path):
            staged = self.staging / uuid4().hex
            staged.write_bytes(contents)
            file.parent.mkdir(exist_ok=True)
            staged.replace(file)

    def write_row(self, row: Row) -> None:
        """Keep the row of a finished run."""
        self.write(self.row(row["key"]), parquet(pa.Table.from_pylist([row], ROW)))

    def read_row(self, key: str) -> Row | None:
        """The row of a run; None if it is not there, or damaged, which is as good as not there."""
        try:
            with pq.ParquetFile(self.row(key), page_checksum_verification=True) as file:
                rows: list[Row] = file.read().to_pylist()
        except (OSError, pa.ArrowException):
            return None
        return rows[0] if len(rows) == 1 and rows[0].keys() == set(ROW.names) else None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A disk that is full, or not there, is the user's to mend."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise PipelineError(
            f"cannot write to {path} ({why}); it needs room, and all of Spark's executors need it"
        ) from error


def parquet(table: pa.Table) -> bytes:
    """``table`` as the contents of a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    contents: bytes = sink.getvalue().to_pybytes()
    return contents


def run_number(key: str) -> int:
    """The run of a trace is a number: enough of the key to tell all runs apart."""
    return int(key[:15], 16)


def table_of(
    study: Study, keys: Sequence[str], rows: Mapping[str, Row], commands: Mapping[str, str]
) -> pa.Table:
    """The tidy table: a row for each point of the study, whose key is in ``keys``.

    ``commands`` show the failed runs again.
    """
    points = list(study.points())
    found = [rows[key] for key in keys]
    names = list(study.combinations[0].parameters)
    columns: dict[str, pa.Array] = {
        "key": pa.array(keys, pa.string()),
        "run": pa.array(map(run_number, keys), pa.int64()),
    }
    for name in names:
        of_combination = [each.parameters[name] for each in study.combinations]
        columns[name] = plain(of_combination).take(pa.array([p.combination for p in points]))
    columns["nodes"] = pa.array([row["nodes"] for row in found], NODES.type)
    columns["seed"] = pa.array([point.seed for point in points], pa.int64())
    for field in OUTCOME:
        columns[field.name] = pa.array([row[field.name] for row in found], field.type)
    columns["repeat"] = pa.array(map(commands.get, keys), pa.string())
    for field in (*(MEASURED[name] for name in study.measures), DIGEST):
        columns[field.name] = pa.array([row[field.name] for row in found], field.type)
    return pa.table(columns).replace_schema_metadata(
        {PARAMETERS: msgspec.json.encode([*names, "nodes"])}
    )


def plain(values: Sequence[Any]) -> pa.Array:
    """A column of parameters: numbers, truth values or words; anything else as JSON."""
    kinds = {type(value) for value in values if value is not None}
    for allowed, kind in (
        ({bool}, pa.bool_()),
        ({int}, pa.int64()),
        ({int, float}, pa.float64()),
        ({str}, pa.string()),
    ):
        if kinds <= allowed:
            return pa.array(values, kind)
    words = (None if value is None else msgspec.json.encode(value).decode() for value in values)
    return pa.array(words, pa.string())


def publish(
    folder: Folder, study: Study, code: str, results: pa.Table, rows: Iterable[Row]
) -> None:
    """Put the tables in their places, the manifest last."""
    timing = pa.Table.from_pylist(list(rows), pa.schema([KEY, *COST]))
    tables = {name: parquet(table) for name, table in (("results", results), ("timing", timing))}
    folder.manifest.unlink(missing_ok=True)
    for name, contents in tables.items():
        folder.write(folder.path / f"{name}.parquet", contents)
    manifest = {
        "study": study.name,
        "ringcast": version("ringcast"),
        "code": code,
        "runs": results.num_rows,
        "sha256": {name: sha256(contents).hexdigest() for name, contents in tables.items()},
    }
    folder.write(folder.manifest, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")


def load(path: Path | str, table: str = "results") -> pa.Table:
    """A table of a finished sweep: ``results`` or ``timing``."""
    folder = Folder(Path(path))
    try:
        manifest = msgspec.json.decode(folder.manifest.read_bytes())
        contents = (folder.path / f"{table}.parquet").read_bytes()
        whole = sha256(contents).hexdigest() == manifest["sha256"][table]
    except (OSError, msgspec.DecodeError, LookupError, TypeError):
        whole = False
    if not whole:
        raise PipelineError(
            f"{folder.path} holds no finished sweep; ringcast sweep --out {folder.path} goes on"
        )
    return pq.read_table(pa.BufferReader(contents))


def parameters(results: pa.Table) -> list[str]:
    """The columns that tell the runs of a study apart, besides the seed."""
    names: list[str] = msgspec.json.decode(results.schema.metadata[PARAMETERS])
    return names


def estimate(
    results: pa.Table,
    measures: Iterable[str],
    by: Iterable[str] | None = None,
    confidence: float = 0.95,
) -> pa.Table:
    """Means over the seeds, with the half widths of their confidence intervals.

    One row for each value of ``by`` (default: of the parameters), in the order of the results:
    its columns, ``runs``, and for each measure m its mean ``m`` and ``m_half``. A run in which
    nothing was measured does not count; half a width needs two that do.
    """
    names = parameters(results) if by is None else list(by)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in results.to_pylist():
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    columns: dict[str, Any] = {
        name: pa.array([key[at] for key in groups], results.schema.field(name).type)
        for at, name in enumerate(names)
    }
    columns["runs"] = pa.array([len(rows) for rows in groups.values()], pa.int64())
    for measure in measures:
        found = [[r[measure] for r in rows if r[measure] is not None] for rows in groups.values()]
        means = [fmean(values) if values else None for values in found]
        columns[measure] = pa.array(means, pa.float64())
        halves = [half_width(values, confidence) for values in found]
        columns[f"{measure}_half"] = pa.array(halves, pa.float64())
    return pa.table(columns)


def half_width(values: Sequence[float], confidence: float = 0.95) -> float | None:
    """Half the confidence interval of a mean, by Student's t; None for fewer than two values."""
    if len(values) < 2:
        return None
    return student_t(len(values) - 1, confidence) * stdev(values) / sqrt(len(values))


def student_t(freedom: int, confidence: float) -> float:
    """The two-sided quantile: exact for one and two degrees, else by Fisher's expansion.

    Its error is below 0.2 % at three degrees and 95 %, and falls from there.
    """
    p = (1 + confidence) / 2
    if freedom == 1:
        return tan(pi * (p - 0.5))
    if freedom == 2:
        return confidence / sqrt(2 * p * (1 - p))
    z = NormalDist().inv_cdf(p)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / float(freedom) ** at for at, term in enumerate(terms))
