"""Who was in which configuration and when: what all queries need to know, from few rows.

A *moment* orders all events of a run as the trace does. A *life* of a processor lasts until it
goes down, a *visit* is its time in one ring and the transitional configuration after it. A ring's
identifier may be taken again after stable storage was lost, so a ring has lives too: ``rings`` has
a row for each, from the first visit until nobody is in it or on the way to it, and ``spans`` says
for everybody concerned how it ended there.
"""

from __future__ import annotations

LATEST = "9223372036854775807L"
"""The largest number."""

NEVER = f"struct({LATEST} AS t_us, 0L AS node, 0L AS n)"
"""A moment after all others."""

DEFINITIONS = {
    "events": """
        SELECT run, node, n, t_us, 'conf' AS kind,
               struct(view_seq AS seq, view_rep AS rep) AS view, members, transitional,
               struct(ring_seq AS seq, ring_rep AS rep) AS ring, seq,
               IF(conf_id_seq IS NULL, NULL, struct(conf_id_seq AS seq, conf_id_rep AS rep))
                   AS conf_id,
               IF(prev_seq IS NULL, NULL, struct(prev_seq AS seq, prev_rep AS rep)) AS prev,
               CAST(NULL AS BIGINT) AS incarnation, true AS kept
        FROM {view}
        UNION ALL
        SELECT run, node, n, t_us, IF(event = 'Crashed', 'crash', 'start'),
               NULL, NULL, NULL, NULL, NULL, NULL, NULL, incarnation, coalesce(storage_kept, true)
        FROM {fault} WHERE event IN ('Crashed', 'Restarted')""",
    # A start while in a configuration means a crash that is not in the trace.
    "line": """
        SELECT *,
               coalesce(max(IF(kind = 'conf' AND NOT transitional, view.seq, NULL)) OVER stored, 0)
                   AS last_seq,
               coalesce(last(IF(newborn AND NOT transitional, view.seq, NULL), true) OVER stored, 0)
                   AS born_seq
        FROM (
            SELECT * EXCEPT (incarnation), sum(int(down)) OVER own AS life,
                   sum(int(NOT kept)) OVER own AS storage,
                   coalesce(last(CASE kind WHEN 'crash' THEN false WHEN 'start' THEN true END, true)
                       OVER own, true) AS up,
                   coalesce(last(incarnation, true) OVER own, 1) AS incarnation
            FROM (
                SELECT *, struct(t_us, node, n) AS moment, lead(n) OVER own AS upto,
                       coalesce(kind = 'crash' OR kind = 'start' AND lag(kind) OVER own = 'conf',
                           false) AS down,
                       kind = 'conf' AND coalesce(lag(kind) OVER own, 'start') <> 'conf' AS newborn
                FROM {events} WINDOW own AS (PARTITION BY run, node ORDER BY n))
            WINDOW own AS (PARTITION BY run, node ORDER BY n))
        WINDOW stored AS (PARTITION BY run, node, storage ORDER BY n)""",
    # ``visit`` is the one that a configuration begins or belongs to, ``visited`` the one before.
    "confs": """
        SELECT *, lag(visit) OVER own AS visited
        FROM (
            SELECT run, node, n, t_us, moment, life, upto, view, members, transitional, ring, seq,
                   conf_id, prev, lag(struct(n, view, members, transitional)) OVER own AS previous,
                   last(IF(transitional, NULL, struct(n, view, members)), true) OVER own AS visit
            FROM {line} WHERE kind = 'conf'
            WINDOW own AS (PARTITION BY run, node, life ORDER BY n))
        WINDOW own AS (PARTITION BY run, node, life ORDER BY n)""",
    "visits": f"""
        SELECT v.run, v.node, v.n, v.moment AS entered, v.view AS ring, v.members, v.life,
               v.incarnation, v.ended.n AS end_n, v.ended.moment AS ended,
               coalesce(v.ended.down, false) AS crashed,
               coalesce(v.ended.moment, {NEVER}) AS gone, t.turned
        FROM (
            SELECT *, lead(struct(n, moment, down)) OVER (PARTITION BY run, node ORDER BY n)
                       AS ended
            FROM {{line}} WHERE down OR kind = 'conf' AND NOT transitional) v
        LEFT JOIN (
            SELECT run, node, visit.n AS n, min(moment) AS turned
            FROM {{confs}} WHERE transitional GROUP BY run, node, visit.n) t
        ON t.run = v.run AND t.node = v.node AND t.n = v.n
        WHERE v.kind = 'conf'""",
    # Whoever is named by the first to install a ring, how it stood then, and which incarnation of
    # it agreed to the ring: the one before, if it has started again since.
    "named": """
        WITH firsts AS (
            SELECT run, ring, node, entered, members
            FROM (
                SELECT *, max(gone) OVER (PARTITION BY run, ring ORDER BY entered
                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy
                FROM {visits})
            WHERE busy IS NULL OR entered >= busy),
        mixed AS (
            SELECT run, node, moment, NULL AS ring, up, last_seq, born_seq, life, incarnation
            FROM {line}
            UNION ALL
            SELECT run, member, entered, ring, NULL, NULL, NULL, NULL, NULL
            FROM firsts LATERAL VIEW explode(members) AS member WHERE member <> node)
        SELECT run, ring, node, moment AS since, up AND last_seq < ring.seq AS waits,
               NOT up OR born_seq > ring.seq AS fell, life,
               incarnation - int(up AND last_seq >= ring.seq AND born_seq > ring.seq) AS incarnation
        FROM (
            SELECT run, node, moment, ring,
                   coalesce(last(up, true) OVER own, true) AS up,
                   coalesce(last(last_seq, true) OVER own, 0) AS last_seq,
                   coalesce(last(born_seq, true) OVER own, 0) AS born_seq,
                   coalesce(last(life, true) OVER own, 0) AS life,
                   coalesce(last(incarnation, true) OVER own, 1) AS incarnation
            FROM mixed WINDOW own AS (PARTITION BY run, node ORDER BY moment))
        WHERE ring IS NOT NULL""",
    # One that was on its way and goes past the ring skipped it, even if it comes after all; if that
    # is its first configuration, or none comes, it fell.
    "absent": f"""
        WITH ways AS (
            SELECT w.run, w.ring, w.node, w.since, w.waits, w.fell, w.life,
                   min(struct(c.moment, c.previous IS NULL AS newborn))
                       FILTER (WHERE c.moment IS NOT NULL) AS past,
                   min(struct(v.entered, v.gone)) FILTER (WHERE v.entered IS NOT NULL) AS came
            FROM {{named}} w
            LEFT JOIN {{confs}} c ON c.run = w.run AND c.node = w.node AND c.life = w.life
                AND NOT c.transitional AND c.view > w.ring AND c.moment > w.since
            LEFT JOIN {{visits}} v ON v.run = w.run AND v.ring = w.ring AND v.node = w.node
                AND v.life = w.life AND v.entered > w.since
            GROUP BY ALL)
        SELECT w.run, w.ring, w.node, w.since, w.waits,
               CASE WHEN NOT w.waits THEN IF(w.fell, 'crashed', 'skipped')
                    WHEN w.came.entered < coalesce(w.past.moment, {NEVER}) THEN 'came'
                    WHEN w.past IS NOT NULL THEN IF(w.past.newborn, 'crashed', 'skipped')
                    WHEN d.moment IS NOT NULL THEN 'crashed' ELSE 'waiting' END AS state,
               CASE WHEN NOT w.waits THEN w.since
                    WHEN w.came.entered < coalesce(w.past.moment, {NEVER}) THEN w.came.gone
                    ELSE coalesce(w.past.moment, d.moment, {NEVER}) END AS until
        FROM ways w
        LEFT JOIN {{line}} d ON d.run = w.run AND d.node = w.node AND d.down
            AND d.life = w.life + 1""",
    "rings": """
        WITH spells AS (
            SELECT run, ring, entered AS since, gone AS until, members FROM {visits}
            UNION ALL
            SELECT run, ring, since, until, NULL FROM {absent} WHERE waits),
        lives AS (
            SELECT *, sum(int(busy IS NULL OR since >= busy))
                       OVER (PARTITION BY run, ring ORDER BY since ROWS UNBOUNDED PRECEDING) AS life
            FROM (
                SELECT *, max(until) OVER (PARTITION BY run, ring ORDER BY since
                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy
                FROM spells))
        SELECT run, ring, life, xxhash64(run, ring.seq, ring.rep, life) AS rid,
               min(since) AS since, max(until) AS until,
               min_by(members, since) FILTER (WHERE members IS NOT NULL) AS members
        FROM lives GROUP BY run, ring, life""",
    # Of a processor that comes back to a ring after a crash, or comes though nobody waited for it,
    # only what it tells since then counts: since its event ``crash_n``.
    "stays": """
        SELECT * EXCEPT (expected, begins), coalesce(max(IF(begins, n, NULL)) OVER (
                   PARTITION BY run, rid, node ORDER BY n), -1L) AS crash_n
        FROM (
            SELECT *, coalesce(lag(crashed) OVER (PARTITION BY run, rid, node ORDER BY n),
                       NOT expected) AS begins
            FROM (
                SELECT v.*, r.rid, r.until AS over,
                       v.entered = r.since OR coalesce(w.state = 'came', false) AS expected
                FROM {visits} v JOIN {rings} r ON r.run = v.run AND r.ring = v.ring
                    AND v.entered >= r.since AND v.entered < r.until
                LEFT JOIN {absent} w ON w.run = v.run AND w.ring = v.ring AND w.since = r.since
                    AND w.node = v.node))""",
    "anew": """
        SELECT run, rid, node, crash_n, lead(crash_n) OVER (
                   PARTITION BY run, rid, node ORDER BY crash_n) AS until_n
        FROM (SELECT DISTINCT run, rid, node, crash_n FROM {stays} WHERE crash_n >= 0)""",
    # Which incarnation of a processor a ring knows, from when until when.
    "known_in": """
        SELECT *, coalesce(lead(since) OVER (PARTITION BY run, rid, node ORDER BY since), over)
                   AS until
        FROM (
            SELECT r.run, r.rid, r.ring, r.until AS over, a.node, a.since, a.incarnation
            FROM {rings} r JOIN {named} a ON a.run = r.run AND a.ring = r.ring AND a.since = r.since
            UNION ALL
            SELECT run, rid, ring, over, node, entered, incarnation FROM {stays})""",
    "known_in_two": """
        SELECT run, rid, ring, node FROM {known_in}
        GROUP BY run, rid, ring, node HAVING min(incarnation) < max(incarnation)""",
    "spans": """
        WITH stayed AS (
            SELECT run, rid, node, max_by(
                       struct(n, ended, crashed, turned, incarnation, crash_n), n) AS stay
            FROM {stays} GROUP BY run, rid, node),
        listed AS (
            SELECT run, rid, ring, since, place, node
            FROM {rings} LATERAL VIEW posexplode(members) AS place, node)
        SELECT coalesce(l.run, s.run) AS run, coalesce(l.rid, s.rid) AS rid,
               coalesce(l.node, s.node) AS node, l.place,
               CASE WHEN s.stay IS NULL THEN coalesce(a.state, 'waiting')
                    WHEN s.stay.ended IS NULL THEN 'open'
                    WHEN s.stay.crashed THEN 'crashed' ELSE 'left' END AS state,
               IF(s.stay IS NULL, a.until, s.stay.ended) AS ended, s.stay.turned,
               s.stay.incarnation, s.stay.crash_n
        FROM listed l
        FULL JOIN stayed s ON s.run = l.run AND s.rid = l.rid AND s.node = l.node
        LEFT JOIN {absent} a ON a.run = l.run AND a.ring = l.ring AND a.since = l.since
            AND a.node = l.node""",
    # ``former`` is the highest incarnation before.
    "starts": """
        SELECT run, node, incarnation, moment AS since, lead(moment) OVER own AS until,
               coalesce(max(incarnation) OVER (PARTITION BY run, node ORDER BY n
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 1) AS former
        FROM {line} WHERE kind = 'start'
        WINDOW own AS (PARTITION BY run, node ORDER BY n)""",
    "ends": """
        SELECT run, min(t_us) AS t_us, min_by(settled, t_us) AS settled
        FROM {fault} WHERE event = 'Ended' GROUP BY run""",
    # When processors came back without their stable storage.
    "losses": "SELECT run, node, moment FROM {line} WHERE NOT kept",
    # When stable storage was first lost, and when a ring id in use was then taken again by whoever
    # had lost its own, or whose representative had.
    "voids": """
        WITH lost AS (SELECT run, min(moment) AS moment FROM {losses} GROUP BY run),
        taken AS (
            SELECT s.run, min(s.entered) AS moment
            FROM {stays} s
            JOIN {losses} l ON l.run = s.run AND l.node IN (s.ring.rep, s.node)
                AND l.moment < s.entered
            JOIN {rings} r ON r.run = s.run AND r.rid = s.rid AND r.since < s.entered
            LEFT JOIN {absent} w ON w.run = s.run AND w.ring = s.ring AND w.since = r.since
                AND w.node = s.node AND w.state = 'came'
            LEFT JOIN {stays} o ON o.run = s.run AND o.rid = s.rid AND o.node = s.node
                AND o.n < s.n
            WHERE r.members <> s.members OR w.node IS NULL OR o.node IS NOT NULL
            GROUP BY s.run)
        SELECT l.run AS run, l.moment AS lost, t.moment AS taken
        FROM lost l LEFT JOIN taken t ON t.run = l.run""",
}
