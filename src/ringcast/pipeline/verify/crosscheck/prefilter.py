"""The screen: finds, in a few scans with small results, where a trace needs a closer look.

Nearly all frames are *plain*: originated once, delivered later by every member of their ring that
did not crash, in the ring itself, once, with the same contents. Fingerprints show it: for every
frame the sums of the halves of a hash of who delivered it, and of a hash of what was in it, have
the values that a plain frame must have. And nearly all processors are told of everything in the
order of identifiers, which a comparison with the row before shows.

``odd`` has a row for every ring in which that is not so from some number on. Whatever comes
before that number is plain and in order at everybody, and no property can be broken there, except
those about submissions (``suspects``).
"""

from __future__ import annotations

from ringcast.pipeline.verify.crosscheck.timeline import LATEST

BLOCK = 16
"""A processor's events are sorted in blocks of 2 to this many, and then the ends of the blocks."""


def _halves(hash: str, of: str) -> str:
    """Sums of the halves of a hash over the rows that fulfil ``of``: they cannot overflow."""
    name, condition = of.split(" WHERE ")
    return (
        f"sum({hash} & 4294967295L) FILTER (WHERE {condition}) AS {name}_low,"
        f"sum(shiftright({hash}, 32)) FILTER (WHERE {condition}) AS {name}_high"
    )


WHO = "xxhash64(node, view_seq, view_rep)"
WHAT = "xxhash64(sender, level, sequence, `index`, digest)"

DEFINITIONS = {
    # Where each processor delivered messages of which ring, and whether it was there.
    "places": """
        SELECT d.*, c.n AS conf_n, c.transitional,
               coalesce(c.visit.view = struct(d.ring_seq AS seq, d.ring_rep AS rep), false)
                   AS right_place
        FROM (
            SELECT run, node, view_seq, view_rep, ring_seq, ring_rep, count(*) AS frames,
                   min(n) AS from_n, max(n) AS to_n, min(seq) AS from_seq, max(seq) AS to_seq
            FROM {deliver} WHERE `index` = 0
            GROUP BY run, node, view_seq, view_rep, ring_seq, ring_rep) d
        LEFT JOIN {confs} c ON c.run = d.run AND c.node = d.node AND c.view.seq = d.view_seq
            AND c.view.rep = d.view_rep AND c.n < d.from_n
            AND (c.upto IS NULL OR d.to_n < c.upto)""",
    "sources": """
        SELECT o.*, c.n IS NOT NULL AS right_place
        FROM (
            SELECT run, node, ring_seq, ring_rep, min(n) AS from_n, max(n) AS to_n
            FROM {originate} WHERE `index` = 0 GROUP BY run, node, ring_seq, ring_rep) o
        LEFT JOIN {confs} c ON c.run = o.run AND c.node = o.node AND c.view.seq = o.ring_seq
            AND c.view.rep = o.ring_rep AND c.n < o.from_n AND (c.upto IS NULL OR o.to_n < c.upto)
            AND NOT c.transitional""",
    # Whose deliveries a plain frame has, by its number: those who crashed count up to their last.
    "expected": f"""
        WITH reach AS (
            SELECT r.run, r.ring.seq AS ring_seq, r.ring.rep AS ring_rep, s.node,
                   IF(s.state = 'crashed', coalesce(p.to_seq, 0), {LATEST}) AS upto,
                   xxhash64(s.node, r.ring.seq, r.ring.rep) AS who
            FROM {{rings}} r
            JOIN {{spans}} s ON s.run = r.run AND s.rid = r.rid AND s.place IS NOT NULL
            LEFT JOIN {{places}} p ON p.run = r.run AND p.node = s.node
                AND p.ring_seq = r.ring.seq AND p.ring_rep = r.ring.rep
                AND p.view_seq = r.ring.seq AND p.view_rep = r.ring.rep),
        bounds AS (
            SELECT *, coalesce(lag(upto) OVER (PARTITION BY run, ring_seq, ring_rep ORDER BY upto),
                       -1) AS above
            FROM (SELECT DISTINCT run, ring_seq, ring_rep, upto FROM reach))
        SELECT b.run, b.ring_seq, b.ring_rep, b.above, b.upto, count(*) AS members,
               sum(r.who & 4294967295L) AS who_low, sum(shiftright(r.who, 32)) AS who_high
        FROM bounds b JOIN reach r ON r.run = b.run AND r.ring_seq = b.ring_seq
            AND r.ring_rep = b.ring_rep AND r.upto >= b.upto
        GROUP BY b.run, b.ring_seq, b.ring_rep, b.above, b.upto""",
    # The first number of a ring whose frame is not plain; and whether there is one that nobody
    # originated as it was delivered: its number may be that of any other.
    "uneven": f"""
        WITH mixed AS (
            SELECT run, ring_seq, ring_rep, seq, false AS sent, node, n, t_us, `index`, sender,
                   sequence, {WHO} AS who, {WHAT} AS what
            FROM {{deliver}}
            UNION ALL
            SELECT run, ring_seq, ring_rep, seq, true, node, n, t_us, `index`, sender, sequence, 0,
                   {WHAT}
            FROM (SELECT * EXCEPT (sender), IF(sender = 0, node, sender) AS sender
                  FROM {{originate}})),
        frames AS (
            SELECT run, ring_seq, ring_rep, seq,
                   count_if(sent AND `index` = 0) AS origins,
                   count_if(NOT sent AND `index` = 0) AS told,
                   {_halves("what", "sent WHERE sent")}, {_halves("what", "got WHERE NOT sent")},
                   {_halves("who", "who WHERE NOT sent AND `index` = 0")},
                   sum(sender + sequence) FILTER (WHERE NOT sent) - count_if(NOT sent AND
                       `index` = 0) * sum(sender + sequence) FILTER (WHERE sent) AS whose,
                   min(t_us) FILTER (WHERE sent) AS sent_us,
                   min(n) FILTER (WHERE sent) AS sent_n,
                   min(t_us) FILTER (WHERE NOT sent AND node NOT IN (sender, ring_rep)) AS far_us,
                   min(t_us) FILTER (WHERE NOT sent AND node = sender) AS own_us,
                   min(n) FILTER (WHERE NOT sent AND node = sender) AS own_n,
                   min(t_us) FILTER (WHERE NOT sent AND node = ring_rep) AS rep_us,
                   min(n) FILTER (WHERE NOT sent AND node = ring_rep) AS rep_n,
                   min(node) FILTER (WHERE sent) AS node, min(sender) FILTER (WHERE sent) AS sender
            FROM mixed GROUP BY run, ring_seq, ring_rep, seq)
        SELECT f.run, f.ring_seq, f.ring_rep, min(f.seq) AS since,
               bool_or(NOT coalesce(f.origins > 0 AND f.whose = 0, false)) AS strange
        FROM frames f
        LEFT JOIN {{expected}} e ON e.run = f.run AND e.ring_seq = f.ring_seq
            AND e.ring_rep = f.ring_rep AND f.seq > e.above AND f.seq <= e.upto
        WHERE NOT coalesce(
            f.origins = 1 AND f.told = e.members
            AND f.who_low = e.who_low AND f.who_high = e.who_high
            AND f.got_low = f.told * f.sent_low AND f.got_high = f.told * f.sent_high
            AND coalesce(f.far_us > f.sent_us, true)
            AND CASE f.node
                WHEN f.sender THEN f.sent_n < f.own_n
                    AND (f.sender = f.ring_rep OR coalesce(f.rep_us > f.sent_us, true))
                WHEN f.ring_rep THEN f.sent_n < f.rep_n AND coalesce(f.own_us > f.sent_us, true)
                END,
            false)
        GROUP BY f.run, f.ring_seq, f.ring_rep""",
    # Everything a processor is told, and what came right before, where that was not smaller or
    # a block of events begins or ends.
    "turns": f"""
        SELECT * FROM (
            SELECT run, node, n, t_us, struct(ring_seq, ring_rep, seq, third_seq, third_rep) AS id,
                   lag(struct(ring_seq, ring_rep, seq, third_seq, third_rep)) OVER block AS before,
                   lead(n) OVER block IS NULL AS at_end
            FROM (
                SELECT run, node, n, t_us, ring_seq, ring_rep, seq, 0L AS third_seq, 1L AS third_rep
                FROM {{deliver}} WHERE `index` = 0
                UNION ALL
                SELECT run, node, n, t_us, ring.seq, ring.rep, seq,
                       IF(transitional, view.seq, coalesce(conf_id.seq, 0)),
                       IF(transitional, view.rep, coalesce(conf_id.rep, 1))
                FROM {{confs}})
            WINDOW block AS (PARTITION BY run, node, shiftright(n, {BLOCK}) ORDER BY n))
        WHERE before IS NULL OR at_end OR id <= before""",
    "descents": """
        SELECT run, node, n, t_us, id, before FROM {turns} WHERE id <= before
        UNION ALL
        SELECT run, node, n, t_us, id, ahead
        FROM (
            SELECT *, lag(id) OVER (PARTITION BY run, node ORDER BY n) AS ahead
            FROM {turns} WHERE before IS NULL OR at_end)
        WHERE before IS NULL AND id <= ahead""",
    # A sender's messages in the order of origination, where place or number did not rise.
    "setbacks": """
        SELECT * FROM (
            SELECT run, sender, moment, place, number, lag(moment) OVER own AS moment_before,
                   lag(place) OVER own AS place_before, lag(number) OVER own AS number_before
            FROM (
                SELECT run, IF(sender = 0, node, sender) AS sender, struct(t_us, node, n) AS moment,
                       struct(ring_seq, ring_rep, seq, `index`) AS place, sequence AS number
                FROM {originate})
            WINDOW own AS (PARTITION BY run, sender ORDER BY moment, place.`index`))
        WHERE place <= place_before OR number <= number_before""",
    # Numbers start again with a higher incarnation of the sender; otherwise they slipped.
    "slips": """
        SELECT s.* FROM {setbacks} s LEFT ANTI JOIN {starts} b
            ON b.run = s.run AND b.node = s.sender AND b.incarnation > b.former
            AND b.since > s.moment_before AND b.since < s.moment
        WHERE number <= number_before""",
    # Whoever starts with a lower one goes back in number, whatever its numbers are.
    "relapses": "SELECT DISTINCT run, node FROM {starts} WHERE incarnation < former",
    # Runs in which somebody numbered a message of a processor that is not in the ring: its effect
    # may stand below its causes though everything ascends, so all their rings are looked at.
    "outsiders": """
        SELECT DISTINCT o.run
        FROM {originate} o
        LEFT ANTI JOIN (SELECT run, ring, explode(members) AS member FROM {rings}) m
            ON m.run = o.run AND m.ring.seq = o.ring_seq AND m.ring.rep = o.ring_rep
            AND m.member = o.sender
        WHERE o.sender NOT IN (0, o.node)""",
    "odd": """
        WITH ranges AS (
            SELECT run, struct(id.ring_seq AS seq, id.ring_rep AS rep) AS low, id.seq AS since,
                   struct(before.ring_seq AS seq, before.ring_rep AS rep) AS high
            FROM {descents}
            UNION ALL
            SELECT run, struct(place.ring_seq AS seq, place.ring_rep AS rep), place.seq,
                   struct(place_before.ring_seq AS seq, place_before.ring_rep AS rep)
            FROM {setbacks} WHERE place <= place_before
            UNION ALL
            SELECT run, struct(place_before.ring_seq AS seq, place_before.ring_rep AS rep), 0L,
                   struct(place.ring_seq AS seq, place.ring_rep AS rep)
            FROM {slips})
        SELECT run, ring_seq, ring_rep, min(since) AS since FROM (
            SELECT run, ring_seq, ring_rep, 0L AS since FROM {places} WHERE NOT right_place
            UNION ALL
            SELECT run, ring_seq, ring_rep, 0L FROM {sources} WHERE NOT right_place
            UNION ALL
            SELECT run, ring.seq, ring.rep, 0L FROM {rings} WHERE life > 1
            UNION ALL
            SELECT r.run, r.ring.seq, r.ring.rep, 0L
            FROM {rings} r JOIN {spans} s ON s.run = r.run AND s.rid = r.rid WHERE s.place IS NULL
            UNION ALL
            SELECT r.run, r.ring.seq, r.ring.rep, 0L
            FROM {rings} r JOIN {stays} s ON s.run = r.run AND s.rid = r.rid
            WHERE s.members <> r.members
            UNION ALL
            SELECT run, ring.seq, ring.rep, 0L FROM {known_in_two}
            UNION ALL
            SELECT run, ring_seq, ring_rep, since FROM {uneven}
            UNION ALL
            SELECT r.run, r.ring.seq, r.ring.rep, 0L
            FROM {rings} r LEFT SEMI JOIN {uneven} u ON u.run = r.run AND u.strange
            UNION ALL
            SELECT r.run, r.ring.seq, r.ring.rep, 0L
            FROM {rings} r LEFT SEMI JOIN {outsiders} u ON u.run = r.run
            UNION ALL
            SELECT r.run, r.ring.seq, r.ring.rep, 0L
            FROM {rings} r LEFT SEMI JOIN {relapses} b ON b.run = r.run
            UNION ALL
            SELECT run, low.seq, low.rep, since FROM ranges
            UNION ALL
            SELECT g.run, r.ring.seq, r.ring.rep, 0L
            FROM ranges g JOIN {rings} r
                ON r.run = g.run AND r.ring > g.low AND r.ring <= g.high)
        GROUP BY run, ring_seq, ring_rep""",
    # Whoever did something, or is a member of a ring by the word of who installed it first.
    "everybody": """
        SELECT run, node, min(moment) AS since FROM (
            SELECT run, node, moment FROM {line}
            UNION ALL
            SELECT run, member, since FROM {rings} LATERAL VIEW explode(members) AS member)
        GROUP BY run, node""",
}
