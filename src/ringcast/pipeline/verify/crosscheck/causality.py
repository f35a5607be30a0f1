"""D7, D8 and causal: what somebody knew when it sent a message, others get before that message.

Each row of a *knowledge* is about two processors, p and q: at a point of q's own time q came to
know a message that p delivers sooner, later or never, or q sent one that p delivers. Running down
q's time, the latest that p delivers anything q knew, and running up, the earliest that p delivers
anything q sent later, tell whether p got some pair the wrong way round.

D8 and causal are about what q knew through others, too. Such a detour is followed in the runs in
which somebody is not told of everything in ascending order, gives a number again, or begins a ring
of a name that was over (``detours``), and over one processor in between, which may itself know the
message by a later one of its sender. A longer one, which takes a group of four, is more than these
queries can tell. It decides only where p did not deliver the message in between, for otherwise one
of its steps shows: in the runs in which whoever is told out of order lacks a message, too
(``blind``).
"""

from __future__ import annotations

from ringcast.pipeline.verify.crosscheck.checks import Check

FEW = 3
"""In a group of so many, there is at most one processor in between."""

BEYOND = f"""
    SELECT d.run FROM {{blind}} d JOIN {{everybody}} e ON e.run = d.run
    GROUP BY d.run HAVING count(DISTINCT e.node) > {FEW}"""


def _late(knowledge: str) -> str:
    """Messages that p delivers after something that depends on them, with all such."""
    return f"""
        WITH marked AS (
            SELECT *, min(IF(known, NULL, got_n)) OVER (
                       PARTITION BY run, p, q ORDER BY at DESC, known
                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS soonest
            FROM {{{knowledge}}})
        SELECT m.run, m.moment, array(m.p, k.sender) AS nodes, array(m.name, k.name) AS messages
        FROM marked m JOIN {{{knowledge}}} k ON k.run = m.run AND k.p = m.p AND k.q = m.q
            AND NOT k.known AND k.at >= m.at AND k.got_n < m.got_n
        WHERE m.known AND m.soonest < m.got_n"""


def _passed_on(known: str, sends: str, counts: str, by: str) -> str:
    """What is ``known``, and what others come to know by what q sends later, for some q (``by``).

    ``counts`` says which deliveries do.
    """
    return f"""
        SELECT run, q, rid, seq, min(at) AS at
        FROM (
            SELECT run, q, rid, seq, at FROM {{{known}}}
            UNION ALL
            SELECT run, r, rid, seq, soonest
            FROM (
                SELECT *, min(got) OVER (PARTITION BY run, q, r ORDER BY at DESC, rid NULLS FIRST
                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS soonest
                FROM (
                    SELECT k.run, k.q, e.node AS r, k.at, k.rid, k.seq, NULL AS got
                    FROM {{{known}}} k LEFT SEMI JOIN {{detours}} d ON d.run = k.run
                    JOIN {{everybody}} e ON e.run = k.run
                    WHERE {by}
                    UNION ALL
                    SELECT s.run, s.q, t.node, s.at, NULL, NULL,
                           struct(t.t_us, t.node, t.n, 0L AS number)
                    FROM {{{sends}}} s LEFT SEMI JOIN {{detours}} d ON d.run = s.run
                    JOIN {{told}} t ON t.run = s.run AND t.rid = s.rid AND t.seq = s.seq
                    WHERE {by} AND {counts}))
            WHERE rid IS NOT NULL AND soonest IS NOT NULL)
        GROUP BY run, q, rid, seq"""


def _knowledge(learned: str, sends: str, counts: str) -> dict[str, str]:
    """What q learned, directly or over one other, and what q sent, and when p got it.

    Whoever is told a message of a sender knows of the sender's earlier ones, too, and passes that
    on: so the messages under -q come first.
    """
    return {
        f"{learned}_by_later": _passed_on(learned, sends, counts, "q < 0"),
        f"{learned}_at_all": _passed_on(f"{learned}_by_later", sends, counts, "q > 0"),
        f"{learned}_by_two": f"""
            SELECT t.run, t.node AS p, x.q, x.known, x.at, t.name, t.first.sender, t.n AS got_n,
                   t.moment
            FROM (
                SELECT run, q, rid, seq, at, true AS known FROM {{{learned}_at_all}}
                UNION ALL
                SELECT run, q, rid, seq, at, false FROM {{{sends}}}) x
            JOIN {{told}} t ON t.run = x.run AND t.rid = x.rid AND t.seq = x.seq
            WHERE {counts}""",
    }


CHECKS = {
    "D7": Check(
        broken=(
            """WITH marked AS (
                SELECT *, max(IF(known, got_n, NULL)) OVER (
                           PARTITION BY run, rid, p, crash_n, q ORDER BY at, known
                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest
                FROM {in_ring_by_two})
            SELECT m.run, m.moment, array(m.p, m.sender) AS nodes, array(k.name, m.name) AS messages
            FROM marked m JOIN {in_ring_by_two} k ON k.run = m.run AND k.rid = m.rid AND k.p = m.p
                AND k.crash_n = m.crash_n AND k.q = m.q AND k.known AND k.at < m.at
                AND k.got_n > m.got_n
            WHERE NOT m.known AND m.latest > m.got_n""",
        ),
    ),
    "D8": Check(broken=(_late("numbered_by_two"),), beyond=(BEYOND,)),
    "causal": Check(broken=(_late("submitted_by_two"),), beyond=(BEYOND,)),
}

DEFINITIONS = {
    # What q delivered or originated in a ring, and when p, who delivers in that ring, got it, apart
    # for each time that p began anew there.
    "in_ring_by_two": """
        WITH known AS (
            SELECT run, rid, seq, name, node AS q, n AS at FROM {told} WHERE home
            UNION ALL
            SELECT run, rid, seq, name, node, n FROM {sent} WHERE home AND NOT again)
        SELECT k.run, k.rid, p.node AS p, p.crash_n, k.q, true AS known, k.at, k.name, 0L AS sender,
               coalesce(t.n, 9223372036854775807L) AS got_n, t.moment
        FROM known k
        JOIN (SELECT DISTINCT run, rid, node, crash_n FROM {told}) p ON p.run = k.run
            AND p.rid = k.rid
        LEFT JOIN {told} t ON t.run = k.run AND t.rid = k.rid AND t.seq = k.seq
            AND t.node = p.node AND t.crash_n = p.crash_n AND NOT t.again
        UNION ALL
        SELECT s.run, s.rid, t.node, t.crash_n, s.node, false, s.n, s.name, s.first.sender, t.n,
               t.moment
        FROM {sent} s JOIN {told} t ON t.run = s.run AND t.rid = s.rid AND t.seq = s.seq
        WHERE s.home AND NOT s.again AND t.sound""",
    "detours": """
        SELECT run FROM {descents} UNION SELECT run FROM {slips}
        UNION SELECT run FROM {rings} WHERE life > 1""",
    "blind": """
        SELECT DISTINCT f.run FROM {frames} f
        JOIN (SELECT DISTINCT run, node FROM {descents}) d ON d.run = f.run
        LEFT ANTI JOIN {told} t ON t.run = f.run AND t.rid = f.rid AND t.seq = f.seq
            AND t.node = d.node""",
    # D8: what a processor delivered before it numbered a message; and, under -q, the messages of
    # q in the order in which they were numbered.
    "numbered": """
        SELECT run, rid, seq, node AS q, struct(t_us, node, n, 0L AS number) AS at
        FROM {told} WHERE NOT again AND sound
        UNION ALL
        SELECT run, rid, seq, -first.sender, struct(t_us, node, n, 0L)
        FROM {sent} WHERE NOT again""",
    "numberings": """
        SELECT run, rid, seq, explode(array(node, -first.sender)) AS q,
               struct(t_us, node, n, 0L AS number) AS at
        FROM {sent} WHERE NOT again""",
    # causal: what a processor delivered before it submitted the last message of a frame; and,
    # under -q, the messages of q by the numbers that q itself gave them.
    "submitted": """
        SELECT run, rid, seq, node AS q, struct(t_us, node, n, 0L AS number) AS at
        FROM {told} WHERE NOT again
        UNION ALL
        SELECT run, rid, seq, -sender, struct(incarnation, 0L, 0L, number)
        FROM {frames} WHERE NOT outlived""",
    "submissions": """
        SELECT f.run, f.rid, f.seq, f.sender AS q, struct(s.t_us, s.node, s.n, 0L AS number) AS at
        FROM {frames} f JOIN {submit} s ON s.run = f.run AND s.node = f.sender
            AND s.incarnation = f.incarnation AND s.sequence = f.upto
            AND struct(s.t_us, s.node, s.n) < f.appeared
        WHERE NOT outlived
        UNION ALL
        SELECT run, rid, seq, -sender, struct(incarnation, 0L, 0L, upto)
        FROM {frames} WHERE NOT outlived""",
    **_knowledge("numbered", "numberings", "NOT t.again AND t.sound"),
    **_knowledge("submitted", "submissions", "NOT t.again"),
}
