"""D1 to D6 and D9 to D13, one-sequencer: who delivered what, where, and beside whom."""

from __future__ import annotations

from ringcast.pipeline.verify.crosscheck.checks import Check
from ringcast.pipeline.verify.crosscheck.timeline import NEVER

SAFE = 1
"""The level of a safe message in a trace."""


def _safe(transitional: str) -> Check:
    """D10 and D11: a safe delivery is a promise about all members of its configuration."""
    what = "array(made.node, member) AS nodes, array(name) AS messages"
    return Check(
        broken=(
            f"""SELECT run, greatest(gone, made.moment) AS moment, {what}
            FROM {{debts}} WHERE transitional = {transitional} AND gone IS NOT NULL""",
        ),
        owed=(
            f"""SELECT run, array(member) AS settled, {what}
            FROM {{debts}} WHERE transitional = {transitional} AND gone IS NULL""",
        ),
    )


CHECKS = {
    "D1": Check(
        broken=(
            """SELECT run, moment, array(first.sender, node) AS nodes, array(name) AS messages
            FROM {sent} WHERE again""",
            """SELECT run, moment, array(node) AS nodes, array(name) AS messages
            FROM {baseless}""",
            """SELECT run, moment, array(first.sender, node) AS nodes, array(name) AS messages
            FROM {told} WHERE sound AND NOT alike""",
        ),
    ),
    "D1-own": Check(
        broken=(
            """SELECT run, struct(t_us, node, n) AS moment, array(node, sender) AS nodes,
                array(concat('(', ring_seq, ',', ring_rep, '):', seq, '.0')) AS messages
            FROM {originate} WHERE `index` = 0 AND sender NOT IN (0, node)""",
            """SELECT run, moment, array(node) AS nodes, array(name) AS messages
            FROM {sent} WHERE again AND sender = node""",
            """SELECT run, moment, array(node) AS nodes, array(name) AS messages
            FROM {baseless} WHERE sender = node""",
        ),
    ),
    "D2": Check(
        broken=(
            """SELECT run, moment, array(node) AS nodes, array(name) AS messages
            FROM {told} WHERE again""",
        ),
    ),
    "D3": Check(
        broken=(
            """SELECT run, ended AS moment, array(node) AS nodes, array(name) AS messages
            FROM {unmet} WHERE ended IS NOT NULL AND NOT crashed""",
        ),
        owed=(
            """SELECT run, array(node) AS settled, array(node) AS nodes, array(name) AS messages
            FROM {unmet} WHERE ended IS NULL""",
        ),
    ),
    "D4": Check(
        owed=(
            """SELECT l.run, l.members AS settled, array(f.sender, s.node) AS nodes,
                array(f.name) AS messages
            FROM (
                SELECT run, rid, collect_list(node) AS members FROM {spans}
                WHERE place IS NOT NULL GROUP BY run, rid
                HAVING every(state IN ('open', 'waiting') AND turned IS NULL)) l
            JOIN {spans} s ON s.run = l.run AND s.rid = l.rid AND s.place IS NOT NULL
                AND s.state = 'open'
            JOIN {frames} f ON f.run = l.run AND f.rid = l.rid AND f.origin IS NOT NULL
            LEFT ANTI JOIN {told} t ON t.run = f.run AND t.rid = f.rid AND t.seq = f.seq
                AND t.node = s.node AND t.n > s.crash_n""",
        ),
    ),
    "D5": Check(
        broken=(
            """SELECT t.run, t.moment, array(t.node) AS nodes, array(t.name) AS messages
            FROM {told} t LEFT ANTI JOIN {rooms} p ON p.run = t.run AND p.node = t.node
                AND p.rid = t.rid AND p.view = t.view AND p.n < t.n
                AND (p.fell_n IS NULL OR p.fell_n > t.n)""",
        ),
    ),
    "D6": Check(
        broken=(
            """SELECT run, moment, array(one, node) AS nodes,
                array(min_by(name, struct(appeared, name))) AS messages
            FROM (
                SELECT run, moment, one, node, name, appeared
                FROM (
                    SELECT p.run, p.moment, p.node, p.one.node AS one, t.node AS has, t.name,
                           t.appeared
                    FROM {steps} p JOIN {told} t
                        ON t.run = p.run AND t.node = p.node AND t.conf.n = p.was_n AND t.home
                    UNION ALL
                    SELECT p.run, p.moment, p.node, p.one.node, t.node, t.name, t.appeared
                    FROM {steps} p JOIN {told} t ON t.run = p.run AND t.node = p.one.node
                        AND t.conf.n = p.one.was_n AND t.home)
                WHERE one <> node
                GROUP BY run, moment, one, node, name, appeared
                HAVING count(DISTINCT has) = 1)
            GROUP BY run, moment, one, node""",
        ),
    ),
    "D9": Check(
        broken=(
            """SELECT run, moment, array(one.node, node) AS nodes,
                array(one.name, name) AS messages
            FROM {tracks} WHERE one.seq <> seq""",
            """SELECT run, moment, array(node) AS nodes, array(name) AS messages
            FROM {leads} WHERE IF(conf.transitional, again, seq <= last_seq)""",
            """SELECT l.run, l.moment, array(l.node, min_by(f.sender, f.seq)) AS nodes,
                array(min_by(f.name, f.seq), l.name) AS messages
            FROM {leads} l JOIN {frames} f ON f.run = l.run AND f.rid = l.rid
                AND f.seq > coalesce(l.last_seq, 0) AND f.seq < l.seq AND f.appeared < l.moment
            WHERE NOT l.conf.transitional
            GROUP BY l.run, l.moment, l.node, l.name""",
        ),
    ),
    "D10": _safe("false"),
    "D11": _safe("true"),
    "D13": Check(
        broken=(
            """SELECT run, moment, array(node, sender) AS nodes, array(missing, name) AS messages
            FROM {gaps} WHERE note.view = view AND NOT array_contains(note.members, sender)""",
        ),
        open=("SELECT run FROM {gaps} WHERE note IS NULL OR note.view <> view",),
    ),
    "one-sequencer": Check(
        broken=(
            # Of a ring that is not known, or not any more, each number stands alone.
            """SELECT run, moment, array(node, sender) AS nodes, array(name) AS messages
            FROM (
                SELECT *, max(sender <> node) OVER so_far AS sequenced,
                       max(fault) OVER so_far AS bad
                FROM (
                    SELECT *, node <> ring.rep OR coalesce(seq <= max(seq) OVER (
                               PARTITION BY run, life ORDER BY moment
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS fault
                    FROM (
                        SELECT o.run, o.moment, o.node, o.ring, o.seq, o.sender, o.name,
                               coalesce(r.rid, xxhash64(o.node, o.n)) AS life
                        FROM (
                            SELECT run, node, n, seq, struct(t_us, node, n) AS moment,
                                   struct(ring_seq AS seq, ring_rep AS rep) AS ring,
                                   IF(sender = 0, node, sender) AS sender,
                                   concat('(', ring_seq, ',', ring_rep, '):', seq, '.0') AS name
                            FROM {originate} WHERE `index` = 0) o
                        LEFT SEMI JOIN (
                            SELECT DISTINCT run, ring_seq, ring_rep FROM {originate}
                            WHERE sender NOT IN (0, node)) s
                        ON s.run = o.run AND s.ring_seq = o.ring.seq AND s.ring_rep = o.ring.rep
                        LEFT JOIN {rings} r ON r.run = o.run AND r.ring = o.ring
                            AND o.moment >= r.since AND o.moment < r.until))
                WINDOW so_far AS (PARTITION BY run, life ORDER BY moment))
            WHERE sequenced AND bad""",
        ),
    ),
}

DEFINITIONS = {
    # Deliveries of what nobody had originated. A ring that is over is not known any more; what
    # comes out of it is D5's.
    "baseless": """
        SELECT run, moment, node, sender, name FROM {told} WHERE NOT sound AND rid IS NOT NULL
        UNION ALL
        SELECT t.run, t.moment, t.node, t.sender, t.name
        FROM {told} t LEFT ANTI JOIN {rings} r
            ON r.run = t.run AND r.until <= t.moment AND r.ring >= t.ring
        WHERE t.rid IS NULL""",
    # A processor's own frames that it did not deliver in time.
    "unmet": """
        SELECT s.run, s.node, s.name, v.ended, v.crashed
        FROM {sent} s
        JOIN {stays} v ON v.run = s.run AND v.node = s.node AND v.n = s.conf.visit
        LEFT ANTI JOIN {told} t ON t.run = s.run AND t.node = s.node AND t.rid = s.rid
            AND t.seq = s.seq AND t.sender = t.node AND t.n > s.n
            AND (v.end_n IS NULL OR t.n < v.end_n)
        WHERE s.home AND NOT s.again AND s.sender = s.node""",
    # Where a message of a ring may be delivered, from when on, and until which crash: that of the
    # stay, or of a later one in a ring of that name; a wrong trace may have another transitional
    # configuration after the first, or come to the ring again.
    "rooms": """
        WITH until_crash AS (
            SELECT *, min(IF(crashed, end_n, NULL)) OVER (
                       PARTITION BY run, ring, node ORDER BY n
                       ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS fell_n,
                   lead(n) OVER (PARTITION BY run, rid, node ORDER BY n) AS back_n
            FROM {stays})
        SELECT run, node, rid, ring AS view, n, fell_n FROM until_crash
        UNION ALL
        SELECT v.run, v.node, v.rid, c.view, c.n, least(v.fell_n, v.back_n,
                   lead(c.n) OVER (PARTITION BY v.run, v.node, v.n ORDER BY c.n))
        FROM until_crash v
        JOIN {confs} c ON c.run = v.run AND c.node = v.node AND c.visit.n = v.n
        WHERE c.transitional""",
    # Steps from one configuration to the next, each with the first who made the same.
    "steps": """
        SELECT c.run, c.moment, c.node, c.previous.n AS was_n,
               first(struct(c.node, c.previous.n AS was_n)) OVER (
                   PARTITION BY c.run, s.rid, c.previous.view, c.view ORDER BY c.moment) AS one
        FROM {confs} c JOIN {stays} s ON s.run = c.run AND s.node = c.node
            AND s.n = IF(c.transitional, c.visit.n, c.visited.n)
        WHERE c.previous IS NOT NULL""",
    # The k-th delivery in a configuration, with the first who got so far.
    "tracks": """
        SELECT *, first(struct(node, seq, name, moment)) OVER (
                   PARTITION BY run, rid, conf.view, k ORDER BY moment) AS one
        FROM (
            SELECT *, row_number() OVER (PARTITION BY run, node, conf.n ORDER BY n) AS k
            FROM {told} WHERE home)""",
    "leads": """
        SELECT *, lag(seq) OVER (PARTITION BY run, rid, conf.view ORDER BY k) AS last_seq
        FROM {tracks} WHERE one.moment = moment""",
    # Members whom a safe delivery speaks for. Who they are says the first one in its configuration
    # to deliver a safe message there.
    "promises": f"""
        SELECT run, rid, seq, name, transitional, made, member
        FROM (
            SELECT run, rid, seq, name, conf.transitional, min(struct(moment, node)) AS made,
                   any_value(spoken_for) AS members
            FROM (
                SELECT *, first_value(conf.members) OVER (
                           PARTITION BY run, rid, conf.view, conf.transitional ORDER BY moment)
                           AS spoken_for
                FROM {{told}} WHERE home AND level = {SAFE})
            GROUP BY run, rid, seq, name, conf.view, conf.transitional)
        LATERAL VIEW explode(members) AS member""",
    # Members that are not in the ring, and not because of a crash, from when until when: not any
    # more, not at all, or not yet though they are no members to the others.
    "absences": f"""
        SELECT * EXCEPT (crashed)
        FROM (
            SELECT run, rid, node, ended AS gone, crash_n, coalesce(lead(entered) OVER (
                       PARTITION BY run, rid, node ORDER BY n), {NEVER}) AS until, crashed
            FROM {{stays}})
        WHERE gone IS NOT NULL AND NOT crashed
        UNION ALL
        SELECT o.run, o.rid, o.node, o.gone, NULL, coalesce(min(s.entered), {NEVER})
        FROM (
            SELECT r.run, r.rid, a.node, a.until AS gone
            FROM {{rings}} r JOIN {{absent}} a ON a.run = r.run AND a.ring = r.ring
                AND a.since = r.since
            WHERE a.state = 'skipped'
            UNION ALL
            SELECT DISTINCT p.run, p.rid, p.member, struct(0L AS t_us, 0L AS node, 0L AS n)
            FROM {{promises}} p LEFT ANTI JOIN {{spans}} s ON s.run = p.run AND s.rid = p.rid
                AND s.node = p.member AND s.place IS NOT NULL) o
        LEFT JOIN {{stays}} s ON s.run = o.run AND s.rid = o.rid AND s.node = o.node
            AND s.entered > o.gone
        GROUP BY o.run, o.rid, o.node, o.gone""",
    # Promises that a member had not kept when it was ``gone``, or has not kept at the end.
    "debts": """
        SELECT p.run, p.name, p.transitional, p.made, p.member, a.gone
        FROM {promises} p
        JOIN {absences} a ON a.run = p.run AND a.rid = p.rid AND a.node = p.member
            AND p.made.moment < a.until
        LEFT ANTI JOIN {told} t ON t.run = p.run AND t.rid = p.rid AND t.seq = p.seq
            AND t.node = p.member AND t.home AND t.n > a.crash_n AND t.moment < a.gone
        UNION ALL
        SELECT p.run, p.name, p.transitional, p.made, p.member, NULL
        FROM {promises} p
        JOIN {spans} s ON s.run = p.run AND s.rid = p.rid AND s.node = p.member
            AND s.state IN ('open', 'waiting')
        LEFT ANTI JOIN {told} t ON t.run = p.run AND t.rid = p.rid AND t.seq = p.seq
            AND t.node = p.member AND t.home AND t.n > s.crash_n""",
    # Deliveries in a transitional configuration beyond something missing, and the latest word on
    # whose messages may be delivered there.
    "gaps": """
        SELECT g.run, g.moment, g.node, g.view, g.sender, g.name, g.missing,
               max_by(struct(struct(m.view_seq AS seq, m.view_rep AS rep) AS view, m.members), m.n)
                   AS note
        FROM (
            SELECT t.run, t.moment, t.node, t.n, t.view, t.sender, t.name,
                   min_by(f.name, f.appeared) AS missing
            FROM {told} t
            JOIN {frames} f ON f.run = t.run AND f.rid = t.rid AND f.appeared < t.appeared
            LEFT ANTI JOIN {told} p ON p.run = t.run AND p.rid = f.rid AND p.seq = f.seq
                AND p.node = t.node AND p.n < t.n AND p.n > t.crash_n
            WHERE t.home AND t.conf.transitional
            GROUP BY t.run, t.moment, t.node, t.n, t.view, t.sender, t.name) g
        LEFT JOIN {note} m ON m.run = g.run AND m.node = g.node AND m.n < g.n
            AND m.what = 'deliver_memb'
        GROUP BY g.run, g.moment, g.node, g.view, g.sender, g.name, g.missing""",
}
