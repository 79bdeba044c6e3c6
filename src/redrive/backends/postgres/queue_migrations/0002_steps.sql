-- The steps that verbs on queues are made of. Whoever calls them holds the lock on the partition, and writes its row afterwards.
-- Items are found one by one (LATERAL … LIMIT 1) and changed where they lie (ctid): told to join, the planner would walk along
-- all of a partition that it thinks is small. Who walks along a lane begins by comparing rows, which no other index can serve,
-- and ends by a LIMIT that is exact: comparing rows, the server does not see where to stop.

-- Add what is fresh to a partition, but for what has no id in `ids`. Those come to be without one that are there already.
CREATE FUNCTION {schema}.queue_add(
    p {schema}.queue_parts, ids text[], f {schema}.queue_fresh, expire bigint, is_ordered boolean, now_us bigint
) RETURNS {schema}.queue_parts LANGUAGE plpgsql
AS $$
DECLARE
    never CONSTANT bigint := 4611686018427387904;
    are_behind boolean[] := ARRAY[]::boolean[];
    r record;
BEGIN
    IF is_ordered AND cardinality(f.key) > 0 THEN
        are_behind := ARRAY(
            SELECT a.id <> '' AND coalesce(a.key, '') <> '' AND (
                row_number() OVER (PARTITION BY a.key, a.id = '' ORDER BY a.place) > 1 OR i.id IS NOT NULL
            )
            FROM unnest(ids, f.key) WITH ORDINALITY a (id, key, place)
            LEFT JOIN LATERAL (
                SELECT i.id FROM {schema}.queue_items i
                WHERE i.part = p.part AND i.line = a.key AND i.line IS NOT NULL AND i.spot < 12 LIMIT 1
            ) i ON true
            ORDER BY a.place
        );
    END IF;
    FOR r IN
        WITH a AS (
            SELECT a.*, 9 - coalesce(a.priority, 0) AS lane,
                CASE WHEN a.enqueue_us >= now_us + 100000 THEN a.enqueue_us ELSE 0 END AS at_us
            FROM unnest(
                ids, f.payload, f.reference, f.encoding, f.kind, f.enqueue_us, f.key, f.priority, f.story, f.message_id,
                f.source_id, f.attempts, f.created_us, f.expire_us, are_behind
            ) a (
                id, payload, reference, encoding, kind, enqueue_us, key, priority, story, message_id,
                source_id, attempts, created_us, expire_us, is_behind
            )
            WHERE a.id <> ''
        ), b AS (
            SELECT a.*, CASE WHEN a.is_behind THEN 11 WHEN a.at_us > 0 THEN 10 ELSE a.lane END AS spot,
                CASE WHEN a.expire_us > 0 THEN a.expire_us WHEN expire > 0 THEN coalesce(nullif(a.at_us, 0), now_us) + expire
                    ELSE 0 END AS end_us
            FROM a
        ), c AS (
            SELECT b.*, b.spot < 10 AND coalesce(nullif(b.end_us, 0), never) < greatest(p.latest_us, max(
                coalesce(nullif(b.end_us, 0), never)
            ) FILTER (WHERE b.spot < 10) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS is_early
            FROM b
        ), written AS (
            INSERT INTO {schema}.queue_items (
                part, spot, priority, attempts, created_us, updated_us, enqueue_us, expire_us, turn, is_early, id, message_id,
                source_id, reference, encoding, kind, key, line, why, payload, story
            )
            SELECT p.part, c.spot, 9 - c.lane, coalesce(c.attempts, 0), coalesce(nullif(c.created_us, 0), now_us), now_us, c.at_us,
                c.end_us, CASE WHEN c.spot = 10 THEN least(c.at_us, nullif(c.end_us, 0)) ELSE 0 END, c.is_early, c.id,
                coalesce(nullif(c.message_id, ''), c.id), coalesce(c.source_id, ''), coalesce(c.reference, ''),
                coalesce(c.encoding, ''), coalesce(c.kind, ''), coalesce(c.key, ''),
                CASE WHEN is_ordered THEN nullif(c.key, '') END, '', c.payload, coalesce(c.story, '')
            FROM c
            RETURNING spot, created_us, expire_us, turn
        )
        SELECT w.spot, count(*) AS count, sum(w.created_us) AS created_us, max(coalesce(nullif(w.expire_us, 0), never)) AS latest_us,
            min(CASE WHEN w.spot = 10 THEN w.turn ELSE nullif(w.expire_us, 0) END) AS soonest_us
        FROM written w GROUP BY w.spot
    LOOP
        p := {schema}.queue_arrived(p, r.spot, r.count, r.created_us, r.latest_us, r.soonest_us, false);
    END LOOP;
    RETURN p;
END
$$;

-- The ids without those of items that are there already: by the position they died at elsewhere, or by their reference.
CREATE FUNCTION {schema}.queue_unknown(part_of int, ids text[], f {schema}.queue_fresh, dedupe bigint, now_us bigint)
    RETURNS text[] LANGUAGE plpgsql
AS $$
DECLARE
    taken text[] := ARRAY[]::text[];
    has_sources boolean := cardinality(f.source_id) > 0;
    has_references boolean := dedupe > 0 AND cardinality(f.reference) > 0;
    new record;
BEGIN
    IF has_sources AND NOT has_references THEN
        RETURN ARRAY(
            SELECT CASE WHEN coalesce(a.source, '') <> '' AND (
                row_number() OVER (PARTITION BY a.source, a.id = '' ORDER BY a.place) > 1 OR i.id IS NOT NULL
            ) THEN '' ELSE a.id END
            FROM unnest(ids, f.source_id) WITH ORDINALITY a (id, source, place)
            LEFT JOIN LATERAL (
                SELECT i.id FROM {schema}.queue_items i
                WHERE i.part = part_of AND i.source_id = a.source AND i.source_id <> '' LIMIT 1
            ) i ON true
            ORDER BY a.place
        );
    END IF;
    IF has_references THEN
        FOR new IN
            SELECT a.id, coalesce(a.source, '') AS source, coalesce(a.reference, '') AS reference, a.place
            FROM unnest(ids, f.source_id, f.reference) WITH ORDINALITY a (id, source, reference, place)
            WHERE a.id <> '' ORDER BY a.place
        LOOP
            IF new.source <> '' AND (new.source = ANY (taken) OR EXISTS (
                SELECT 1 FROM {schema}.queue_items i WHERE i.part = part_of AND i.source_id = new.source AND i.source_id <> ''
            )) OR new.reference <> '' AND EXISTS (
                SELECT 1 FROM {schema}.queue_seen s WHERE s.part = part_of AND s.reference = new.reference AND s.until_us > now_us
            ) THEN
                ids[new.place] := '';
                CONTINUE;
            END IF;
            IF new.source <> '' THEN
                taken := taken || new.source;
            END IF;
            IF new.reference <> '' THEN
                INSERT INTO {schema}.queue_seen AS s (part, reference, until_us) VALUES (part_of, new.reference, now_us + dedupe)
                ON CONFLICT (part, reference) DO UPDATE SET until_us = excluded.until_us;
            END IF;
        END LOOP;
    END IF;
    RETURN ids;
END
$$;

-- Put items at the tail, under new ids and in this order; those whose instant is not near go to the schedule instead.
CREATE FUNCTION {schema}.queue_tail(
    p {schema}.queue_parts, olds text[], more int[], ats bigint[], failures bytea[], was_counted boolean, now_us bigint
) RETURNS {schema}.queue_parts LANGUAGE plpgsql
AS $$
DECLARE
    never CONSTANT bigint := 4611686018427387904;
    second bigint := greatest(now_us / 1000000 - 1400000000, 0);
    ids text[];
    r record;
BEGIN
    IF coalesce(cardinality(olds), 0) = 0 THEN
        RETURN p;
    END IF;
    ids := {schema}.queue_positions(p.last, p.second, cardinality(olds), second);
    p.last := ids[cardinality(ids)];
    p.second := greatest(p.second, second);
    FOR r IN
        WITH a AS (
            SELECT a.*, i.lies, i.expire_us, CASE WHEN a.at_us >= now_us + 100000 THEN 10 ELSE 9 - i.priority END AS spot
            FROM unnest(olds, ids, more, ats, failures) WITH ORDINALITY a (old, id, more, at_us, failure, place)
            CROSS JOIN LATERAL (
                SELECT i.ctid AS lies, i.expire_us, i.priority FROM {schema}.queue_items i
                WHERE i.part = p.part AND i.id = a.old LIMIT 1
            ) i
        ), b AS (
            SELECT a.*, a.spot < 10 AND coalesce(nullif(a.expire_us, 0), never) < greatest(p.latest_us, max(
                coalesce(nullif(a.expire_us, 0), never)
            ) FILTER (WHERE a.spot < 10) OVER (ORDER BY a.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS is_early
            FROM a
        ), written AS (
            UPDATE {schema}.queue_items i SET
                id = b.id, spot = b.spot, attempts = i.attempts + coalesce(b.more, 0), updated_us = now_us, is_early = b.is_early,
                enqueue_us = CASE WHEN b.spot = 10 THEN b.at_us ELSE i.enqueue_us END,
                turn = CASE WHEN b.spot = 10 THEN least(b.at_us, nullif(i.expire_us, 0)) ELSE 0 END,
                failure = coalesce(nullif(b.failure, ''), i.failure)
            FROM b WHERE i.ctid = b.lies
            RETURNING i.spot, i.created_us, i.expire_us, i.turn
        )
        SELECT w.spot, count(*) AS count, sum(w.created_us) AS created_us, max(coalesce(nullif(w.expire_us, 0), never)) AS latest_us,
            min(CASE WHEN w.spot = 10 THEN w.turn ELSE nullif(w.expire_us, 0) END) AS soonest_us
        FROM written w GROUP BY w.spot
    LOOP
        p := {schema}.queue_arrived(p, r.spot, r.count, r.created_us, r.latest_us, r.soonest_us, was_counted);
    END LOOP;
    RETURN p;
END
$$;

-- The next of each of these keys may go, in this order.
CREATE FUNCTION {schema}.queue_release(p {schema}.queue_parts, lines text[], now_us bigint)
    RETURNS {schema}.queue_parts LANGUAGE plpgsql
AS $$
DECLARE
    nexts text[];
    ats bigint[];
BEGIN
    IF p.behind = 0 OR coalesce(cardinality(lines), 0) = 0 THEN
        RETURN p;
    END IF;
    SELECT array_agg(f.id ORDER BY a.place), array_agg(f.enqueue_us ORDER BY a.place) INTO nexts, ats
    FROM unnest(lines) WITH ORDINALITY a (line, place)
    CROSS JOIN LATERAL (
        SELECT i.id, i.enqueue_us FROM {schema}.queue_items i
        WHERE i.part = p.part AND i.line = a.line AND i.spot = 11 ORDER BY i.part, i.line, i.id LIMIT 1
    ) f;
    p.behind := p.behind - coalesce(cardinality(nexts), 0);
    RETURN {schema}.queue_tail(p, nexts, NULL, ats, NULL, true, now_us);
END
$$;

-- These items are given up on, in this order; the next of their keys are another's affair.
CREATE FUNCTION {schema}.queue_kill(
    p {schema}.queue_parts, ids text[], whys text[], more int, failures bytea[], now_us bigint
) RETURNS {schema}.queue_parts LANGUAGE plpgsql
AS $$
BEGIN
    IF coalesce(cardinality(ids), 0) > 0 THEN
        UPDATE {schema}.queue_items i SET
            spot = 12, turn = p.deaths + a.place, why = a.why, attempts = i.attempts + more, updated_us = now_us, is_early = false,
            failure = coalesce(nullif(a.failure, ''), i.failure)
        FROM unnest(ids, whys, failures) WITH ORDINALITY a (id, why, failure, place)
        CROSS JOIN LATERAL (
            SELECT f.ctid AS lies FROM {schema}.queue_items f WHERE f.part = p.part AND f.id = a.id LIMIT 1
        ) f
        WHERE i.ctid = f.lies;
        p.deaths := p.deaths + cardinality(ids);
        p.dying := p.dying + cardinality(ids);
    END IF;
    RETURN p;
END
$$;

-- Ready or scheduled items past their time are given up on, and the next of their keys may go.
CREATE FUNCTION {schema}.queue_expire(p {schema}.queue_parts, ids text[], now_us bigint)
    RETURNS {schema}.queue_parts LANGUAGE plpgsql
AS $$
DECLARE
    lines text[];
BEGIN
    p := {schema}.queue_kill(p, ids, array_fill('expired'::text, ARRAY[coalesce(cardinality(ids), 0)]), 0, NULL, now_us);
    IF p.behind > 0 THEN
        lines := ARRAY(
            SELECT i.line FROM unnest(ids) WITH ORDINALITY a (id, place)
            CROSS JOIN LATERAL (SELECT i.line FROM {schema}.queue_items i WHERE i.part = p.part AND i.id = a.id LIMIT 1) i
            WHERE i.line IS NOT NULL ORDER BY a.place
        );
        p := {schema}.queue_release(p, lines, now_us);
    END IF;
    RETURN p;
END
$$;

-- Whose leases these items are under. With an instant, a lease must end after it.
CREATE FUNCTION {schema}.queue_held(part_of int, ids text[], now_us bigint) RETURNS {schema}.queue_hold LANGUAGE plpgsql
AS $$
DECLARE
    hold {schema}.queue_hold;
BEGIN
    SELECT min(g.place) FILTER (WHERE g.is_bad), array_agg(g.spot), array_agg(g.first), array_agg(g.count), array_agg(g.rest),
        coalesce(sum(g.count), 0), coalesce(sum(g.leased_us * g.count), 0)
    INTO hold
    FROM (
        SELECT l.spot, l.first, l.leased_us, l.rest, count(*) AS count, min(a.place) AS place,
            l.first IS NULL OR l.until_us <= now_us AS is_bad
        FROM unnest(ids) WITH ORDINALITY a (id, place)
        LEFT JOIN LATERAL (
            SELECT i.spot FROM {schema}.queue_items i WHERE i.part = part_of AND i.id = a.id LIMIT 1
        ) i ON i.spot < 10
        LEFT JOIN LATERAL (
            SELECT l.* FROM {schema}.queue_leases l
            WHERE l.part = part_of AND (l.spot, l.first) <= (i.spot, a.id) AND l.spot >= i.spot
            ORDER BY l.part DESC, l.spot DESC, l.first DESC LIMIT 1
        ) l ON l.last >= a.id
        GROUP BY l.spot, l.first, l.leased_us, l.rest, l.until_us
    ) g;
    RETURN hold;
END
$$;

-- These are leased no more.
CREATE FUNCTION {schema}.queue_let_go(p {schema}.queue_parts, hold {schema}.queue_hold)
    RETURNS {schema}.queue_parts LANGUAGE plpgsql
AS $$
DECLARE
    ended bigint;
BEGIN
    DELETE FROM {schema}.queue_leases l USING unnest(hold.spots, hold.firsts, hold.counts) a (spot, first, count)
    WHERE l.part = p.part AND l.spot = a.spot AND l.first = a.first AND l.rest = a.count;
    GET DIAGNOSTICS ended = ROW_COUNT;
    IF ended < cardinality(hold.spots) THEN
        UPDATE {schema}.queue_leases l SET rest = l.rest - a.count
        FROM unnest(hold.spots, hold.firsts, hold.counts) a (spot, first, count)
        WHERE l.part = p.part AND l.spot = a.spot AND l.first = a.first;
    END IF;
    p.leased := p.leased - hold.total;
    p.leased_us := p.leased_us - hold.leased_us;
    RETURN p;
END
$$;

-- Leased items come back: up, where they are told to, have been tried too often or (`expire`) are past their time; else to the
-- tail or the schedule. One that goes up makes way for the next of its key.
CREATE FUNCTION {schema}.queue_back(
    INOUT p {schema}.queue_parts, ids text[], ats bigint[], are_dead boolean[], failures bytea[], most_attempts int,
    expire bigint, now_us bigint, OUT ready bigint, OUT dying bigint
) LANGUAGE plpgsql
AS $$
DECLARE
    d record;
BEGIN
    SELECT array_agg(c.id ORDER BY c.place) FILTER (WHERE c.why <> '') AS dead,
        array_agg(c.why ORDER BY c.place) FILTER (WHERE c.why <> '') AS whys,
        array_agg(c.failure ORDER BY c.place) FILTER (WHERE c.why <> '') AS last_failures,
        array_agg(coalesce(f.id, c.id) ORDER BY c.place) FILTER (WHERE c.why = '' OR f.id IS NOT NULL) AS olds,
        array_agg(CASE WHEN f.id IS NULL THEN c.at_us ELSE f.enqueue_us END ORDER BY c.place)
            FILTER (WHERE c.why = '' OR f.id IS NOT NULL) AS ats,
        array_agg((f.id IS NULL)::int ORDER BY c.place) FILTER (WHERE c.why = '' OR f.id IS NOT NULL) AS more,
        array_agg(CASE WHEN f.id IS NULL THEN c.failure END ORDER BY c.place)
            FILTER (WHERE c.why = '' OR f.id IS NOT NULL) AS failures,
        count(f.id) AS following,
        count(*) FILTER (WHERE c.why = '' AND coalesce(c.at_us, 0) < now_us + 100000) AS ready,
        count(*) FILTER (WHERE c.why <> '') AS dying
    INTO d
    FROM (
        SELECT a.id, a.at_us, a.failure, a.place, i.line, CASE
            WHEN a.is_dead THEN 'dead'
            WHEN most_attempts > 0 AND i.attempts + 1 > most_attempts THEN 'max_attempts'
            WHEN expire > 0 AND i.expire_us > 0 AND i.expire_us <= now_us THEN 'expired'
            ELSE '' END AS why
        FROM unnest(ids, ats, are_dead, failures) WITH ORDINALITY a (id, at_us, is_dead, failure, place)
        CROSS JOIN LATERAL (
            SELECT i.line, i.attempts, i.expire_us FROM {schema}.queue_items i WHERE i.part = p.part AND i.id = a.id LIMIT 1
        ) i
    ) c
    LEFT JOIN LATERAL (
        SELECT n.id, n.enqueue_us FROM {schema}.queue_items n
        WHERE p.behind > 0 AND c.why <> '' AND n.part = p.part AND n.line = c.line AND n.spot = 11
        ORDER BY n.part, n.line, n.id LIMIT 1
    ) f ON true;
    ready := d.ready;
    dying := d.dying;
    p := {schema}.queue_kill(p, d.dead, d.whys, 1, d.last_failures, now_us);
    p.behind := p.behind - d.following;
    p := {schema}.queue_tail(p, d.olds, d.more, d.ats, d.failures, true, now_us);
END
$$;

-- Delete items, wherever they are, and let the next of their keys go.
CREATE FUNCTION {schema}.queue_erase(p {schema}.queue_parts, ids text[], now_us bigint)
    RETURNS {schema}.queue_parts LANGUAGE plpgsql
AS $$
DECLARE
    lines text[] := ARRAY[]::text[];
    places bigint[] := ARRAY[]::bigint[];
    held text[];
    r record;
BEGIN
    IF p.leased > 0 THEN
        held := ARRAY(
            SELECT a.id FROM unnest(ids) a (id)
            CROSS JOIN LATERAL (SELECT i.id, i.spot FROM {schema}.queue_items i WHERE i.part = p.part AND i.id = a.id LIMIT 1) i
            WHERE i.spot < 10 AND i.id <= p.heads[i.spot + 1]
        );
        IF cardinality(held) > 0 THEN
            p := {schema}.queue_let_go(p, {schema}.queue_held(p.part, held, 0));
        END IF;
    END IF;
    FOR r IN
        WITH gone AS (
            DELETE FROM {schema}.queue_items i USING unnest(ids) WITH ORDINALITY a (id, place)
            CROSS JOIN LATERAL (
                SELECT f.ctid AS lies FROM {schema}.queue_items f WHERE f.part = p.part AND f.id = a.id LIMIT 1
            ) f
            WHERE i.ctid = f.lies
            RETURNING i.spot, coalesce(i.id > p.heads[i.spot + 1], false) AS is_ready, i.created_us, i.line, a.place
        )
        SELECT g.spot, g.is_ready, count(*) AS count, sum(g.created_us) AS created_us,
            array_agg(g.line) FILTER (WHERE g.line IS NOT NULL AND g.spot < 11) AS lines,
            array_agg(g.place) FILTER (WHERE g.line IS NOT NULL AND g.spot < 11) AS places
        FROM gone g GROUP BY g.spot, g.is_ready
    LOOP
        lines := lines || r.lines;
        places := places || r.places;
        IF r.spot = 10 THEN
            p.scheduled := p.scheduled - r.count;
            CONTINUE;
        END IF;
        p.created_us := p.created_us - r.created_us;
        IF r.spot = 11 THEN
            p.behind := p.behind - r.count;
        ELSIF r.spot = 12 THEN
            p.dying := p.dying - r.count;
        ELSIF r.is_ready THEN
            p.ready := p.ready - r.count;
            p.lanes[r.spot + 1] := p.lanes[r.spot + 1] - r.count;
        END IF;
    END LOOP;
    IF p.behind > 0 THEN
        lines := ARRAY(SELECT a.line FROM unnest(lines, places) a (line, place) ORDER BY a.place);
        p := {schema}.queue_release(p, lines, now_us);
    END IF;
    IF p.ready + p.leased + p.scheduled = 0 THEN
        p.due_us := 0;
    END IF;
    RETURN p;
END
$$;
