-- The catalogue: queues as they were defined, each as JSON.
CREATE TABLE {schema}.queue_catalogue (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    version bigint NOT NULL
);
INSERT INTO {schema}.queue_catalogue (version) VALUES (0);
CREATE TABLE {schema}.queues (
    id   text COLLATE "C" PRIMARY KEY,
    data bytea NOT NULL
);

-- A partition of a queue, with all that must be known of it at a glance. Whoever changes anything in it holds the lock on this
-- row, so verbs on a partition come one after another; who needs several locks them in the order of `part`.
CREATE TABLE {schema}.queue_parts (
    part       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue      text COLLATE "C" NOT NULL,
    number     int NOT NULL,
    is_gone    boolean NOT NULL DEFAULT false,
    last       text COLLATE "C" NOT NULL DEFAULT '',    -- the highest position so far
    second     bigint NOT NULL DEFAULT -1,              -- in which its run was begun
    ready      bigint NOT NULL DEFAULT 0,
    leased     bigint NOT NULL DEFAULT 0,
    scheduled  bigint NOT NULL DEFAULT 0,
    behind     bigint NOT NULL DEFAULT 0,
    dying      bigint NOT NULL DEFAULT 0,
    deaths     bigint NOT NULL DEFAULT 0,               -- how many ever died
    lanes      bigint[] NOT NULL DEFAULT '{0,0,0,0,0,0,0,0,0,0}',        -- how many are ready in each
    heads      text[] COLLATE "C" NOT NULL DEFAULT '{"","","","","","","","","",""}',
    created_us numeric NOT NULL DEFAULT 0,              -- summed over all but the scheduled
    leased_us  numeric NOT NULL DEFAULT 0,              -- when the leased were leased, summed
    latest_us  bigint NOT NULL DEFAULT 0,               -- when the last of those that ever lined up expires
    due_us     bigint NOT NULL DEFAULT 0,               -- nothing is due before; 0: nothing is due at all
    expires    boolean NOT NULL DEFAULT false,          -- do items expire here? As who put or swept last said
    UNIQUE (queue, number)
) WITH (fillfactor = 20);
CREATE INDEX queue_parts_due ON {schema}.queue_parts (due_us) WHERE due_us > 0;

-- `spot`: 0 to 9 in line, where 0 is the lane of the highest priority; 10 scheduled, 11 behind another, 12 dying. Of those in
-- line, the ones up to the head of their lane are leased, so that a lease changes no item.
CREATE TABLE {schema}.queue_items (
    part       int NOT NULL,
    spot       smallint NOT NULL,
    priority   smallint NOT NULL,
    attempts   int NOT NULL,                            -- without the present lease
    created_us bigint NOT NULL,
    updated_us bigint NOT NULL,
    enqueue_us bigint NOT NULL,
    expire_us  bigint NOT NULL,
    turn       bigint NOT NULL,                         -- of the scheduled: when due; of the dying: which it is
    is_early   boolean NOT NULL,                        -- in line, and expires before one that stands ahead of it
    id         text COLLATE "C" NOT NULL,
    message_id text NOT NULL,
    source_id  text COLLATE "C" NOT NULL,
    reference  text NOT NULL,
    encoding   text NOT NULL,
    kind       text NOT NULL,
    key        text NOT NULL,
    line       text COLLATE "C",                        -- the key, where items of a key come one after another
    why        text NOT NULL,
    payload    bytea NOT NULL,
    story      bytea NOT NULL,
    failure    bytea NOT NULL DEFAULT '',
    PRIMARY KEY (part, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000);
SELECT {schema}.compress('queue_items', 'payload', 'story', 'failure');
-- The spot comes first, so that nobody walks along a whole partition to find one item by its id, or the other way round.
CREATE INDEX queue_items_spot ON {schema}.queue_items (spot, part, id);
CREATE INDEX queue_items_turn ON {schema}.queue_items (part, spot, turn, id) WHERE spot IN (10, 12);
CREATE INDEX queue_items_early ON {schema}.queue_items (part, expire_us, id) WHERE is_early;
CREATE UNIQUE INDEX queue_items_source ON {schema}.queue_items (part, source_id) WHERE source_id <> '';
CREATE INDEX queue_items_line ON {schema}.queue_items (part, line, id) WHERE line IS NOT NULL AND spot < 12;

-- Leases: each on what is left in line from the first to the last. They never overlap.
CREATE TABLE {schema}.queue_leases (
    part      int NOT NULL,
    spot      smallint NOT NULL,
    first     text COLLATE "C" NOT NULL,
    last      text COLLATE "C" NOT NULL,
    until_us  bigint NOT NULL,
    leased_us bigint NOT NULL,
    rest      int NOT NULL,                             -- how many are left
    PRIMARY KEY (part, spot, first)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX queue_leases_until ON {schema}.queue_leases (part, until_us);

-- References of what was put, and until when they are remembered.
CREATE TABLE {schema}.queue_seen (
    part      int NOT NULL,
    reference text COLLATE "C" NOT NULL,
    until_us  bigint NOT NULL,
    PRIMARY KEY (part, reference)
);
CREATE INDEX queue_seen_until ON {schema}.queue_seen (part, until_us);

-- Buckets of tokens, where leases have a rate: see redrive.model.bucket.
CREATE TABLE {schema}.queue_buckets (
    queue  text COLLATE "C" PRIMARY KEY,
    tokens double precision NOT NULL,
    at_us  bigint NOT NULL
) WITH (fillfactor = 20);

-- What is put, by columns; a column that has but the ordinary value may be empty.
CREATE TYPE {schema}.queue_fresh AS (
    payload bytea[], reference text[], encoding text[], kind text[], enqueue_us bigint[], key text[], priority smallint[],
    story bytea[], message_id text[], source_id text[], attempts int[], created_us bigint[], expire_us bigint[], number int[]
);

-- Leases on some items: how many of each lease. `bad`: the first of the items that nobody holds.
CREATE TYPE {schema}.queue_hold AS (
    bad bigint, spots smallint[], firsts text[], counts bigint[], rests int[], total bigint, leased_us numeric
);

CREATE FUNCTION {schema}.queue_now(moment bigint) RETURNS bigint LANGUAGE sql
AS $$ SELECT coalesce(moment, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) $$;

CREATE FUNCTION {schema}.queue_sooner(one bigint, other bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT coalesce(least(nullif(one, 0), nullif(other, 0)), 0) $$;

-- Position ids as redrive.model.ksuid makes them: a new random one each second, counted on from.
CREATE FUNCTION {schema}.queue_begun(second bigint) RETURNS text LANGUAGE plpgsql
AS $$
DECLARE
    digits CONSTANT text := '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
    one text := gen_random_uuid();
    other text := gen_random_uuid();
    -- The highest bit stays free, so that counting on from it never runs into the next second.
    number numeric := ((second::numeric * 4294967296 + (('x' || left(one, 8))::bit(32)::bigint >> 1)) * 4294967296
        + ('x' || right(one, 8))::bit(32)::bigint) * 18446744073709551616
        + ('x' || left(other, 8))::bit(32)::bigint::numeric * 4294967296 + ('x' || right(other, 8))::bit(32)::bigint;
    encoded text := '';
BEGIN
    FOR place IN 1..27 LOOP
        encoded := substr(digits, mod(number, 62)::int + 1, 1) || encoded;
        number := div(number, 62);
    END LOOP;
    RETURN encoded;
END
$$;

CREATE FUNCTION {schema}.queue_positions(last text, begun bigint, count int, second bigint) RETURNS text[] LANGUAGE plpgsql
AS $$
DECLARE
    digits CONSTANT text := '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
    bytes CONSTANT bytea := digits::bytea;
    latest text := CASE WHEN second > begun THEN {schema}.queue_begun(second) ELSE last END;
    run text := left(latest, 25);
    before int := strpos(digits, substr(latest, 26, 1)) * 62 + strpos(digits, substr(latest, 27, 1)) - 63;
    ids text[] := ARRAY[]::text[];
    digit int;
BEGIN
    LOOP
        ids := ids || ARRAY(
            SELECT run || chr(get_byte(bytes, number / 62)) || chr(get_byte(bytes, number % 62))
            FROM generate_series(before + 1, least(before + count - cardinality(ids), 3843)) number
        );
        EXIT WHEN cardinality(ids) >= count;
        before := -1;
        FOR place IN REVERSE 25..1 LOOP
            digit := strpos(digits, substr(run, place, 1)) % 62;
            run := overlay(run PLACING substr(digits, digit + 1, 1) FROM place FOR 1);
            EXIT WHEN digit > 0;
        END LOOP;
    END LOOP;
    RETURN ids;
END
$$;

-- Lock partitions, in the order that all keep to, and make those that are not there; is none of them gone?
CREATE FUNCTION {schema}.queue_seize(wanted_queues text[], wanted_numbers int[]) RETURNS boolean LANGUAGE plpgsql
AS $$
DECLARE
    one int;
    is_gone boolean;
    are_all_there boolean;
    is_any_gone boolean;
BEGIN
    LOOP
        are_all_there := true;
        is_any_gone := false;
        FOR one IN
            SELECT DISTINCT p.part FROM unnest(wanted_queues, wanted_numbers) w (queue, number)
            LEFT JOIN LATERAL (
                SELECT p.part FROM {schema}.queue_parts p WHERE p.queue = w.queue AND p.number = w.number LIMIT 1
            ) p ON true
            ORDER BY p.part
        LOOP
            IF one IS NULL THEN
                are_all_there := false;
            ELSE
                SELECT p.is_gone INTO is_gone FROM {schema}.queue_parts p WHERE p.part = one FOR UPDATE;
                is_any_gone := is_any_gone OR is_gone;
            END IF;
        END LOOP;
        IF are_all_there THEN
            RETURN NOT is_any_gone;
        END IF;
        INSERT INTO {schema}.queue_parts (queue, number)
        SELECT DISTINCT w.queue, w.number FROM unnest(wanted_queues, wanted_numbers) w (queue, number) ORDER BY 1, 2
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;

CREATE FUNCTION {schema}.queue_save(p {schema}.queue_parts) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE {schema}.queue_parts SET
        last = p.last, second = p.second, ready = p.ready, leased = p.leased, scheduled = p.scheduled, behind = p.behind,
        dying = p.dying, deaths = p.deaths, lanes = p.lanes, heads = p.heads, created_us = p.created_us, leased_us = p.leased_us,
        latest_us = CASE WHEN p.ready + p.leased + p.scheduled + p.behind + p.dying > 0 THEN p.latest_us ELSE 0 END,
        due_us = p.due_us, expires = p.expires
    WHERE part = p.part;
END
$$;

-- Count what has come to a spot. `was_counted`: it was in the partition before, and not scheduled.
CREATE FUNCTION {schema}.queue_arrived(
    p {schema}.queue_parts, spot int, count bigint, created_us numeric, latest_us bigint, soonest_us bigint, was_counted boolean
) RETURNS {schema}.queue_parts LANGUAGE plpgsql
AS $$
BEGIN
    IF spot = 10 THEN
        p.scheduled := p.scheduled + count;
        p.created_us := p.created_us - CASE WHEN was_counted THEN created_us ELSE 0 END;
        p.due_us := {schema}.queue_sooner(p.due_us, soonest_us);
        RETURN p;
    END IF;
    p.created_us := p.created_us + CASE WHEN was_counted THEN 0 ELSE created_us END;
    IF spot = 11 THEN
        p.behind := p.behind + count;
        RETURN p;
    END IF;
    p.ready := p.ready + count;
    p.lanes[spot + 1] := p.lanes[spot + 1] + count;
    p.latest_us := greatest(p.latest_us, latest_us);
    p.due_us := {schema}.queue_sooner(p.due_us, soonest_us);
    RETURN p;
END
$$;
