"""D12, total-order, and the properties of submissions: fifo, integrity, validity, agreement."""

from __future__ import annotations

from ringcast.pipeline.verify.crosscheck.checks import Check
from ringcast.pipeline.verify.crosscheck.membership import NOBODY

NO_ONE = "CAST(array() AS ARRAY<BIGINT>) AS settled"


def _name(id: str) -> str:
    return f"concat('(', {id}.ring_seq, ',', {id}.ring_rep, '):', {id}.seq, '.0')"


def _agreement(settled: str, spared: str) -> Check:
    """Of two processors one lacks what the other delivered, and that cannot be excused."""
    return Check(
        owed=(
            f"""SELECT l.run, {settled} AS settled, array(l.one, l.other) AS nodes,
                array(l.name) AS messages
            FROM {{lacking}} l LEFT ANTI JOIN {{fallen}} f ON f.run = l.run AND {spared}""",
        ),
    )


FORGOTTEN = "SELECT run FROM {starts} WHERE incarnation < former - 1"
"""Runs in which somebody goes back to an incarnation whose messages the checks have let go of."""


GIVEN_AGAIN = """l.run = v.run AND l.moment > v.before.moment AND l.moment < v.moment
                AND l.node IN (v.ring.rep, v.before.sender, v.sender)"""
"""Whoever gives a place has lost its storage between two things that it held."""


def _remembered(*queries: str) -> tuple[str, ...]:
    """What they find in all other runs."""
    return tuple(
        f"SELECT b.* FROM ({query}) b LEFT ANTI JOIN ({FORGOTTEN}) f ON f.run = b.run"
        for query in queries
    )


CHECKS = {
    "D12": Check(
        broken=(
            f"""SELECT run, struct(t_us, node, n) AS moment, array(node) AS nodes,
                array({_name("before")}, {_name("id")}) AS messages
            FROM {{descents}}""",
            f"""SELECT run, moment, array(node) AS nodes, {NOBODY}
            FROM {{confs}}
            WHERE IF(transitional, ring <> visit.view, ring <> view OR seq <> 0
                OR previous IS NOT NULL AND NOT (conf_id <=> previous.view))""",
        ),
    ),
    # Ascending identifiers have no cycle. Where they descend, a processor told the same twice
    # makes one, and so do two processors with different orders. If everybody goes by when things
    # were first told, there is none. A longer cycle takes a search that has no end in sight.
    "D12-graph": Check(
        owed=(
            f"""SELECT run, {NO_ONE}, array(node) AS nodes, {NOBODY}
            FROM {{identifiers}} GROUP BY run, node, id HAVING count(*) > 1""",
            f"""SELECT run, {NO_ONE}, array(one, other) AS nodes,
                {NOBODY}
            FROM (
                SELECT a.run, a.node AS one, b.node AS other, b.n,
                       lag(b.n) OVER (PARTITION BY a.run, a.node, b.node ORDER BY a.n) AS before_n
                FROM {{identifiers}} a JOIN {{identifiers}} b
                    ON b.run = a.run AND b.id = a.id AND b.node > a.node)
            WHERE n < before_n""",
        ),
        beyond=(
            """SELECT run FROM (
                SELECT run, node, n, first_told, lag(first_told) OVER (
                           PARTITION BY run, node ORDER BY n) AS before
                FROM (SELECT *, min(moment) OVER (PARTITION BY run, id) AS first_told
                      FROM {identifiers}))
            WHERE first_told < before""",
        ),
    ),
    # Two processors share a message from the moment the second has it. Until then the first must
    # not have got further with what they share.
    "total-order": Check(
        broken=(
            """SELECT run, moment, array(late, early) AS nodes, array(before.name, name) AS messages
            FROM (
                SELECT *, lag(struct(low_n, high_n, name)) OVER (
                           PARTITION BY run, low, high ORDER BY moment) AS before
                FROM (
                    SELECT a.run, b.moment, a.node AS early, b.node AS late, a.name,
                           least(a.node, b.node) AS low, greatest(a.node, b.node) AS high,
                           IF(a.node < b.node, a.n, b.n) AS low_n,
                           IF(a.node < b.node, b.n, a.n) AS high_n
                    FROM {told} a JOIN {told} b ON b.run = a.run AND b.rid = a.rid
                        AND b.seq = a.seq AND a.node <> b.node AND a.moment < b.moment
                    WHERE NOT a.again AND NOT b.again))
            WHERE IF(early = low, low_n < before.low_n, high_n < before.high_n)""",
        ),
    ),
    "fifo": Check(
        broken=(
            """SELECT run, moment, array(node, sender) AS nodes, array(last.name, name) AS messages
            FROM (
                SELECT *, lag(struct(incarnation, upto, name)) OVER (
                           PARTITION BY run, node, sender ORDER BY n) AS last
                FROM {heard} WHERE NOT again)
            WHERE incarnation < last.incarnation
                OR incarnation = last.incarnation AND number <= last.upto""",
        ),
    ),
    "content": Check(
        broken=_remembered(
            """SELECT run, moment, array(first.node, node) AS nodes, array(name) AS messages
            FROM (SELECT run, moment, node, first, alike, name FROM {told} WHERE rid IS NOT NULL
                  UNION ALL
                  SELECT run, moment, node, first, alike, name FROM {sent} WHERE rid IS NOT NULL)
            WHERE NOT alike""",
            # A place in no configuration.
            f"""SELECT v.run, v.moment, array(v.before.moment.node, v.moment.node) AS nodes,
                array(v.name) AS messages
            FROM {{variants}} v LEFT ANTI JOIN {{losses}} l ON {GIVEN_AGAIN}""",
            # What its sender has delivered is not numbered again, and of what was submitted twice
            # the first counts.
            """SELECT DISTINCT m.run, m.moment, IF(m.node = m.sender, array(m.node),
                array(m.node, m.sender)) AS nodes, array(m.name) AS messages
            FROM (
                SELECT run, moment, node, sender, incarnation, name, sequence, submission
                FROM {misnumbered} WHERE submission IS NOT NULL
                UNION ALL
                SELECT run, moment, node, sender, incarnation, name, sequence, submission
                FROM {submitted_late}) m
            LEFT ANTI JOIN {submit} l ON l.run = m.run AND l.node = m.sender
                AND l.incarnation = m.incarnation AND l.sequence = m.sequence
                AND struct(l.t_us, l.node, l.n) < m.submission
            LEFT ANTI JOIN {heard} d ON d.run = m.run AND d.node = m.sender
                AND d.sender = m.sender AND d.incarnation = m.incarnation
                AND m.sequence BETWEEN d.number AND d.upto AND d.moment < m.moment""",
        ),
        open=(
            "SELECT run FROM {submit} WHERE digest IS NULL",
            *_remembered(
                f"SELECT v.run FROM {{variants}} v LEFT SEMI JOIN {{losses}} l ON {GIVEN_AGAIN}"
            ),
        ),
        beyond=(FORGOTTEN,),
    ),
    "integrity": Check(
        broken=_remembered(
            """SELECT DISTINCT h.run, h.moment, array(h.node, h.sender) AS nodes,
                array(h.name) AS messages
            FROM (SELECT * FROM {heard} LATERAL VIEW explode(sequence(number, upto)) AS each) h
            LEFT ANTI JOIN {submit} s ON s.run = h.run AND s.node = h.sender
                AND s.incarnation = h.incarnation AND s.sequence = h.each
                AND struct(s.t_us, s.node, s.n) < h.moment""",
            """SELECT run, moment, array(node, sender) AS nodes, array(name) AS messages
            FROM (
                SELECT *, row_number() OVER (
                           PARTITION BY run, node, sender, incarnation, each ORDER BY n) AS nth
                FROM {heard} LATERAL VIEW explode(sequence(number, upto)) AS each)
            WHERE nth > 1""",
            # A number is submitted once in the present life.
            """SELECT s.run, s.moment, array(s.node) AS nodes,
                array(concat('number ', min(s.sequence), ' of ', s.node)) AS messages
            FROM (SELECT *, row_number() OVER (PARTITION BY run, node, incarnation, sequence
                             ORDER BY n) AS nth
                  FROM {submitted_again}) s
            LEFT JOIN {starts} b ON b.run = s.run AND b.node = s.node AND b.since <= s.moment
                AND (b.until IS NULL OR s.moment < b.until)
            WHERE s.nth > 1 AND s.incarnation = coalesce(b.incarnation, 1)
            GROUP BY s.run, s.moment, s.node""",
            # What was reported is not delivered, before or after, and was submitted before.
            """SELECT o.run, greatest(o.moment, u.moment) AS moment, array(o.node) AS nodes,
                array(concat('number ', o.sequence, ' of ', o.node)) AS messages
            FROM {own_told} o JOIN {reported} u ON u.run = o.run AND u.node = o.node
                AND o.sequence BETWEEN u.first AND u.last
            LEFT JOIN {starts} b ON b.run = o.run AND b.node = o.node AND b.since <= o.moment
                AND (b.until IS NULL OR o.moment < b.until)
            WHERE u.incarnation = coalesce(b.incarnation, 1)""",
            """SELECT run, moment, array(node) AS nodes, array(concat('number ',
                coalesce(max(sequence) FILTER (WHERE sequence = first + nth - 1) + 1, first),
                ' of ', node)) AS messages
            FROM (
                SELECT u.run, u.moment, u.node, u.first, u.last, s.sequence,
                       dense_rank() OVER (PARTITION BY u.run, u.moment ORDER BY s.sequence) AS nth
                FROM {reported} u
                LEFT JOIN {every_submission} s ON s.run = u.run AND s.node = u.node
                    AND s.incarnation = u.incarnation AND s.moment < u.moment
                    AND s.sequence BETWEEN u.first AND u.last)
            GROUP BY run, moment, node, first, last
            HAVING count(DISTINCT sequence) < last - first + 1""",
        ),
        beyond=(FORGOTTEN,),
    ),
    "validity": Check(
        owed=(
            """SELECT run, array(node) AS settled, array(node) AS nodes,
                array(concat('number ', min(sequence), ' of ', node)) AS messages
            FROM {undelivered} GROUP BY run, node""",
        ),
    ),
    # Own messages come in the order of their numbers, so each frame follows the ones before it, or
    # what was reported; the lowest number left out is behind either. What was reported was
    # submitted before the configuration changed.
    "accounted": Check(
        broken=(
            """SELECT g.run, g.moment, array(g.node) AS nodes,
                array(concat('number ', min(g.number), ' of ', g.node)) AS messages
            FROM {passed_over} g
            LEFT ANTI JOIN {reported} u ON u.run = g.run AND u.node = g.node AND u.life = g.life
                AND u.n < g.n AND g.number BETWEEN u.first AND u.last
            GROUP BY g.run, g.moment, g.node""",
            """SELECT s.run, s.moment, array(s.node) AS nodes,
                array(concat('number ', min(s.sequence), ' of ', s.node)) AS messages
            FROM {told_before} s
            LEFT ANTI JOIN {confs} c ON c.run = s.run AND c.node = s.node AND c.life = s.life
                AND c.previous IS NOT NULL AND c.n > s.submitted_n AND c.n < s.moment.n
            GROUP BY s.run, s.moment, s.node""",
        ),
        owed=(
            """SELECT run, array(node) AS settled, array(node) AS nodes,
                array(concat('number ', min(sequence), ' of ', node)) AS messages
            FROM {undelivered} s
            LEFT ANTI JOIN {reported} u ON u.run = s.run AND u.node = s.node
                AND s.sequence BETWEEN u.first AND u.last AND u.n > s.born_n
            GROUP BY run, node""",
        ),
    ),
    "agreement": _agreement("array(l.one, l.other)", "f.node IN (l.one, l.other)"),
    "uniform-agreement": _agreement("array(l.other)", "f.node = l.other"),
}

DEFINITIONS = {
    # Identifiers of what was told, in the runs in which they do not always ascend.
    "identifiers": """
        SELECT t.* FROM (
            SELECT run, node, n, moment,
                   struct(ring, seq, struct(0L AS seq, 1L AS rep) AS third) AS id
            FROM {told}
            UNION ALL
            SELECT run, node, n, moment,
                   struct(ring, seq, IF(transitional, view, coalesce(conf_id,
                       struct(0L AS seq, 1L AS rep))))
            FROM {confs}) t
        LEFT SEMI JOIN {descents} d ON d.run = t.run""",
    # What places in no configuration held after something else, each once, and what before it.
    "variants": """
        SELECT run, ring, seq, name, sender, moment, before
        FROM (
            SELECT *, lag(struct(moment, sender)) OVER (
                       PARTITION BY run, ring, seq ORDER BY moment, contents) AS before
            FROM (
                SELECT run, ring, seq, name, sender, level, number, contents,
                       min(moment) AS moment
                FROM {acts} WHERE rid IS NULL
                GROUP BY run, ring, seq, name, sender, level, number, contents))
        WHERE before IS NOT NULL""",
    # Messages that were originated without having been submitted just so under their number.
    "misnumbered": """
        SELECT o.run, o.moment, o.node, o.sender, o.incarnation, o.name, o.place, o.sequence,
               IF(s.run IS NULL, NULL, struct(s.t_us, s.node, s.n)) AS submission
        FROM (
            SELECT o.run, o.moment, o.node, o.sender, o.sequence, o.digest, o.level,
                   struct(o.ring_seq, o.ring_rep, o.seq) AS place,
                   concat('(', o.ring_seq, ',', o.ring_rep, '):', o.seq, '.0') AS name,
                   coalesce(v.incarnation, b.incarnation, 1) AS incarnation
            FROM (SELECT * EXCEPT (sender), IF(sender = 0, node, sender) AS sender,
                         struct(t_us, node, n) AS moment
                  FROM {originate}) o
            LEFT JOIN {known_in} v ON v.run = o.run AND v.node = o.sender
                AND v.ring.seq = o.ring_seq AND v.ring.rep = o.ring_rep
                AND v.since <= o.moment AND o.moment < v.until
            LEFT JOIN {starts} b ON b.run = o.run AND b.node = o.sender
                AND b.since <= o.moment AND (b.until IS NULL OR o.moment < b.until)) o
        LEFT JOIN {submit} s ON s.run = o.run AND s.node = o.sender
            AND s.incarnation = o.incarnation AND s.sequence = o.sequence
            AND struct(s.t_us, s.node, s.n) < o.moment
        WHERE s.run IS NULL OR s.digest <> o.digest OR s.level > o.level""",
    # Messages that were delivered otherwise than they had been submitted by then: of frames that
    # are looked at closely, or that were originated before they were submitted.
    "submitted_late": """
        SELECT d.run, d.moment, d.node, d.sender, d.incarnation, d.name, d.sequence,
               struct(s.t_us, s.node, s.n) AS submission
        FROM (
            SELECT t.run, t.moment, t.node, t.sender, t.incarnation, t.name, t.level,
                   content.digest, t.number + content.`index` AS sequence
            FROM {told} t LATERAL VIEW explode(contents) AS content
            WHERE t.rid IS NOT NULL AND t.alike
            UNION ALL
            SELECT d.run, struct(d.t_us, d.node, d.n), d.node, d.sender, m.incarnation, m.name,
                   d.level, d.digest, d.sequence
            FROM {misnumbered} m
            JOIN {deliver} d ON d.run = m.run AND d.ring_seq = m.place.ring_seq
                AND d.ring_rep = m.place.ring_rep AND d.seq = m.place.seq
                AND d.sequence = m.sequence
            LEFT ANTI JOIN {acts} a ON a.run = m.run AND a.name = m.name
            WHERE m.submission IS NULL) d
        JOIN {submit} s ON s.run = d.run AND s.node = d.sender AND s.incarnation = d.incarnation
            AND s.sequence = d.sequence AND struct(s.t_us, s.node, s.n) < d.moment
        WHERE s.digest <> d.digest OR s.level > d.level""",
    # Senders whose deliveries may be out of order, repeated or not submitted.
    "suspects": """
        SELECT run, sender FROM {misnumbered}
        UNION
        SELECT run, sender FROM {slips}
        UNION
        SELECT run, node FROM {relapses}
        UNION
        SELECT run, node FROM {known_in_two}
        UNION
        SELECT t.run, t.sender FROM {told} t WHERE again OR NOT sound OR NOT alike OR NOT home
        UNION
        SELECT t.run, t.sender FROM {told} t LEFT SEMI JOIN {descents} d ON d.run = t.run""",
    # All frames of such a sender at everybody. That one is told again shows only while its ring is
    # known. A sender's incarnation is the one that the ring knew when the frame appeared.
    "heard": """
        SELECT d.* EXCEPT (rid),
               coalesce(f.incarnation, v.incarnation, b.incarnation, 1) AS incarnation,
               concat('(', d.ring_seq, ',', d.ring_rep, '):', d.seq, '.0') AS name,
               d.rid IS NOT NULL AND row_number() OVER (
                   PARTITION BY d.run, d.node, d.rid, d.seq, a.crash_n ORDER BY d.n) > 1 AS again
        FROM (
            SELECT d.*, r.rid
            FROM (
                SELECT d.run, d.node, d.n, d.ring_seq, d.ring_rep, d.seq, d.sender,
                       struct(d.t_us, d.node, d.n) AS moment, min(d.sequence) AS number,
                       max(d.sequence) AS upto
                FROM {deliver} d
                LEFT SEMI JOIN {suspects} s ON s.run = d.run AND s.sender = d.sender
                GROUP BY d.run, d.node, d.n, d.t_us, d.ring_seq, d.ring_rep, d.seq, d.sender) d
            LEFT JOIN {rings} r ON r.run = d.run AND r.ring.seq = d.ring_seq
                AND r.ring.rep = d.ring_rep AND d.moment >= r.since AND d.moment < r.until) d
        LEFT JOIN {anew} a ON a.run = d.run AND a.rid = d.rid AND a.node = d.node
            AND a.crash_n < d.n AND (a.until_n IS NULL OR d.n < a.until_n)
        LEFT JOIN {frames} f ON f.run = d.run AND f.rid = d.rid AND f.seq = d.seq
            AND f.sender = d.sender
        LEFT JOIN {known_in} v ON v.run = d.run AND v.rid = d.rid AND v.node = d.sender
            AND v.since <= d.moment AND d.moment < v.until
        LEFT JOIN {starts} b ON b.run = d.run AND b.node = d.sender AND b.since <= d.moment
            AND (b.until IS NULL OR d.moment < b.until)""",
    # What a processor told as its own, and was another incarnation's.
    "of_others": """
        SELECT h.run, h.node, h.n
        FROM {heard} h
        LEFT JOIN {starts} b ON b.run = h.run AND b.node = h.node AND b.since <= h.moment
            AND (b.until IS NULL OR h.moment < b.until)
        WHERE h.node = h.sender AND h.incarnation <> coalesce(b.incarnation, 1)""",
    "own_told": """
        SELECT d.run, d.node, d.n, struct(d.t_us, d.node, d.n) AS moment, d.sequence
        FROM {deliver} d
        LEFT ANTI JOIN {of_others} o ON o.run = d.run AND o.node = d.node AND o.n = d.n
        WHERE d.sender = d.node""",
    # Who has not delivered exactly what it submitted since it last went down.
    "behind": """
        SELECT s.run, s.node, s.born_n
        FROM (
            SELECT s.run, s.node, b.born_n, count(*) AS messages,
                   sum(xxhash64(s.sequence) & 4294967295L) AS low
            FROM {submit} s
            JOIN {births} b ON b.run = s.run AND b.node = s.node AND s.n > b.born_n
            GROUP BY s.run, s.node, b.born_n) s
        LEFT JOIN (
            SELECT d.run, d.node, count(*) AS messages,
                   sum(xxhash64(d.sequence) & 4294967295L) AS low
            FROM {own_told} d
            JOIN {births} b ON b.run = d.run AND b.node = d.node AND d.n > b.born_n
            GROUP BY d.run, d.node) d
        ON d.run = s.run AND d.node = s.node
        WHERE NOT coalesce(s.messages = d.messages AND s.low = d.low, false)""",
    # What a processor delivered of its own, and reported as uncertain, by its lives.
    "own": """
        SELECT d.*, l.life
        FROM {own_told} d JOIN {lives} l ON l.run = d.run AND l.node = d.node
            AND d.n >= l.since_n AND (l.until_n IS NULL OR d.n < l.until_n)""",
    # Numbers below a processor's own frame that may be the first one it has not heard of.
    "passed_over": """
        WITH frames AS (
            SELECT *, coalesce(max(last) OVER (PARTITION BY run, node, life ORDER BY n
                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) + 1 AS next
            FROM (
                SELECT run, node, life, n, moment, min(sequence) AS first, max(sequence) AS last
                FROM {own} GROUP BY run, node, life, n, moment))
        SELECT run, node, life, n, moment, next AS number FROM frames WHERE first > next
        UNION ALL
        SELECT f.run, f.node, f.life, f.n, f.moment, u.last + 1
        FROM frames f JOIN {reported} u ON u.run = f.run AND u.node = f.node AND u.life = f.life
            AND u.n < f.n AND u.last + 1 > f.next AND u.last + 1 < f.first""",
    # Own messages of a processor's last life that it did not deliver.
    "undelivered": """
        SELECT s.run, s.node, s.sequence, b.born_n
        FROM {submit} s
        JOIN {behind} b ON b.run = s.run AND b.node = s.node AND s.n > b.born_n
        LEFT ANTI JOIN {own_told} d ON d.run = s.run AND d.node = s.node
            AND d.sequence = s.sequence AND d.n > b.born_n""",
    "reported": """
        SELECT u.run, u.node, u.n, u.sequence AS first, u.sequence + u.count - 1 AS last,
               struct(u.t_us, u.node, u.n) AS moment, l.life,
               coalesce(b.incarnation, 1L) AS incarnation
        FROM {fault} u JOIN {lives} l ON l.run = u.run AND l.node = u.node
            AND u.n >= l.since_n AND (l.until_n IS NULL OR u.n < l.until_n)
        LEFT JOIN {starts} b ON b.run = u.run AND b.node = u.node
            AND b.since <= struct(u.t_us, u.node, u.n)
            AND (b.until IS NULL OR struct(u.t_us, u.node, u.n) < b.until)
        WHERE u.event = 'ReportedUncertain'""",
    # To all and to some.
    "every_submission": """
        SELECT run, node, n, struct(t_us, node, n) AS moment, incarnation, sequence FROM {submit}
        UNION ALL
        SELECT run, node, n, moment, incarnation, number FROM {asks}""",
    "submitted_again": """
        SELECT s.* FROM {every_submission} s LEFT SEMI JOIN (
            SELECT run, node, incarnation, sequence FROM {every_submission}
            GROUP BY run, node, incarnation, sequence HAVING count(*) > 1) m
        ON m.run = s.run AND m.node = s.node AND m.incarnation = s.incarnation
            AND m.sequence = s.sequence""",
    # Of each report the submissions of its numbers, earlier in the same life.
    "told_before": """
        SELECT u.run, u.node, u.moment, u.life, s.sequence, s.n AS submitted_n
        FROM {reported} u
        JOIN {lives} l ON l.run = u.run AND l.node = u.node AND l.life = u.life
        JOIN {submit} s ON s.run = u.run AND s.node = u.node AND s.n < u.n
            AND (u.life = 0 OR s.n > l.since_n) AND s.sequence BETWEEN u.first AND u.last""",
    "lives": """
        SELECT run, node, life, IF(life = 0, 0L, min(n)) AS since_n,
               lead(min(n)) OVER (PARTITION BY run, node ORDER BY life) AS until_n
        FROM {line} GROUP BY run, node, life""",
    "births": """
        SELECT run, node, coalesce(max(n) FILTER (WHERE down), -1L) AS born_n
        FROM {line} GROUP BY run, node""",
    "fallen": "SELECT DISTINCT run, node FROM {line} WHERE down",
    # Who lacks what another delivered, of those who were there before the ring was over.
    "lacking": """
        SELECT t.run, t.node AS one, e.node AS other,
               min_by(t.name, struct(t.appeared, t.seq)) AS name
        FROM {told} t
        JOIN {rings} r ON r.run = t.run AND r.rid = t.rid
        JOIN {everybody} e ON e.run = t.run AND e.node <> t.node AND e.since <= r.until
        LEFT ANTI JOIN {told} o ON o.run = t.run AND o.rid = t.rid AND o.seq = t.seq
            AND o.node = e.node
        GROUP BY t.run, t.rid, t.node, e.node
        UNION ALL
        SELECT p.run, p.node, e.node,
               concat('(', p.ring_seq, ',', p.ring_rep, '):', min(p.from_seq), '.0')
        FROM {places} p
        JOIN {rings} r ON r.run = p.run AND r.ring.seq = p.ring_seq AND r.ring.rep = p.ring_rep
        JOIN {everybody} e ON e.run = p.run AND e.node <> p.node AND e.since <= r.until
        LEFT ANTI JOIN {places} o ON o.run = p.run AND o.ring_seq = p.ring_seq
            AND o.ring_rep = p.ring_rep AND o.node = e.node
        LEFT ANTI JOIN {odd} d ON d.run = p.run AND d.ring_seq = p.ring_seq
            AND d.ring_rep = p.ring_rep AND d.since = 0
        GROUP BY p.run, p.ring_seq, p.ring_rep, p.node, e.node""",
}
