"""What docs/security.md says of campaigns, from the records in ``bench/results``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tags import ROOT

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "security.md"


def record(name: str) -> dict[str, Any]:
    """What was measured."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return found


def outsider() -> str:
    """Swarms with an outsider on the path."""
    told = record("outsider")
    rows = [
        "`python bench/swarm.py outsider`, as far as it got of 5,000 seeds a protocol; the record "
        f"names the commit of each hundred ({', '.join(dict.fromkeys(told['made'].values()))}):",
        "",
        "| protocol | groups | acts of the outsider | deliveries | violations |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for name, each in sorted(told["modes"].items()):
        broken = [f"{v['property']}, seed {v['seed']}" for v in each["violations"]]
        counts = (each["runs"], each["faults"].get("outsider", 0), each["deliveries"])
        shown = " | ".join(f"{count:,}" for count in counts)
        rows.append(f"| {name} | {shown} | {'; '.join(broken) or 'none'} |")
    return "\n".join(rows)


def fuzzing() -> str:
    """How far the fuzzer got."""
    rows = [
        "| what | done | not decoded | stops | longest step, ms | most objects, bytes | commit |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, each in sorted(record("fuzz").items()):
        if name not in ("commit", "sources", "machine"):
            longest = f"{each['longest_us'] / 1000:.1f}" if each["longest_us"] else ""
            size = f"{each['objects']:,}, {each['bytes']:,}" if each["objects"] else ""
            counts = " | ".join(f"{each[count]:,}" for count in ("done", "refused", "stops"))
            rows.append(f"| {name} | {counts} | {longest} | {size} | {each['commit']} |")
    return "\n".join(rows)


def misbehaving() -> str:
    """What each misbehaviour cost, at the protocol where it cost most."""
    told = record("misbehaving")
    honest = {name: each for name, each in told["deeds"].items() if name not in told["lies"]}
    protocols = list(next(iter(honest.values())))
    rows = [
        f"`python bench/misbehaving.py` at commit {told['commit']}: one of {told['members']} "
        f"members, for {told['lasts_ms'] / 1000} s of virtual time, in {', '.join(protocols)}.",
        "",
        "| the member | changes | after, ms |",
        "| --- | ---: | ---: |",
    ]
    for name, costs in honest.items():
        over = {p: c["views"] for p, c in costs.items() if c["views"] > c["usual"]}
        most = max(c["views"] for p, c in costs.items() if p not in over)
        shown = ", ".join(f"**{count} in {protocol}**" for protocol, count in over.items())
        after = max(cost["after_ms"] for cost in costs.values())
        rows.append(f"| {name} | {shown or most} | {after} |")
    return "\n".join(rows)


def lies() -> str:
    """What lies about the order did."""
    told = record("misbehaving")
    rows = ["| the member | what happened |", "| --- | --- |"]
    for name in told["lies"]:
        costs = told["deeds"][name]
        parted = [protocol for protocol, cost in costs.items() if not cost["orders"]]
        stopped = [protocol for protocol, cost in costs.items() if cost["stopped"]]
        happened = [f"different orders in {', '.join(parted)}"] if parted else []
        happened += [f"members of {', '.join(stopped)} stopped"] if stopped else []
        rows.append(f"| {name} | {'; '.join(happened) or 'nothing'} |")
    return "\n".join(rows)


def keys() -> str:
    """What keys cost."""
    told = record("keys")
    ratio, load, trial = told["ratio"], told["load"], told["trial"]
    return (
        "Throughput with keys over without, three members on loopback, bodies of "
        f"{trial['size']} B, `python bench/live/keys.py` at commit {told['commit']}: median "
        f"{ratio['median']:.2f} of pairs in turn ({ratio['least']:.2f} to {ratio['most']:.2f}), "
        f"{told['ratio_of_medians']:.2f} of the medians; {told['by_processor_time']:.2f} for a "
        f"second of the members' processor time. The load was {load['median']:.0f} on "
        f"{told['machine']['cores']} cores."
    )


def pages() -> dict[Path, str]:
    """None."""
    return {}


def blocks() -> dict[tuple[Path, str], str]:
    """The marked blocks of docs/security.md."""
    made = {"outsider": outsider, "misbehaving": misbehaving, "lies": lies}
    made |= {"fuzzing": fuzzing, "keys": keys}
    return {(PAGE, name): make() for name, make in made.items()}
