-- The verbs on queues, each a transaction of its own. They first lock what they change, and then ask what time it is, so that
-- time goes on from one to the next. `refused`: why nothing was done ('gone', 'missing', 'unleased'), and by which item.

-- Write queues and forget others, if the catalogue is still of this version.
CREATE FUNCTION {schema}.queue_define(expected bigint, ids text[], datas bytea[], drops text[]) RETURNS boolean LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE {schema}.queue_catalogue SET version = version + 1 WHERE version = expected;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.queues AS q (id, data) SELECT a.id, a.data FROM unnest(ids, datas) a (id, data)
    ON CONFLICT (id) DO UPDATE SET data = excluded.data;
    DELETE FROM {schema}.queues q WHERE q.id = ANY (drops);
    RETURN true;
END
$$;

-- Which partition has the fewest ready, or the most; of equals, the first that is named.
CREATE FUNCTION {schema}.queue_chosen(
    queue_of text, numbers int[], is_fullest boolean, OUT number int, OUT ready bigint, OUT is_gone boolean
) LANGUAGE plpgsql
AS $$
BEGIN
    SELECT w.number, coalesce(p.ready, 0), bool_or(coalesce(p.is_gone, false)) OVER ()
    INTO number, ready, is_gone
    FROM unnest(numbers) WITH ORDINALITY w (number, place)
    LEFT JOIN {schema}.queue_parts p ON p.queue = queue_of AND p.number = w.number
    ORDER BY coalesce(p.ready, 0) * CASE WHEN is_fullest THEN -1 ELSE 1 END, w.place LIMIT 1;
END
$$;

CREATE FUNCTION {schema}.queue_put(
    moment bigint, queue_of text, numbers int[], expire bigint, dedupe bigint, is_ordered boolean, f {schema}.queue_fresh,
    is_wanted boolean[], OUT refused text, OUT ids text[], OUT is_woken boolean
) LANGUAGE plpgsql
AS $$
DECLARE
    chosen record;
    targets int[] := f.number;
    p {schema}.queue_parts;
    now_us bigint;
    second bigint;
    was_ready bigint;
    new text[];
    fresh text[];
BEGIN
    ids := ARRAY[]::text[];
    is_woken := false;
    SELECT * INTO chosen FROM {schema}.queue_chosen(queue_of, numbers, false);
    IF chosen.is_gone THEN
        refused := 'gone';
        RETURN;
    END IF;
    IF cardinality(f.payload) = 0 THEN
        RETURN;
    END IF;
    IF cardinality(targets) = 0 THEN
        targets := ARRAY[chosen.number];
    END IF;
    IF NOT {schema}.queue_seize(
        array_fill(queue_of, ARRAY[cardinality(targets)]), ARRAY(SELECT coalesce(t, chosen.number) FROM unnest(targets) t)
    ) THEN
        refused := 'gone';
        RETURN;
    END IF;
    now_us := {schema}.queue_now(moment);
    second := greatest(now_us / 1000000 - 1400000000, 0);
    FOR p IN
        SELECT * FROM {schema}.queue_parts q
        WHERE q.queue = queue_of AND q.number IN (SELECT coalesce(t, chosen.number) FROM unnest(targets) t)
    LOOP
        was_ready := p.ready;
        fresh := {schema}.queue_positions(p.last, p.second, cardinality(f.payload), second);
        p.last := fresh[cardinality(fresh)];
        p.second := greatest(p.second, second);
        IF cardinality(f.number) > 0 OR is_wanted IS NOT NULL THEN
            fresh := ARRAY(
                SELECT CASE WHEN coalesce(a.number, chosen.number) = p.number AND coalesce(a.is_wanted, true) THEN a.id ELSE '' END
                FROM unnest(fresh, f.number, is_wanted) WITH ORDINALITY a (id, number, is_wanted, place) ORDER BY a.place
            );
        END IF;
        new := {schema}.queue_unknown(p.part, fresh, f, dedupe, now_us);
        IF expire > 0 AND NOT p.expires THEN
            p.due_us := {schema}.queue_next(p, expire);
        END IF;
        p.expires := expire > 0;
        p := {schema}.queue_add(p, new, f, expire, is_ordered, now_us);
        PERFORM {schema}.queue_save(p);
        is_woken := is_woken OR was_ready = 0 AND p.ready > 0;
        ids := CASE WHEN cardinality(ids) = 0 THEN new ELSE ARRAY(
            SELECT a.one || a.other FROM unnest(ids, new) WITH ORDINALITY a (one, other, place) ORDER BY a.place
        ) END;
    END LOOP;
END
$$;

-- Answers with the leased, and at the end with a row that has no item, and tells about the lease. 'stale': others took what was
-- ready in the fullest while this waited for them; call it again with `is_sure`, which locks all.
CREATE FUNCTION {schema}.queue_lease(
    moment bigint, queue_of text, numbers int[], most bigint, lease bigint, expire bigint, rate double precision, is_sure boolean
) RETURNS TABLE (
    id text, message_id text, source_id text, attempts int, created_us bigint, updated_us bigint, enqueue_us bigint,
    expire_us bigint, payload bytea, reference text, encoding text, kind text, key text, priority smallint, story bytea, failure bytea,
    refused text, number int, until_us bigint, dying bigint, wait_us bigint, is_woken boolean
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    chosen record;
    p {schema}.queue_parts;
    now_us bigint;
    ends_us bigint;
    was_ready bigint;
    bucket {schema}.queue_buckets;
    given bigint := 0;
    died bigint := 0;
    r record;
BEGIN
    IF is_sure THEN
        PERFORM {schema}.queue_seize(array_fill(queue_of, ARRAY[cardinality(numbers)]), numbers);
    END IF;
    SELECT * INTO chosen FROM {schema}.queue_chosen(queue_of, numbers, true);
    IF NOT chosen.is_gone AND chosen.ready > 0 THEN
        SELECT * INTO p FROM {schema}.queue_parts q WHERE q.queue = queue_of AND q.number = chosen.number FOR UPDATE;
    END IF;
    IF chosen.is_gone OR p.is_gone THEN
        RETURN QUERY SELECT NULL, NULL, NULL, NULL::int, 0::bigint, 0::bigint, 0::bigint, 0::bigint, NULL::bytea, NULL, NULL, NULL,
            NULL, NULL::smallint, NULL::bytea, NULL::bytea, 'gone', 0, 0::bigint, 0::bigint, 0::bigint, false;
        RETURN;
    END IF;
    now_us := {schema}.queue_now(moment);
    ends_us := now_us + lease;
    was_ready := coalesce(p.ready, 0);
    IF was_ready = 0 THEN
        RETURN QUERY SELECT NULL, NULL, NULL, NULL::int, 0::bigint, 0::bigint, 0::bigint, 0::bigint, NULL::bytea, NULL, NULL, NULL,
            NULL, NULL::smallint, NULL::bytea, NULL::bytea, CASE WHEN chosen.ready > 0 AND cardinality(numbers) > 1 THEN 'stale' END,
            chosen.number, ends_us, 0::bigint, 0::bigint, false;
        RETURN;
    END IF;
    IF rate > 0 THEN
        INSERT INTO {schema}.queue_buckets AS b (queue, tokens, at_us) VALUES (queue_of, greatest(rate, 1.0), now_us)
        ON CONFLICT (queue) DO UPDATE SET
            tokens = least(greatest(rate, 1.0), b.tokens + greatest(now_us - b.at_us, 0) * rate / 1e6),
            at_us = greatest(now_us, b.at_us)
        RETURNING * INTO bucket;
        IF trunc(bucket.tokens + 1e-9) < 1 THEN
            RETURN QUERY SELECT NULL, NULL, NULL, NULL::int, 0::bigint, 0::bigint, 0::bigint, 0::bigint, NULL::bytea, NULL, NULL,
                NULL, NULL, NULL::smallint, NULL::bytea, NULL::bytea, NULL, p.number, 0::bigint, 0::bigint,
                greatest(ceil((1.0 - bucket.tokens) / rate * 1e6), 1)::bigint, false;
            RETURN;
        END IF;
        most := least(most, trunc(bucket.tokens + 1e-9)::bigint);
    END IF;
    FOR lane IN 0..9 LOOP
        WHILE p.lanes[lane + 1] > 0 AND given < most LOOP
            SELECT min(x.id) AS first, max(x.id) AS last, max(x.id) AS seen, count(*) AS live, count(*) AS met,
                bool_or(expire > 0 AND x.expire_us > 0 AND x.expire_us <= now_us) AS has_expired, NULL::text[] AS expired
            INTO r
            FROM (
                SELECT i.id, i.expire_us FROM {schema}.queue_items i
                WHERE (i.spot, i.part, i.id) > (lane::smallint, p.part, p.heads[lane + 1])
                    AND (i.spot, i.part) <= (lane::smallint, p.part)
                ORDER BY i.spot, i.part, i.id LIMIT least(most - given, p.lanes[lane + 1])
            ) x;
            IF r.has_expired THEN
                SELECT min(x.id) FILTER (WHERE NOT x.is_over) AS first, max(x.id) FILTER (WHERE NOT x.is_over) AS last,
                    max(x.id) AS seen, count(*) FILTER (WHERE NOT x.is_over) AS live, count(*) AS met, true AS has_expired,
                    array_agg(x.id ORDER BY x.id) FILTER (WHERE x.is_over) AS expired
                INTO r
                FROM (
                    SELECT y.*, count(*) FILTER (WHERE NOT y.is_over) OVER (
                        ORDER BY y.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                    ) AS before
                    FROM (
                        SELECT i.id, i.expire_us > 0 AND i.expire_us <= now_us AS is_over FROM {schema}.queue_items i
                        WHERE (i.spot, i.part, i.id) > (lane::smallint, p.part, p.heads[lane + 1])
                            AND (i.spot, i.part) <= (lane::smallint, p.part)
                        ORDER BY i.spot, i.part, i.id LIMIT least(greatest(most - given, 1000), p.lanes[lane + 1])
                    ) y
                ) x
                WHERE x.before < most - given;
            END IF;
            EXIT WHEN r.met = 0;
            p.ready := p.ready - r.met;
            p.lanes[lane + 1] := p.lanes[lane + 1] - r.met;
            p.heads[lane + 1] := r.seen;
            IF r.live > 0 THEN
                INSERT INTO {schema}.queue_leases (part, spot, first, last, until_us, leased_us, rest)
                VALUES (p.part, lane, r.first, r.last, ends_us, now_us, r.live);
                given := given + r.live;
            END IF;
            IF r.has_expired THEN
                died := died + cardinality(r.expired);
                p := {schema}.queue_expire(p, r.expired, now_us);
            END IF;
            IF r.live > 0 THEN
                RETURN QUERY
                    SELECT i.id, i.message_id, i.source_id, i.attempts + 1, i.created_us, now_us, i.enqueue_us, i.expire_us,
                        i.payload, i.reference, i.encoding, i.kind, i.key, i.priority, i.story, i.failure,
                        NULL::text, NULL::int, NULL::bigint, NULL::bigint, NULL::bigint, NULL::boolean
                    FROM {schema}.queue_items i
                    WHERE (i.spot, i.part, i.id) >= (lane::smallint, p.part, r.first)
                        AND (i.spot, i.part, i.id) <= (lane::smallint, p.part, r.last)
                    ORDER BY i.spot, i.part, i.id LIMIT r.live;
            END IF;
        END LOOP;
        EXIT WHEN given >= most;
    END LOOP;
    IF given > 0 THEN
        p.leased := p.leased + given;
        p.leased_us := p.leased_us + now_us::numeric * given;
        p.due_us := {schema}.queue_sooner(p.due_us, ends_us);
        IF rate > 0 THEN
            UPDATE {schema}.queue_buckets b SET tokens = b.tokens - given WHERE b.queue = queue_of;
        END IF;
    END IF;
    PERFORM {schema}.queue_save(p);
    RETURN QUERY SELECT NULL, NULL, NULL, NULL::int, 0::bigint, 0::bigint, 0::bigint, 0::bigint, NULL::bytea, NULL, NULL, NULL,
        NULL, NULL::smallint, NULL::bytea, NULL::bytea, NULL, p.number, ends_us, died, 0::bigint, false;
END
$$;

-- Lock a partition whose leased items are to be changed, and see by which lease each is held.
CREATE FUNCTION {schema}.queue_taken(
    moment bigint, queue_of text, number_of int, ids text[], OUT p {schema}.queue_parts, OUT hold {schema}.queue_hold,
    OUT now_us bigint, OUT refused text, OUT culprit text
) LANGUAGE plpgsql
AS $$
BEGIN
    SELECT * INTO p FROM {schema}.queue_parts q WHERE q.queue = queue_of AND q.number = number_of FOR UPDATE;
    now_us := {schema}.queue_now(moment);
    IF p.is_gone THEN
        refused := 'gone';
    ELSIF cardinality(ids) > 0 THEN
        hold := {schema}.queue_held(p.part, ids, now_us);
        IF hold.bad IS NOT NULL THEN
            culprit := ids[hold.bad];
            refused := CASE WHEN EXISTS (SELECT 1 FROM {schema}.queue_items i WHERE i.part = p.part AND i.id = culprit)
                THEN 'unleased' ELSE 'missing' END;
        END IF;
    END IF;
END
$$;

CREATE FUNCTION {schema}.queue_extend(
    moment bigint, queue_of text, number_of int, ids text[], lease bigint, OUT refused text, OUT culprit text, OUT until_us bigint
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    t record;
    split record;
    extended bigint;
BEGIN
    SELECT * INTO t FROM {schema}.queue_taken(moment, queue_of, number_of, ids);
    refused := t.refused;
    culprit := t.culprit;
    until_us := t.now_us + lease;
    IF t.refused IS NOT NULL OR cardinality(ids) = 0 THEN
        RETURN;
    END IF;
    UPDATE {schema}.queue_leases l SET until_us = t.now_us + lease
    FROM unnest((t.hold).spots, (t.hold).firsts, (t.hold).counts) a (spot, first, count)
    WHERE l.part = (t.p).part AND l.spot = a.spot AND l.first = a.first AND l.rest = a.count;
    GET DIAGNOSTICS extended = ROW_COUNT;
    IF extended < cardinality((t.hold).spots) THEN
        -- A lease of which but some items are to be held longer becomes one for each.
        WITH split AS (
            DELETE FROM {schema}.queue_leases l
            USING unnest((t.hold).spots, (t.hold).firsts, (t.hold).counts) a (spot, first, count)
            WHERE l.part = (t.p).part AND l.spot = a.spot AND l.first = a.first AND l.rest > a.count
            RETURNING l.spot, l.first, l.rest, l.until_us, l.leased_us
        )
        SELECT array_agg(s.spot) AS spots, array_agg(s.first) AS firsts, array_agg(s.rest) AS rests,
            array_agg(s.until_us) AS untils, array_agg(s.leased_us) AS leaseds
        INTO split FROM split s;
        INSERT INTO {schema}.queue_leases (part, spot, first, last, until_us, leased_us, rest)
        SELECT i.part, i.spot, i.id, i.id, CASE WHEN i.id = ANY (ids) THEN t.now_us + lease ELSE s.until_us END, s.leased_us, 1
        FROM unnest(split.spots, split.firsts, split.rests, split.untils, split.leaseds) s (spot, first, rest, until_us, leased_us)
        CROSS JOIN LATERAL (
            SELECT i.part, i.spot, i.id FROM {schema}.queue_items i
            WHERE (i.spot, i.part, i.id) >= (s.spot, (t.p).part, s.first) ORDER BY i.spot, i.part, i.id LIMIT s.rest
        ) i;
    END IF;
    IF {schema}.queue_sooner((t.p).due_us, until_us) <> (t.p).due_us THEN
        UPDATE {schema}.queue_parts q SET due_us = {schema}.queue_sooner(q.due_us, t.now_us + lease) WHERE q.part = (t.p).part;
    END IF;
END
$$;

-- Delete all that a lease is on, if it is just these items and nobody stands behind any: the usual case, in which no item need be
-- looked for by itself. Answers with whether it was.
CREATE FUNCTION {schema}.queue_finish(p {schema}.queue_parts, ids text[], now_us bigint) RETURNS boolean LANGUAGE plpgsql
AS $$
DECLARE
    held {schema}.queue_leases;
    found text[];
    lies tid[];
    created numeric;
BEGIN
    SELECT l.* INTO held FROM {schema}.queue_items i
    CROSS JOIN LATERAL (
        SELECT l.* FROM {schema}.queue_leases l
        WHERE l.part = p.part AND (l.spot, l.first) <= (i.spot, ids[1]) AND l.spot >= i.spot
        ORDER BY l.part DESC, l.spot DESC, l.first DESC LIMIT 1
    ) l
    WHERE i.part = p.part AND i.id = ids[1] AND i.spot < 10;
    IF held.rest IS DISTINCT FROM cardinality(ids) OR held.until_us <= now_us THEN
        RETURN false;
    END IF;
    SELECT array_agg(i.id ORDER BY i.id), array_agg(i.ctid), sum(i.created_us) INTO found, lies, created
    FROM (
        SELECT i.id, i.ctid, i.created_us FROM {schema}.queue_items i
        WHERE (i.spot, i.part, i.id) >= (held.spot, p.part, held.first) AND (i.spot, i.part, i.id) <= (held.spot, p.part, held.last)
        ORDER BY i.spot, i.part, i.id LIMIT held.rest
    ) i;
    IF found <> ARRAY(SELECT a.id FROM unnest(ids) a (id) ORDER BY a.id COLLATE "C") THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.queue_items i WHERE i.ctid = ANY (lies);
    DELETE FROM {schema}.queue_leases q WHERE q.part = p.part AND q.spot = held.spot AND q.first = held.first;
    p.created_us := p.created_us - created;
    p.leased := p.leased - held.rest;
    p.leased_us := p.leased_us - held.leased_us::numeric * held.rest;
    PERFORM {schema}.queue_save(p);
    RETURN true;
END
$$;

CREATE FUNCTION {schema}.queue_complete(
    moment bigint, queue_of text, number_of int, ids text[], OUT refused text, OUT culprit text, OUT is_woken boolean
) LANGUAGE plpgsql
AS $$
DECLARE
    t record;
    p {schema}.queue_parts;
    d record;
BEGIN
    SELECT * INTO p FROM {schema}.queue_parts q WHERE q.queue = queue_of AND q.number = number_of FOR UPDATE;
    IF NOT p.is_gone AND p.behind = 0 AND cardinality(ids) > 0
        AND {schema}.queue_finish(p, ids, {schema}.queue_now(moment)) THEN
        RETURN;
    END IF;
    SELECT * INTO t FROM {schema}.queue_taken(moment, queue_of, number_of, ids);
    refused := t.refused;
    culprit := t.culprit;
    IF t.refused IS NOT NULL OR cardinality(ids) = 0 THEN
        RETURN;
    END IF;
    p := t.p;
    WITH gone AS (
        DELETE FROM {schema}.queue_items i USING unnest(ids) WITH ORDINALITY a (id, place)
        CROSS JOIN LATERAL (
            SELECT f.ctid AS lies FROM {schema}.queue_items f WHERE f.part = p.part AND f.id = a.id LIMIT 1
        ) f
        WHERE i.ctid = f.lies RETURNING i.created_us, i.line, a.place
    )
    SELECT sum(g.created_us) AS created_us, array_agg(g.line ORDER BY g.place) FILTER (WHERE g.line IS NOT NULL) AS lines
    INTO d FROM gone g;
    p := {schema}.queue_let_go(p, t.hold);
    p.created_us := p.created_us - d.created_us;
    p := {schema}.queue_release(p, d.lines, t.now_us);
    PERFORM {schema}.queue_save(p);
    is_woken := (t.p).ready = 0 AND p.ready > 0;
END
$$;

CREATE FUNCTION {schema}.queue_retry(
    moment bigint, queue_of text, number_of int, ids text[], ats bigint[], are_dead boolean[],
    failures bytea[], most_attempts int, OUT refused text, OUT culprit text, OUT is_woken boolean, OUT ready bigint, OUT dying bigint
) LANGUAGE plpgsql
AS $$
DECLARE
    t record;
    b record;
BEGIN
    SELECT * INTO t FROM {schema}.queue_taken(moment, queue_of, number_of, ids);
    refused := t.refused;
    culprit := t.culprit;
    ready := 0;
    dying := 0;
    IF t.refused IS NOT NULL OR cardinality(ids) = 0 THEN
        RETURN;
    END IF;
    SELECT * INTO b FROM {schema}.queue_back(
        {schema}.queue_let_go(t.p, t.hold), ids, ats, are_dead, failures, most_attempts, 0, t.now_us
    );
    PERFORM {schema}.queue_save(b.p);
    is_woken := (t.p).ready = 0 AND (b.p).ready > 0;
    ready := b.ready;
    dying := b.dying;
END
$$;

CREATE FUNCTION {schema}.queue_delete(
    moment bigint, queue_of text, number_of int, ids text[], OUT refused text, OUT culprit text, OUT is_woken boolean
) LANGUAGE plpgsql
AS $$
DECLARE
    was {schema}.queue_parts;
    p {schema}.queue_parts;
BEGIN
    SELECT * INTO was FROM {schema}.queue_parts q WHERE q.queue = queue_of AND q.number = number_of FOR UPDATE;
    IF was.is_gone THEN
        refused := 'gone';
        RETURN;
    END IF;
    SELECT a.id INTO culprit FROM unnest(ids) WITH ORDINALITY a (id, place)
    LEFT JOIN LATERAL (SELECT i.id FROM {schema}.queue_items i WHERE i.part = was.part AND i.id = a.id LIMIT 1) i ON true
    WHERE i.id IS NULL ORDER BY a.place LIMIT 1;
    IF FOUND THEN
        refused := 'missing';
    ELSIF cardinality(ids) > 0 THEN
        p := {schema}.queue_erase(was, ids, {schema}.queue_now(moment));
        PERFORM {schema}.queue_save(p);
        is_woken := was.ready = 0 AND p.ready > 0;
    END IF;
END
$$;
