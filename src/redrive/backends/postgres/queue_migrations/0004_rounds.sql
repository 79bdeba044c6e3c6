-- Verbs on whole queues: they lock all of a shard's partitions.

-- When something in a partition is due next.
CREATE FUNCTION {schema}.queue_next(p {schema}.queue_parts, expire bigint) RETURNS bigint LANGUAGE plpgsql
AS $$
DECLARE
    due_us bigint := 0;
    found_us bigint;
BEGIN
    IF p.leased > 0 THEN
        SELECT l.until_us INTO found_us FROM {schema}.queue_leases l WHERE l.part = p.part ORDER BY l.part, l.until_us LIMIT 1;
        due_us := {schema}.queue_sooner(due_us, found_us);
    END IF;
    IF p.scheduled > 0 THEN
        SELECT i.turn INTO found_us FROM {schema}.queue_items i
        WHERE i.part = p.part AND i.spot = 10 AND i.spot IN (10, 12) ORDER BY i.part, i.spot, i.turn LIMIT 1;
        due_us := {schema}.queue_sooner(due_us, found_us);
    END IF;
    IF p.ready > 0 AND expire > 0 THEN
        SELECT i.expire_us INTO found_us FROM {schema}.queue_items i
        WHERE i.part = p.part AND i.is_early AND i.id > p.heads[i.spot + 1]
        ORDER BY i.part, i.expire_us LIMIT 1;
        due_us := {schema}.queue_sooner(due_us, found_us);
        FOR lane IN 0..9 LOOP
            CONTINUE WHEN p.lanes[lane + 1] = 0;
            SELECT i.expire_us INTO found_us FROM {schema}.queue_items i
            WHERE (i.spot, i.part, i.id) > (lane::smallint, p.part, p.heads[lane + 1])
                AND (i.spot, i.part) <= (lane::smallint, p.part)
            ORDER BY i.spot, i.part, i.id LIMIT 1;
            due_us := {schema}.queue_sooner(due_us, found_us);
        END LOOP;
    END IF;
    RETURN due_us;
END
$$;

-- Ready items past their time: first those that expire before one ahead of them, then along each lane.
CREATE FUNCTION {schema}.queue_lapse(INOUT p {schema}.queue_parts, now_us bigint, most bigint, OUT dying bigint) LANGUAGE plpgsql
AS $$
DECLARE
    ids text[] := ARRAY[]::text[];
    found text[];
    r record;
BEGIN
    FOR r IN
        SELECT i.id, i.spot FROM {schema}.queue_items i
        WHERE i.part = p.part AND i.is_early AND i.expire_us <= now_us AND i.id > p.heads[i.spot + 1]
        ORDER BY i.part, i.expire_us, i.id LIMIT most
    LOOP
        ids := ids || r.id;
        p.lanes[r.spot + 1] := p.lanes[r.spot + 1] - 1;
    END LOOP;
    FOR lane IN 0..9 LOOP
        CONTINUE WHEN p.lanes[lane + 1] = 0 OR cardinality(ids) >= most;
        SELECT array_agg(x.id ORDER BY x.id) FILTER (WHERE x.are_over) INTO found FROM (
            SELECT y.id, bool_and(y.is_over) OVER (ORDER BY y.id ROWS UNBOUNDED PRECEDING) AS are_over
            FROM (
                SELECT i.id, i.expire_us > 0 AND i.expire_us <= now_us AS is_over FROM {schema}.queue_items i
                WHERE (i.spot, i.part, i.id) > (lane::smallint, p.part, p.heads[lane + 1])
                    AND (i.spot, i.part) <= (lane::smallint, p.part)
                    AND NOT (i.is_early AND i.expire_us <= now_us)
                ORDER BY i.spot, i.part, i.id LIMIT least(most - cardinality(ids), p.lanes[lane + 1])
            ) y
        ) x;
        CONTINUE WHEN found IS NULL;
        ids := ids || found;
        p.lanes[lane + 1] := p.lanes[lane + 1] - cardinality(found);
        p.heads[lane + 1] := found[cardinality(found)];
    END LOOP;
    dying := cardinality(ids);
    p.ready := p.ready - dying;
    p := {schema}.queue_expire(p, ids, now_us);
END
$$;

CREATE FUNCTION {schema}.queue_sweep(
    moment bigint, queue_of text, numbers int[], expire bigint, most_attempts int, most bigint,
    OUT refused text, OUT is_woken boolean, OUT ready bigint, OUT dying bigint, OUT is_done boolean
) LANGUAGE plpgsql
AS $$
DECLARE
    p {schema}.queue_parts;
    now_us bigint;
    was_ready bigint;
    remaining bigint;
    batch bigint;
    ids text[];
    d record;
BEGIN
    is_woken := false;
    ready := 0;
    dying := 0;
    is_done := true;
    IF NOT {schema}.queue_seize(array_fill(queue_of, ARRAY[cardinality(numbers)]), numbers) THEN
        refused := 'gone';
        RETURN;
    END IF;
    now_us := {schema}.queue_now(moment);
    FOR p IN
        SELECT q.* FROM unnest(numbers) WITH ORDINALITY w (number, place)
        JOIN {schema}.queue_parts q ON q.queue = queue_of AND q.number = w.number ORDER BY w.place
    LOOP
        was_ready := p.ready;
        remaining := most - ready - dying;
        IF p.leased > 0 AND remaining > 0 THEN
            ids := ARRAY(
                SELECT i.id FROM (
                    SELECT l.*, sum(l.rest) OVER (ORDER BY l.until_us) - sum(l.rest) OVER (PARTITION BY l.until_us) AS before
                    FROM {schema}.queue_leases l WHERE l.part = p.part AND l.until_us <= now_us
                ) l
                CROSS JOIN LATERAL (
                    SELECT i.id FROM {schema}.queue_items i
                    WHERE (i.spot, i.part, i.id) >= (l.spot, p.part, l.first) ORDER BY i.spot, i.part, i.id LIMIT l.rest
                ) i
                WHERE l.before < remaining ORDER BY l.until_us, i.id LIMIT remaining
            );
            IF cardinality(ids) > 0 THEN
                p := {schema}.queue_let_go(p, {schema}.queue_held(p.part, ids, 0));
                SELECT * INTO d FROM {schema}.queue_back(p, ids, NULL, NULL, NULL, most_attempts, expire, now_us);
                p := d.p;
                ready := ready + d.ready;
                dying := dying + d.dying;
                remaining := remaining - cardinality(ids);
            END IF;
        END IF;
        WHILE p.scheduled > 0 AND remaining > 0 LOOP
            -- One that is given up on may let another go that is due at once: then one by one.
            batch := CASE WHEN p.behind > 0 THEN 1 ELSE remaining END;
            SELECT count(*) AS count, array_agg(x.id ORDER BY x.turn, x.id) FILTER (WHERE x.fate = 1) AS dead,
                array_agg(x.id ORDER BY x.turn, x.id) FILTER (WHERE x.fate = 2) AS kept,
                array_agg(x.id ORDER BY x.turn, x.id) FILTER (WHERE x.fate = 3) AS come,
                coalesce(sum(x.created_us) FILTER (WHERE x.fate = 1), 0) AS created_us
            INTO d
            FROM (
                SELECT i.id, i.turn, i.created_us, CASE
                    WHEN expire > 0 AND i.expire_us > 0 AND i.expire_us <= now_us THEN 1 WHEN i.enqueue_us > now_us THEN 2 ELSE 3
                    END AS fate
                FROM {schema}.queue_items i
                WHERE i.part = p.part AND i.spot = 10 AND i.spot IN (10, 12) AND i.turn <= now_us
                ORDER BY i.part, i.spot, i.turn, i.id LIMIT batch
            ) x;
            EXIT WHEN d.count = 0;
            remaining := remaining - d.count;
            p.scheduled := p.scheduled - coalesce(cardinality(d.dead), 0) - coalesce(cardinality(d.come), 0);
            IF d.dead IS NOT NULL THEN
                p.created_us := p.created_us + d.created_us;
                dying := dying + cardinality(d.dead);
                p := {schema}.queue_expire(p, d.dead, now_us);
            END IF;
            IF d.kept IS NOT NULL THEN
                UPDATE {schema}.queue_items i SET turn = i.enqueue_us WHERE i.part = p.part AND i.id = ANY (d.kept);
            END IF;
            IF d.come IS NOT NULL THEN
                ready := ready + cardinality(d.come);
                p := {schema}.queue_tail(p, d.come, NULL, NULL, NULL, false, now_us);
            END IF;
            EXIT WHEN d.count < batch;
        END LOOP;
        WHILE expire > 0 AND p.ready > 0 AND remaining > 0 LOOP
            SELECT * INTO d FROM {schema}.queue_lapse(p, now_us, remaining);
            p := d.p;
            dying := dying + d.dying;
            remaining := remaining - d.dying;
            -- Who stood behind an expired one may have expired meanwhile, too.
            EXIT WHEN d.dying = 0 OR p.behind = 0;
        END LOOP;
        DELETE FROM {schema}.queue_seen s WHERE s.part = p.part AND s.until_us <= now_us;
        p.due_us := {schema}.queue_next(p, expire);
        p.expires := expire > 0;
        PERFORM {schema}.queue_save(p);
        is_done := is_done AND remaining > 0;
        is_woken := is_woken OR was_ready = 0 AND p.ready > 0;
    END LOOP;
END
$$;

CREATE FUNCTION {schema}.queue_clear(
    moment bigint, queue_of text, numbers int[], are_ready boolean, are_leased boolean, spots smallint[],
    OUT refused text, OUT is_woken boolean, OUT cleared bigint
) LANGUAGE plpgsql
AS $$
DECLARE
    p {schema}.queue_parts;
    now_us bigint;
    was_ready bigint;
    ids text[];
BEGIN
    is_woken := false;
    cleared := 0;
    IF NOT {schema}.queue_seize(array_fill(queue_of, ARRAY[cardinality(numbers)]), numbers) THEN
        refused := 'gone';
        RETURN;
    END IF;
    now_us := {schema}.queue_now(moment);
    FOR p IN SELECT * FROM {schema}.queue_parts q WHERE q.queue = queue_of AND q.number = ANY (numbers) LOOP
        was_ready := p.ready;
        ids := ARRAY(
            SELECT i.id FROM {schema}.queue_items i
            WHERE i.part = p.part AND (i.spot = ANY (spots) OR i.spot < 10 AND (
                are_ready AND i.id > p.heads[i.spot + 1] OR are_leased AND i.id <= p.heads[i.spot + 1]
            ))
            ORDER BY i.part, i.id
        );
        CONTINUE WHEN cardinality(ids) = 0;
        cleared := cleared + cardinality(ids);
        p := {schema}.queue_erase(p, ids, now_us);
        PERFORM {schema}.queue_save(p);
        is_woken := is_woken OR was_ready = 0 AND p.ready > 0;
    END LOOP;
END
$$;

-- Put what stands for dying items elsewhere and delete them, as one.
CREATE FUNCTION {schema}.queue_move(
    moment bigint, queue_of text, sources int[], ids text[], to_queue text, numbers int[], expire bigint, dedupe bigint,
    is_ordered boolean, f {schema}.queue_fresh, OUT refused text, OUT is_woken boolean, OUT moved bigint
) LANGUAGE plpgsql
AS $$
DECLARE
    p {schema}.queue_parts;
    is_dying boolean[];
    put record;
BEGIN
    is_woken := false;
    moved := 0;
    IF NOT {schema}.queue_seize(
        array_fill(queue_of, ARRAY[cardinality(sources)]) || array_fill(to_queue, ARRAY[cardinality(numbers)]), sources || numbers
    ) THEN
        refused := CASE WHEN EXISTS (
            SELECT 1 FROM {schema}.queue_parts q WHERE q.queue = queue_of AND q.number = ANY (sources) AND q.is_gone
        ) THEN 'gone' ELSE 'to_gone' END;
        RETURN;
    END IF;
    is_dying := ARRAY(
        SELECT coalesce(i.spot = 12, false) FROM unnest(sources, ids) WITH ORDINALITY a (source, id, place)
        LEFT JOIN LATERAL (
            SELECT q.part FROM {schema}.queue_parts q WHERE q.queue = queue_of AND q.number = a.source LIMIT 1
        ) q ON true
        LEFT JOIN LATERAL (SELECT i.spot FROM {schema}.queue_items i WHERE i.part = q.part AND i.id = a.id LIMIT 1) i ON true
        ORDER BY a.place
    );
    SELECT * INTO put FROM {schema}.queue_put(moment, to_queue, numbers, expire, dedupe, is_ordered, f, is_dying);
    IF put.refused IS NOT NULL THEN
        refused := 'to_gone';
        RETURN;
    END IF;
    is_woken := put.is_woken;
    FOR p IN SELECT * FROM {schema}.queue_parts q WHERE q.queue = queue_of AND q.number = ANY (sources) LOOP
        p := {schema}.queue_erase(p, ARRAY(
            SELECT a.id FROM unnest(sources, ids, is_dying) a (source, id, is_dying) WHERE a.source = p.number AND a.is_dying
        ), {schema}.queue_now(moment));
        PERFORM {schema}.queue_save(p);
    END LOOP;
    moved := (SELECT count(*) FROM unnest(is_dying) d WHERE d);
END
$$;

CREATE FUNCTION {schema}.queue_remove(queue_of text, numbers int[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    parts int[];
BEGIN
    PERFORM {schema}.queue_seize(array_fill(queue_of, ARRAY[cardinality(numbers)]), numbers);
    parts := ARRAY(SELECT q.part FROM {schema}.queue_parts q WHERE q.queue = queue_of AND q.number = ANY (numbers));
    DELETE FROM {schema}.queue_items i WHERE i.part = ANY (parts);
    DELETE FROM {schema}.queue_leases l WHERE l.part = ANY (parts);
    DELETE FROM {schema}.queue_seen s WHERE s.part = ANY (parts);
    DELETE FROM {schema}.queue_buckets b WHERE b.queue = queue_of;
    UPDATE {schema}.queue_parts q SET is_gone = true, ready = 0, leased = 0, scheduled = 0, behind = 0, dying = 0, due_us = 0
    WHERE q.part = ANY (parts);
END
$$;

-- The planner knows little of tables that are always changing: it is told to walk along the indexes.
DO $$
DECLARE
    verb regprocedure;
BEGIN
    FOR verb IN
        SELECT p.oid FROM pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname IN (
            'queue_put', 'queue_lease', 'queue_extend', 'queue_complete', 'queue_retry', 'queue_delete', 'queue_sweep',
            'queue_clear', 'queue_move', 'queue_remove'
        )
    LOOP
        EXECUTE format(
            'ALTER FUNCTION %s SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off'
            ' SET enable_mergejoin = off SET enable_material = off SET enable_sort = off'
            ' SET plan_cache_mode = force_generic_plan SET jit = off',
            verb
        );
    END LOOP;
END
$$;
