"""multicast: what is for some members, which is in the notes of a trace.

``told_some`` has a row for each delivery, ``asks`` one for each time that a message was submitted,
``asked_some`` one for each message: of two with the same number the first counts.
``course`` has, in the runs with such messages, all that a processor delivered or submitted in one
life, with the places it had delivered before.
"""

from __future__ import annotations

from ringcast.core.to_some import DeliveredTo, SubmittedTo
from ringcast.pipeline.verify.crosscheck.checks import Check

FOUND = "t.run, t.moment, array(t.node) AS nodes, array(t.name) AS messages"

FOUND_BY_TWO = """t.run, t.moment, IF(t.first.node = t.node, array(t.node),
                array(t.first.node, t.node)) AS nodes, array(t.name) AS messages"""

CHECKS = {
    "multicast": Check(
        broken=(
            f"""SELECT {FOUND} FROM {{told_some}} t
            WHERE NOT array_contains(t.to, t.node) OR NOT (t.view <=> t.here.view)""",
            # Where two tell a place differently, or a message's place, either may be wrong.
            f"""SELECT {FOUND_BY_TWO} FROM {{told_some}} t WHERE t.what <> t.first.what""",
            # It was submitted as it is, and before anything that its sender had delivered by then.
            f"""SELECT {FOUND} FROM {{told_some}} t
            LEFT JOIN {{asked_some}} a ON a.run = t.run AND a.node = t.sender
                AND a.incarnation = t.incarnation AND a.moment < t.moment
                AND a.number BETWEEN t.number AND t.upto
            GROUP BY t.run, t.moment, t.node, t.name, t.number, t.upto
            HAVING coalesce(bool_or(a.after >= t.place), false)
                OR count(DISTINCT a.number) FILTER (WHERE a.to = t.to AND a.level <= t.level
                    AND a.digest = t.digests[int(a.number - t.number)]) < t.upto - t.number + 1""",
            f"""SELECT DISTINCT {FOUND} FROM {{course}} t
            JOIN {{course}} s ON s.run = t.run AND s.node = t.sender AND s.kind = 'submit'
                AND s.incarnation = t.incarnation AND s.moment < t.moment AND s.number <= t.number
            WHERE t.kind = 'all' AND s.after_some >= t.place""",
            # Places and numbers ascend.
            """SELECT run, moment, array(node) AS nodes, array(message) AS messages
            FROM (
                SELECT *, lag(struct(incarnation, upto AS number)) OVER (
                           PARTITION BY run, node, sender ORDER BY n) AS last
                FROM {course} WHERE kind IN ('all', 'some'))
            LATERAL VIEW explode(array(IF(after >= place, name, NULL),
                IF(last >= struct(incarnation, number), concat('number ', number, ' of ', sender),
                    NULL))) AS message
            WHERE involved AND message IS NOT NULL""",
            # One message has one place.
            f"""SELECT DISTINCT {FOUND_BY_TWO} FROM (
                SELECT * EXCEPT (first), first(struct(place, node)) OVER (
                           PARTITION BY run, sender, incarnation, each ORDER BY moment) AS first
                FROM {{told_some}} LATERAL VIEW explode(sequence(number, upto)) AS each) t
            WHERE t.place <> t.first.place""",
            # What was reported as uncertain its sender does not deliver, before or after.
            """SELECT a.run, greatest(t.moment, u.moment) AS moment, array(a.node) AS nodes,
                array(concat('number ', a.number, ' of ', a.node)) AS messages
            FROM {asked_some} a
            JOIN {reported} u ON u.run = a.run AND u.node = a.node AND u.n > a.n
                AND u.incarnation = a.incarnation AND a.number BETWEEN u.first AND u.last
            JOIN {told_some} t ON t.run = a.run AND t.node = a.node AND t.sender = a.node
                AND t.incarnation = a.incarnation AND t.moment > a.moment
                AND a.number BETWEEN t.number AND t.upto""",
            # Of two that made the same step one delivered what was for both.
            """SELECT t.run, greatest(c.moment, o.moment) AS moment,
                array(t.node, o.node) AS nodes, array(t.name) AS messages
            FROM {told_some} t
            JOIN {confs} c ON c.run = t.run AND c.node = t.node AND c.n = t.here.upto
                AND c.previous.view = t.here.view
            JOIN {confs} o ON o.run = t.run AND o.node <> t.node AND array_contains(t.to, o.node)
                AND o.view = c.view AND o.previous.view = t.here.view
            LEFT ANTI JOIN {told_some} h ON h.run = t.run AND h.node = o.node
                AND h.place = t.place AND h.here.n = o.previous.n""",
        ),
        owed=(
            """SELECT t.run, array(t.node, o.node) AS settled, array(t.node, o.node) AS nodes,
                array(t.name) AS messages
            FROM {told_some} t
            JOIN {confs} o ON o.run = t.run AND o.node <> t.node AND array_contains(t.to, o.node)
                AND o.view = t.here.view AND o.upto IS NULL
            LEFT ANTI JOIN {told_some} h ON h.run = t.run AND h.node = o.node
                AND h.place = t.place AND h.here.n = o.n
            WHERE t.here.upto IS NULL""",
            """SELECT a.run, array(a.node, a.one) AS settled, array(a.node, a.one) AS nodes,
                array(concat('number ', a.number, ' of ', a.node)) AS messages
            FROM (SELECT * FROM {asked_some} LATERAL VIEW explode(to) AS one) a
            JOIN {births} b ON b.run = a.run AND b.node = a.node AND a.n > b.born_n
            LEFT JOIN {confs} c ON c.run = a.run AND c.node = a.one AND c.upto IS NULL
            LEFT ANTI JOIN {told_some} t ON t.run = a.run AND t.sender = a.node
                AND t.incarnation = a.incarnation AND t.node = a.one
                AND a.number BETWEEN t.number AND t.upto
            LEFT JOIN {confs} s ON s.run = a.run AND s.node = a.node AND s.upto IS NULL
            LEFT ANTI JOIN {reported} u ON u.run = a.run AND u.node = a.node AND u.n > a.n
                AND u.incarnation = a.incarnation AND a.number BETWEEN u.first AND u.last
                AND NOT (s.view <=> a.here.view)
            WHERE a.node = a.one OR a.here.upto IS NULL AND c.view = a.here.view""",
        ),
        open=("SELECT run FROM {misread}",),
        notes=(SubmittedTo.what, DeliveredTo.what),
    ),
}


def _sense(least: int, level: int) -> str:
    """Whether the numbers of a note make sense."""
    return (
        f"coalesce(size(data) >= {least} AND size(members) > 0 AND data[{level}] IN (0, 1), false)"
    )


SUBMITTED = f"what = '{SubmittedTo.what}' AND {_sense(4, 2)}"
DELIVERED = f"what = '{DeliveredTo.what}' AND {_sense(7, 5)} AND view_seq IS NOT NULL"


def _incarnation(of: str) -> str:
    """The incarnation of a sender: the one that the ring knows, or else the present one."""
    return f"""
        LEFT JOIN {{known_in}} v ON v.run = {of}.run AND v.node = {of}.sender
            AND v.ring = {of}.place.ring AND v.since <= {of}.moment AND {of}.moment < v.until
        LEFT JOIN {{starts}} b ON b.run = {of}.run AND b.node = {of}.sender
            AND b.since <= {of}.moment AND (b.until IS NULL OR {of}.moment < b.until)"""


def _here(of: str) -> str:
    """The configuration that a processor is in."""
    return f"""
        LEFT JOIN {{confs}} c ON c.run = {of}.run AND c.node = {of}.node AND c.n < {of}.n
            AND (c.upto IS NULL OR {of}.n < c.upto)"""


DEFINITIONS = {
    "misread": f"""
        SELECT DISTINCT run FROM {{note}}
        WHERE what IN ('{SubmittedTo.what}', '{DeliveredTo.what}')
            AND NOT ({SUBMITTED}) AND NOT ({DELIVERED})""",
    "told_some": f"""
        SELECT d.*, coalesce(v.incarnation, b.incarnation, 1L) AS incarnation,
               number + size(digests) - 1 AS upto,
               concat('(', place.ring.seq, ',', place.ring.rep, '):', place.seq, '.0') AS name,
               struct(c.n, c.view, c.upto) AS here,
               IF(r.rid IS NULL, struct(what, d.node), first(struct(what, d.node)) OVER (
                   PARTITION BY d.run, r.rid, place ORDER BY d.moment)) AS first
        FROM (
            SELECT *, struct(to, sender, number, level, digests) AS what
            FROM (
                SELECT run, node, n, struct(t_us, node, n) AS moment, members AS to,
                       struct(view_seq AS seq, view_rep AS rep) AS view,
                       struct(struct(data[0] AS seq, data[1] AS rep) AS ring, data[2] AS seq)
                           AS place,
                       data[3] AS sender, data[4] AS number, data[5] AS level,
                       slice(data, 7, size(data)) AS digests
                FROM {{note}} WHERE {DELIVERED})) d
        {_incarnation("d")} {_here("d")}
        LEFT JOIN {{rings}} r ON r.run = d.run AND r.ring = d.place.ring
            AND d.moment >= r.since AND d.moment < r.until""",
    "asks": f"""
        SELECT run, node, n, struct(t_us, node, n) AS moment, members AS to,
               data[0] AS incarnation, data[1] + at AS number, data[2] AS level, digest
        FROM {{note}} LATERAL VIEW posexplode(slice(data, 4, size(data))) AS at, digest
        WHERE {SUBMITTED}""",
    "asked_some": f"""
        SELECT a.*, o.after, struct(c.n, c.view, c.upto) AS here
        FROM (
            SELECT * EXCEPT (nth) FROM (
                SELECT *, row_number() OVER (
                           PARTITION BY run, node, incarnation, number ORDER BY n) AS nth
                FROM {{asks}})
            WHERE nth = 1) a
        LEFT JOIN {{course}} o ON o.run = a.run AND o.node = a.node AND o.n = a.n
        {_here("a")}""",
    "course": f"""
        WITH told AS (
            SELECT d.*, coalesce(v.incarnation, b.incarnation, 1L) AS incarnation
            FROM (
                SELECT run, node, n, moment, place, sender, number, upto, name
                FROM (
                    SELECT *, row_number() OVER (PARTITION BY run, node, place ORDER BY n) AS nth
                    FROM (
                        SELECT run, node, n, struct(t_us, node, n) AS moment,
                               struct(struct(ring_seq AS seq, ring_rep AS rep) AS ring, seq)
                                   AS place,
                               sender, min(sequence) AS number, max(sequence) AS upto,
                               concat('(', ring_seq, ',', ring_rep, '):', seq, '.0') AS name
                        FROM {{deliver}} d LEFT SEMI JOIN {{note}} m ON m.run = d.run
                            AND m.what = '{DeliveredTo.what}'
                        GROUP BY run, node, n, t_us, ring_seq, ring_rep, seq, sender))
                WHERE nth = 1) d
            {_incarnation("d")}),
        acts AS (
            SELECT run, node, n, moment, 'all' AS kind, place, sender, number, upto, incarnation,
                   name
            FROM told
            UNION ALL
            SELECT run, node, n, moment, 'some', place, sender, number, upto, incarnation, name
            FROM {{told_some}}
            UNION ALL
            SELECT run, node, n, struct(t_us, node, n), 'asked', NULL, NULL, NULL, NULL, NULL, ''
            FROM {{note}} WHERE {SUBMITTED}
            UNION ALL
            SELECT run, node, n, struct(t_us, node, n), 'submit', NULL, NULL, min(sequence),
                   NULL, incarnation, ''
            FROM {{submit}} s LEFT SEMI JOIN {{note}} m ON m.run = s.run
                AND m.what = '{DeliveredTo.what}'
            GROUP BY run, node, n, t_us, incarnation)
        SELECT a.*, last(place, true) OVER before AS after,
               last(IF(kind = 'some', place, NULL), true) OVER before AS after_some,
               max(kind = 'some') OVER (PARTITION BY a.run, a.node, l.life ORDER BY a.n) AS involved
        FROM acts a
        JOIN {{lives}} l ON l.run = a.run AND l.node = a.node
            AND a.n >= l.since_n AND (l.until_n IS NULL OR a.n < l.until_n)
        WINDOW before AS (PARTITION BY a.run, a.node, l.life ORDER BY a.n
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)""",
}
