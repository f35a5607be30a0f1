"""Run files: a ``RunSpec`` as TOML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from ringcast.sim.run import RunSpec, prepare


def load(path: Path) -> RunSpec:
    """Read and check a run file; ValueError says where it is wrong."""
    try:
        spec = msgspec.toml.decode(path.read_bytes(), type=RunSpec)
        prepare(spec)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return spec


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
