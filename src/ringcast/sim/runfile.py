"""Run files: a ``RunSpec`` as TOML; and files with a fault plan alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ringcast.core.errors import UNREADABLE_TOML
from ringcast.core.ids import NodeId
from ringcast.core.rings import Rings
from ringcast.sim.faults import FaultPlan, read_events
from ringcast.sim.spec import RunSpec, SpecError, prepare


class PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file with a fault plan: ``[[faults]]`` tables and nothing else."""

    faults: FaultPlan


class NetworkFile(msgspec.Struct, frozen=True):
    """A file that says which processors each ring has; a run file does, too."""

    rings: Rings


def load(path: Path) -> RunSpec:
    """Read and check a run file; SpecError says where it is wrong."""
    try:
        spec = msgspec.toml.decode(path.read_bytes(), type=RunSpec)
        prepare(spec)
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None
    except UNREADABLE_TOML as error:
        raise SpecError(f"{path}: {error}") from None
    return spec


def load_rings(path: Path) -> Rings:
    """The network of rings in a file, not checked yet."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=NetworkFile).rings
    except OSError as error:
        raise SpecError(f"cannot read {str(path)!r} ({error.strerror})") from None
    except UNREADABLE_TOML as error:
        raise SpecError(f"{path}: {error}") from None


def load_faults(path: Path, ids: Iterable[NodeId]) -> tuple[FaultPlan, list[str]]:
    """A fault plan in TOML, or an events file of the original simulator; and warnings."""
    try:
        text = path.read_text("utf-8")
        if path.suffix != ".toml":
            return read_events(text, ids)
        return msgspec.toml.decode(text, type=PlanFile).faults, []
    except OSError as error:
        known = "faults are swarm, none, a .toml fault plan or an events file"
        raise SpecError(f"cannot read {str(path)!r} ({error.strerror}); {known}") from None
    except UNREADABLE_TOML as error:
        raise SpecError(f"{path}: {error}") from None


def dump(spec: RunSpec) -> str:
    """``spec`` as the text of a run file, with a ``[[faults]]`` table for each fault."""
    fields = {key: value for key, value in msgspec.to_builtins(spec).items() if value is not None}
    tables = {key: fields.pop(key) for key in ("network", "config") if _is_table(fields, key)}
    lists = {key: fields.pop(key) for key in ("workload", "faults") if key in fields}
    lines = _assignments({"protocol": spec.protocol, "nodes": spec.nodes} | fields)
    for key, table in tables.items():
        lines += ["", f"[{key}]", *_assignments(table)]
    for key, rows in lists.items():
        for row in rows:
            lines += ["", f"[[{key}]]", *_assignments(row)]
    return "\n".join(lines) + "\n"


def _is_table(fields: dict[str, Any], key: str) -> bool:
    return isinstance(fields.get(key), dict)


def _assignments(table: dict[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items() if value is not None]


def _value(value: Any) -> str:
    """A value in TOML's inline form, which for scalars and lists is JSON's."""
    if isinstance(value, dict):
        return "{" + ", ".join(_assignments(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value)
