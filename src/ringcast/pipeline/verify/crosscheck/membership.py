"""M1 to M8 as queries over configurations, which are few, and what they name.

A check is one or more queries for what is *broken* (run, moment, nodes, messages), what is *owed*
at the end of the trace (besides: who must be settled for it to count), and for runs in which the
answer is *open* for want of evidence.
"""

from __future__ import annotations

from ringcast.pipeline.verify.crosscheck.checks import Check
from ringcast.pipeline.verify.crosscheck.timeline import LATEST, NEVER

NOBODY = "CAST(array() AS ARRAY<STRING>) AS messages"

CHECKS = {
    "M1": Check(
        broken=(
            f"""SELECT run, moment, array(node) AS nodes, {NOBODY}
            FROM {{confs}} WHERE NOT array_contains(members, node)
                OR NOT (prev <=> previous.view)""",
            """SELECT run, moment, array(node) AS nodes, array(name) AS messages
            FROM {acts} WHERE conf IS NULL OR conf.view <> view""",
        ),
    ),
    "M2": Check(
        broken=(f"SELECT run, moment, nodes, {NOBODY} FROM {{shared_ids}}",),
        # Of rings, if who gave the identifier and who told of it have their storage.
        sure=(
            f"""SELECT run, moment, nodes, {NOBODY} FROM {{shared_ids}} c
            LEFT ANTI JOIN {{losses}} l ON l.run = c.run AND l.moment < c.moment
                AND l.node IN (c.view.rep, c.one.node, c.node)
            WHERE NOT c.one.transitional AND NOT c.transitional""",
        ),
    ),
    "M3": Check(
        broken=(
            f"""SELECT run, moment, array(node) AS nodes, {NOBODY}
            FROM {{confs}}
            WHERE IF(previous IS NULL, transitional OR members <> array(node),
                     previous.transitional = transitional)""",
            f"""SELECT run, moment, array(node) AS nodes, {NOBODY}
            FROM (
                SELECT *, lag(view.seq) OVER (PARTITION BY run, node ORDER BY n) AS last_seq
                FROM {{confs}} WHERE NOT transitional)
            WHERE view.seq <= last_seq""",
        ),
    ),
    "M4": Check(
        broken=(
            f"SELECT run, moment, array(node) AS nodes, {NOBODY} FROM {{crossings}} WHERE NOT fits",
            f"""SELECT a.run, a.moment, array(b.node, a.node) AS nodes, {NOBODY}
            FROM {{crossings}} a JOIN {{crossings}} b ON b.run = a.run AND b.rid = a.rid
                AND b.moment < a.moment
            WHERE a.fits AND b.fits AND IF(a.old = b.old,
                a.through <> b.through AND array_contains(a.members, b.node),
                array_contains(a.middle, b.node) OR array_contains(b.middle, a.node))""",
        ),
    ),
    "M4-number": Check(
        broken=(
            f"""SELECT run, moment, array(node) AS nodes, {NOBODY} FROM {{confs}}
            WHERE NOT transitional AND previous.transitional
                AND previous.view.seq <> view.seq - 2""",
        ),
    ),
    "M5": Check(
        broken=(
            f"""SELECT w.run, w.moment, array(s.node, min_by(g.node, g.place)) AS nodes, {NOBODY}
            FROM {{watched}} w
            JOIN {{bounds}} b ON b.run = w.run
            JOIN {{lingering}} s ON s.run = w.run AND s.entered <= w.moment AND w.moment < s.until
                AND w.moment.t_us - greatest(s.ceased.t_us, w.fault_us) > b.bound_us
            JOIN {{departures}} g ON g.run = s.run AND g.rid = s.rid AND g.moment <= w.moment
            LEFT ANTI JOIN {{pauses}} p ON p.run = s.run AND p.node = s.node
                AND p.since < w.moment AND w.moment <= p.until
            GROUP BY w.run, w.moment, s.node""",
        ),
        owed=(
            f"""SELECT s.run, array(s.node) AS settled, array(s.node, min_by(g.node, g.place))
                AS nodes, {NOBODY}
            FROM {{spans}} s JOIN {{departures}} g ON g.run = s.run AND g.rid = s.rid
            WHERE s.state = 'open' AND s.turned IS NULL
            GROUP BY s.run, s.rid, s.node""",
        ),
    ),
    "M6": Check(
        broken=(
            f"""SELECT run, moment, array(one.node, node) AS nodes, {NOBODY}
            FROM (
                SELECT *, first(struct(node, members))
                    OVER (PARTITION BY run, view ORDER BY moment) AS one FROM {{confs}})
            WHERE one.members <> members""",
        ),
    ),
    "M7": Check(
        broken=(
            f"""SELECT run, moment, array(one.node, node) AS nodes, {NOBODY}
            FROM (
                SELECT c.run, c.moment, c.node,
                       struct(c.ring, c.seq, c.conf_id, c.members, c.transitional) AS told,
                       first(struct(c.node, struct(c.ring, c.seq, c.conf_id, c.members,
                           c.transitional) AS told)) OVER (PARTITION BY c.run, s.rid,
                           c.previous.view, c.view ORDER BY c.moment) AS one
                FROM {{confs}} c JOIN {{stays}} s
                    ON s.run = c.run AND s.node = c.node AND s.n = c.visit.n
                WHERE c.previous IS NOT NULL)
            WHERE NOT (one.told <=> told)""",
        ),
    ),
    "M8": Check(
        broken=(
            f"""SELECT run, moment, array(node, min_by(member, place)) AS nodes, {NOBODY}
            FROM (
                SELECT c.run, c.moment, c.node, c.members, c.place, c.member,
                       max_by(a.members, a.moment) AS agreed
                FROM (
                    SELECT c.*, place, member
                    FROM {{confs}} c JOIN {{first_commit}} f
                        ON f.run = c.run AND f.moment < c.moment
                    LEFT ANTI JOIN {{agreed_again}} g
                        ON g.run = c.run AND g.view = c.view AND g.moment < c.moment
                    LATERAL VIEW posexplode(members) AS place, member
                    WHERE NOT transitional AND previous IS NOT NULL) c
                LEFT JOIN {{commits}} a ON a.run = c.run AND a.view = c.view
                    AND a.node = c.member AND a.moment < c.moment
                GROUP BY c.run, c.moment, c.node, c.members, c.place, c.member)
            WHERE agreed IS NULL OR array_sort(array_distinct(agreed)) <>
                array_sort(array_distinct(members))
            GROUP BY run, moment, node""",
        ),
        open=(
            """SELECT c.run FROM {confs} c
            LEFT ANTI JOIN {first_commit} f ON f.run = c.run AND f.moment < c.moment
            WHERE NOT transitional AND previous IS NOT NULL""",
            """SELECT c.run FROM {confs} c JOIN {agreed_again} g
                ON g.run = c.run AND g.view = c.view AND g.moment < c.moment
            WHERE NOT transitional AND previous IS NOT NULL""",
        ),
    ),
}

DEFINITIONS = {
    # Identifiers that stand for two configurations.
    "shared_ids": """
        SELECT *, IF(one.members <> members OR one.transitional <> transitional,
                   array(one.node, node), array(node)) AS nodes
        FROM (
            SELECT *, first(struct(moment, node, members, transitional))
                OVER (PARTITION BY run, view ORDER BY moment) AS one FROM {confs})
        WHERE one.moment <> moment AND (one.members <> members
            OR one.transitional <> transitional OR one.node = node)""",
    # Who has gone from a ring, or will never come to it, and since when.
    "departures": """
        SELECT run, rid, node, coalesce(place, 1000000) AS place, least(turned, ended) AS moment
        FROM {spans} WHERE state IN ('left', 'skipped', 'crashed') OR turned IS NOT NULL""",
    "lingering": f"""
        SELECT s.run, s.rid, s.node, s.entered, coalesce(least(s.turned, s.ended), {NEVER})
                   AS until, g.ceased
        FROM {{stays}} s JOIN (
            SELECT run, rid, min(moment) AS ceased FROM {{departures}} GROUP BY run, rid) g
        ON g.run = s.run AND g.rid = s.rid""",
    # The moments at which somebody may be found to linger, and the last fault before each.
    "watched": f"""
        SELECT run, moment, coalesce(max(IF(fault, moment.t_us, NULL)) OVER (
                   PARTITION BY run ORDER BY moment
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS fault_us
        FROM (
            SELECT run, moment, kind <> 'conf' AS fault FROM {{line}}
            UNION ALL
            SELECT run, struct(t_us, node, n), true FROM {{fault}} WHERE event = 'Faulted'
            UNION ALL
            SELECT run, struct(t_us, {LATEST} AS node, 0L AS n), false FROM {{ends}})""",
    "pauses": f"""
        SELECT run, node, moment AS since, coalesce(next, {NEVER}) AS until
        FROM (
            SELECT *, lead(moment) OVER (PARTITION BY run, node ORDER BY moment) AS next
            FROM (
                SELECT run, node, struct(t_us, node, n) AS moment, event = 'Faulted' AND
                           kind = 'pause' AS begins
                FROM {{fault}} WHERE event = 'Crashed' OR kind IN ('pause', 'resume')))
        WHERE begins""",
    # From ring ``old`` through ``middle`` into another ring.
    "crossings": """
        SELECT c.run, c.moment, c.node, s.rid, c.visited.view AS old, c.previous.members AS middle,
               c.previous.view AS through, c.members,
               array_contains(c.previous.members, c.node)
               AND size(array_except(c.previous.members, c.visited.members)) = 0
               AND size(array_except(c.previous.members, c.members)) = 0
               AND c.visited.view < c.previous.view AND c.previous.view < c.view
               AND c.previous.view.rep = array_min(c.previous.members) AS fits
        FROM {confs} c JOIN {stays} s ON s.run = c.run AND s.node = c.node AND s.n = c.n
        WHERE NOT c.transitional AND c.previous.transitional AND c.visited IS NOT NULL""",
    "commits": """
        SELECT run, struct(t_us, node, n) AS moment, node,
               struct(view_seq AS seq, view_rep AS rep) AS view, members
        FROM {note} WHERE what = 'commit' AND view_seq IS NOT NULL""",
    "first_commit": "SELECT run, min(moment) AS moment FROM {commits} GROUP BY run",
    # Ids that a representative without its storage gave to two rings, and when.
    "agreed_again": """
        SELECT a.run, a.view, min(a.moment) AS moment
        FROM (
            SELECT *, lag(members) OVER (PARTITION BY run, view ORDER BY moment) AS before
            FROM {commits} WHERE node = view.rep) a
        JOIN {voids} v ON v.run = a.run AND v.lost < a.moment
        WHERE array_sort(array_distinct(before)) <> array_sort(array_distinct(members))
        GROUP BY a.run, a.view""",
}
