"""What DuckDB can say about a trace in SQL, each question as fast as we could write it.

The exact query for total order groups the deliveries by their place and compares what the
processors delivered there; how many did is summed up, since only the last places of a ring may
have fewer. It does not see in which order a processor delivered: that takes a window over ``n``,
a question of its own here. The rest is joins with what was originated, submitted and installed.
Causal order and the rules of transitional configurations (D7, D8, D11, D13, causal) are not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PLACES = """
select run, ring_seq, ring_rep, seq, "index", count(*) as members,
       min(sender) as sender, min(digest) as digest,
       min(sender) = max(sender) and min(digest) = max(digest) as alike
from deliver group by run, ring_seq, ring_rep, seq, "index"
"""

TOTAL_ORDER = f"""
select run, ring_seq, ring_rep, members, alike, min(seq), max(seq), count(*)
from ({PLACES}) group by all
"""

IN_ORDER = """
select count(*) from (
    select seq, "index", lag(seq) over own as seq_before, lag("index") over own as index_before
    from deliver
    window own as (partition by run, node, ring_seq, ring_rep order by n, "index"))
where seq < seq_before or seq = seq_before and "index" <= index_before
"""

ORIGIN = """
with places as (
    select run, ring_seq, ring_rep, seq, "index", count(*) as members,
           min(sender) as sender, min(sequence) as sequence, min(level) as level,
           min(digest) as digest, min(t_us) as t_us,
           min(sender) = max(sender) and min(sequence) = max(sequence)
               and min(level) = max(level) and min(digest) = max(digest) as alike
    from deliver group by run, ring_seq, ring_rep, seq, "index")
select p.run, p.ring_seq, p.ring_rep, p.members, p.level,
       coalesce(p.alike and p.sender = o.node and p.sequence = o.sequence and p.level = o.level
                and p.digest = o.digest and p.t_us >= o.t_us, false) as alike,
       min(p.seq), max(p.seq), count(*)
from places p left join originate o using (run, ring_seq, ring_rep, seq, "index")
group by all
"""

FIFO = """
select count(*) from (
    select sequence, lag(sequence) over (partition by run, node order by n, "index") as before
    from originate)
where sequence <> before + 1 and sequence <> 1
"""

SUBMITTED = """
select count(*) from originate anti join submit using (run, node, sequence, level, digest)
"""

VALIDITY = """
select count(*) from (
    select s.* from submit s join (
        select f.run, f.node, max(f.incarnation) as incarnation
        from fault f join (select run, unnest(settled) as node from fault where event = 'Ended') e
        using (run, node) where f.event = 'Restarted' group by all) using (run, node, incarnation))
anti join (select * from deliver where node = sender) using (run, node, sequence, digest)
"""

IN_VIEW = """
with confs as (
    select *, lead(n) over (partition by run, node order by n) as until
    from view),
stays as (
    select run, node, view_seq, view_rep, ring_seq, ring_rep, min(n) as first, max(n) as last
    from deliver group by all)
select count(*) from stays s left join confs c
    on s.run = c.run and s.node = c.node and s.view_seq = c.view_seq and s.view_rep = c.view_rep
        and s.first > c.n and (c.until is null or s.last < c.until)
        and (c.ring_seq, c.ring_rep) = (s.ring_seq, s.ring_rep)
where c.n is null
"""

CHECKS: dict[str, dict[str, str]] = {
    "order": {"places": TOTAL_ORDER},
    "own order": {"places": TOTAL_ORDER, "own order": IN_ORDER},
    "full": {
        "places and origin": ORIGIN,
        "own order": IN_ORDER,
        "fifo": FIFO,
        "submitted": SUBMITTED,
        "validity": VALIDITY,
        "in view": IN_VIEW,
    },
}
"""The questions of each check."""


@contextmanager
def open_duck(threads: int, scratch: Path) -> Iterator[Callable[[str, Path], list[str]]]:
    """Asks a check of a trace: which of its questions found something wrong?"""
    import duckdb

    with duckdb.connect() as db:
        db.execute(f"set threads = {threads}")
        db.execute(f"set temp_directory = '{scratch}'")
        db.execute("set preserve_insertion_order = false")

        def ask(check: str, folder: Path) -> list[str]:
            for table in ("submit", "originate", "deliver", "view", "fault"):
                files = folder / table / "*.parquet"
                db.execute(f"create or replace view {table} as from read_parquet('{files}')")
            found = ((name, db.execute(query)) for name, query in CHECKS[check].items())
            return [name for name, answer in found if _wrong(answer.fetchall())]

        yield ask


def _wrong(rows: list[Any]) -> bool:
    """Whether an answer tells of a violation: a count, or the places of each ring."""
    if len(rows[0]) == 1:
        return bool(rows[0][0])
    rings: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
    for run, seq, rep, members, *_, alike, low, high, _ in rows:
        if not alike:
            return True
        rings.setdefault((run, seq, rep), []).append((low, high, members))
    # Fewer members at the end of a ring have crashed; fewer in the middle have missed something.
    for counts in rings.values():
        fewest, reached = 1 << 62, -1
        for members in sorted({each[2] for each in counts}, reverse=True):
            low = min(each[0] for each in counts if each[2] == members)
            high = max(each[1] for each in counts if each[2] == members)
            if members >= fewest or low <= reached:
                return True
            fewest, reached = members, high
    return False
