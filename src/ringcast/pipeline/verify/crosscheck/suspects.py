"""The frames that the prefilter did not clear, with all that exact queries ask about them.

``acts`` has a row for each time such a frame was originated or delivered: with its contents, the
configuration its processor was in by its own announcements (``conf``), whether that was the
frame's ring or the transitional configuration after it (``home``), the life of the ring (``rid``,
none if the ring did not exist then), and whether it repeats an earlier act (``again``) of those
that count there (since ``crash_n``). ``frames``
has a row for each frame of a ring that existed: when it first appeared, what was said of it then
and who originated it.
"""

from __future__ import annotations

DEFINITIONS = {
    "acts": """
        WITH rows AS (
            SELECT run, node, n, t_us, true AS told, view_seq, view_rep, ring_seq, ring_rep, seq,
                   sender, level, sequence, `index`, digest
            FROM {deliver}
            UNION ALL
            SELECT run, node, n, t_us, false, ring_seq, ring_rep, ring_seq, ring_rep, seq,
                   IF(sender = 0, node, sender), level, sequence, `index`, digest
            FROM {originate}),
        events AS (
            SELECT r.run, node, n, t_us, told, struct(view_seq AS seq, view_rep AS rep) AS view,
                   struct(r.ring_seq AS seq, r.ring_rep AS rep) AS ring, seq, sender, level,
                   min(sequence) AS number, array_sort(collect_list(struct(`index`, digest)))
                       AS contents
            FROM rows r JOIN {odd} o ON o.run = r.run AND o.ring_seq = r.ring_seq
                AND o.ring_rep = r.ring_rep
            WHERE seq >= o.since
            GROUP BY r.run, node, n, t_us, told, view_seq, view_rep, r.ring_seq, r.ring_rep, seq,
                     sender, level),
        mixed AS (
            SELECT run, node, n, NULL AS turn, struct(t_us, told, view, ring, seq, sender, level,
                       number, contents) AS act
            FROM events
            UNION ALL
            SELECT l.run, l.node, l.n, l.n, NULL
            FROM {line} l LEFT SEMI JOIN {odd} o ON o.run = l.run),
        present AS (
            SELECT run, node, n, act.*, struct(act.t_us, node, n) AS moment,
                   last(turn, true) OVER (PARTITION BY run, node ORDER BY n) AS turn
            FROM mixed)
        SELECT p.* EXCEPT (turn), r.rid, coalesce(c.visit.view = p.ring, false) AS home,
               IF(c.n IS NULL, NULL, struct(c.n, c.view, c.members, c.transitional,
                   c.visit.n AS visit)) AS conf,
               concat('(', p.ring.seq, ',', p.ring.rep, '):', p.seq, '.0') AS name,
               r.rid IS NOT NULL AND row_number() OVER (
                   PARTITION BY p.run, told, r.rid, p.seq, IF(told, p.node, 0),
                       IF(told, a.crash_n, 0)
                   ORDER BY p.moment, p.contents) > 1 AS again, coalesce(a.crash_n, -1L) AS crash_n
        FROM present p
        LEFT JOIN {confs} c ON c.run = p.run AND c.node = p.node AND c.n = p.turn
        LEFT JOIN {rings} r ON r.run = p.run AND r.ring = p.ring AND p.moment >= r.since
            AND p.moment < r.until
        LEFT JOIN {anew} a ON a.run = p.run AND a.rid = r.rid AND a.node = p.node
            AND a.crash_n < p.n AND (a.until_n IS NULL OR p.n < a.until_n)
        WHERE told IS NOT NULL""",
    # The incarnation of its sender is the one that the ring knew, which may be ``outlived``.
    "frames": """
        SELECT f.*, coalesce(s.incarnation, b.incarnation, 1) AS incarnation,
               coalesce(s.incarnation <> b.incarnation, false) AS outlived
        FROM (
            SELECT *, first.sender, first.number, first.number + size(first.contents) - 1 AS upto
            FROM (
                SELECT run, rid, ring, seq, name, min(moment) AS appeared,
                       min_by(struct(node, moment), moment) FILTER (WHERE NOT told) AS origin,
                       min_by(struct(node, told, sender, level, number, contents),
                           struct(moment, contents)) AS first
                FROM {acts} WHERE rid IS NOT NULL GROUP BY run, rid, ring, seq, name)) f
        LEFT JOIN {known_in} s ON s.run = f.run AND s.rid = f.rid AND s.node = f.sender
            AND s.since <= f.appeared AND f.appeared < s.until
        LEFT JOIN {starts} b ON b.run = f.run AND b.node = f.sender AND b.since <= f.appeared
            AND (b.until IS NULL OR f.appeared < b.until)""",
    # ``sound``: it was originated before. ``alike``: it says of its frame what was said first.
    "told": """
        SELECT a.*, f.appeared, f.first, f.incarnation,
               coalesce(f.origin.moment < a.moment, false) AS sound,
               struct(a.sender, a.level, a.number, a.contents) <=>
                   struct(f.first.sender, f.first.level, f.first.number, f.first.contents) AS alike
        FROM (SELECT * EXCEPT (told) FROM {acts} WHERE told) a
        LEFT JOIN {frames} f ON f.run = a.run AND f.rid = a.rid AND f.seq = a.seq""",
    "sent": """
        SELECT a.* EXCEPT (told), f.first,
               struct(a.sender, a.level, a.number, a.contents) <=>
                   struct(f.first.sender, f.first.level, f.first.number, f.first.contents) AS alike
        FROM {acts} a
        LEFT JOIN {frames} f ON f.run = a.run AND f.rid = a.rid AND f.seq = a.seq
        WHERE NOT told""",
}
