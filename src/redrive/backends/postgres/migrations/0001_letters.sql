-- Large values of these columns are compressed by lz4 where the server has it (from 14 on, if it was built so): what PostgreSQL takes
-- else needs as long for a letter as everything else about holding it.
CREATE FUNCTION {schema}.compress(relation text, VARIADIC columns text[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    one text;
BEGIN
    IF EXISTS (SELECT 1 FROM pg_settings s WHERE s.name = 'default_toast_compression' AND 'lz4' = ANY (s.enumvals)) THEN
        FOREACH one IN ARRAY columns LOOP
            EXECUTE format('ALTER TABLE {schema}.%I ALTER COLUMN %I SET COMPRESSION lz4', relation, one);
        END LOOP;
    END IF;
END
$$;

-- Instants are microseconds since 1970. `data` is the whole letter in its stored form; the columns are what is asked for.
-- Texts compare byte by byte, as Python does; NUL, which PostgreSQL's texts cannot hold, is escaped.
CREATE TABLE {schema}.letters (
    {id},
    namespace        text COLLATE "C" NOT NULL,
    source           text COLLATE "C" NOT NULL,
    source_id        text COLLATE "C" NOT NULL,
    key              bytea,
    kind             text COLLATE "C",
    policy           text COLLATE "C" NOT NULL,
    status           text COLLATE "C" NOT NULL,
    generation       bigint NOT NULL,
    category         text COLLATE "C" NOT NULL,
    error            text COLLATE "C" NOT NULL,
    error_name       text COLLATE "C" NOT NULL,
    fingerprint      text COLLATE "C" NOT NULL,
    tags             jsonb,
    words            text COLLATE "C" NOT NULL, -- of the failure's type and message, a space around each; of a long one its length and digest
    message          text COLLATE "C", -- of the failure, for who lists groups: to read it from `data` takes longer than all the rest; NULL: it is long
    lane             bigint NOT NULL, -- namespace and source as one number
    priority         bigint NOT NULL,
    attempts         bigint NOT NULL,
    dead_lettered_at bigint NOT NULL,
    updated_at       bigint NOT NULL,
    next_retry_at    bigint,
    expires_at       bigint,
    data             bytea NOT NULL,
    version          bigint NOT NULL DEFAULT 1 -- counts every change, so that what was read is known to be the latest
) {partitions};
SELECT {schema}.compress('letters', 'data', 'words');

CREATE INDEX letters_by_age ON {schema}.letters (dead_lettered_at, id);
CREATE INDEX letters_by_change ON {schema}.letters (updated_at, id);
CREATE INDEX letters_by_status ON {schema}.letters (status, dead_lettered_at, id);
-- The beginning of a text is enough to find it, and an index takes no text of any length.
CREATE INDEX letters_by_group ON {schema}.letters (left(fingerprint, 64), dead_lettered_at);
CREATE INDEX letters_by_source ON {schema}.letters (left(source, 64), dead_lettered_at);
CREATE INDEX letters_by_error ON {schema}.letters (left(error_name, 64), dead_lettered_at);
-- What is written waits in a short list, and whoever makes that list too long sorts it in: a short one, so that nobody waits long.
CREATE INDEX letters_by_word ON {schema}.letters USING gin (string_to_array(btrim(words), ' ')) WITH (gin_pending_list_limit = 256);

-- A row for each letter that waits for a retry or is leased; narrow, so that claiming rewrites little.
-- `at` is when it may be claimed as due: its retry's time, or the end of the lease on it if that is later.
-- Whoever changes a row here holds the lock on the letter's row.
CREATE TABLE {schema}.claims (
    id       uuid PRIMARY KEY,
    lane     bigint NOT NULL,
    priority bigint NOT NULL,
    at       bigint NOT NULL,
    is_due   boolean NOT NULL,
    token    bigint,
    owner    text COLLATE "C",
    until    bigint
) WITH (fillfactor = 70, vacuum_truncate = off); -- to cut off its end, autovacuum would hold up all who write

CREATE INDEX claims_due ON {schema}.claims (lane, priority DESC, at, id) WHERE is_due;
CREATE INDEX claims_held ON {schema}.claims (until) WHERE until IS NOT NULL;

-- Letters under a live lease. The planner takes an unknown instant for one that a third of all leases outlive; they are few.
-- They are asked for by one process, while others may go through letters beside it.
CREATE FUNCTION {schema}.held(moment bigint) RETURNS SETOF uuid LANGUAGE plpgsql STABLE PARALLEL RESTRICTED ROWS 20
AS $$
BEGIN
    RETURN QUERY SELECT c.id FROM {schema}.claims c WHERE c.until > moment;
END
$$;

-- Fencing tokens: each higher than any before.
CREATE SEQUENCE {schema}.fence;

-- Lease what is due in a lane: level by level, and along the index within each, so that nothing is sorted however much is due
-- or waits for its time. The planner is told so, for it knows little of a table that is always changing. What is locked by
-- another is passed over: it is changing right now.
CREATE FUNCTION {schema}.claim_due(moment bigint, lease bigint, holder text, road bigint, most bigint)
    RETURNS TABLE (data bytea, version bigint, token bigint, until bigint, clock bigint)
    LANGUAGE plpgsql
    SET enable_sort = off
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    present bigint := coalesce(moment, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    level bigint;
    got bigint;
BEGIN
    SELECT c.priority INTO level FROM {schema}.claims c WHERE c.is_due AND c.lane = road ORDER BY c.priority DESC LIMIT 1;
    WHILE level IS NOT NULL AND most > 0 LOOP
        RETURN QUERY
            WITH due AS (
                SELECT c.id, row_number() OVER () AS place FROM (
                    SELECT c.id FROM {schema}.claims c
                    WHERE c.is_due AND c.lane = road AND c.priority = level AND c.at <= present
                    ORDER BY c.at, c.id LIMIT most FOR UPDATE OF c SKIP LOCKED
                ) c
            ),
            chosen AS (
                SELECT due.place, l.id, l.data, l.version FROM due {letter_of due}
                FOR UPDATE OF l SKIP LOCKED
            ),
            taken AS (
                UPDATE {schema}.claims c SET token = nextval('{schema}.fence'), owner = holder, until = present + lease,
                    at = present + lease
                FROM chosen WHERE c.id = chosen.id RETURNING c.id, c.token, c.until
            )
            SELECT chosen.data, chosen.version, taken.token, taken.until, present
            FROM chosen JOIN taken ON taken.id = chosen.id ORDER BY chosen.place;
        GET DIAGNOSTICS got = ROW_COUNT;
        most := most - got;
        SELECT max(c.priority) INTO level FROM {schema}.claims c WHERE c.is_due AND c.lane = road AND c.priority < level;
    END LOOP;
END
$$;

-- Lease what could have been claimed the longest in a lane, whatever its priority: of the first of each level.
CREATE FUNCTION {schema}.claim_longest(moment bigint, lease bigint, holder text, road bigint, most bigint)
    RETURNS TABLE (data bytea, version bigint, token bigint, until bigint, clock bigint)
    LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    present bigint := coalesce(moment, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
BEGIN
    RETURN QUERY
        WITH RECURSIVE level (priority) AS (
            (SELECT c.priority FROM {schema}.claims c WHERE c.is_due AND c.lane = road ORDER BY c.priority DESC LIMIT 1)
            UNION ALL
            SELECT (
                SELECT c.priority FROM {schema}.claims c WHERE c.is_due AND c.lane = road AND c.priority < level.priority
                ORDER BY c.priority DESC LIMIT 1
            ) FROM level WHERE level.priority IS NOT NULL
        ),
        heads AS (
            SELECT c.id, c.at FROM level CROSS JOIN LATERAL (
                SELECT c.id, c.at FROM {schema}.claims c
                WHERE c.is_due AND c.lane = road AND c.priority = level.priority AND c.at <= present
                ORDER BY c.at, c.id LIMIT most FOR UPDATE OF c SKIP LOCKED
            ) c
        ),
        due AS (SELECT h.id, row_number() OVER (ORDER BY h.at, h.id) AS place FROM heads h),
        chosen AS (
            SELECT due.place, l.id, l.data, l.version FROM due {letter_of due}
            WHERE due.place <= most FOR UPDATE OF l SKIP LOCKED
        ),
        taken AS (
            UPDATE {schema}.claims c SET token = nextval('{schema}.fence'), owner = holder, until = present + lease,
                at = present + lease
            FROM chosen WHERE c.id = chosen.id RETURNING c.id, c.token, c.until
        )
        SELECT chosen.data, chosen.version, taken.token, taken.until, present
        FROM chosen JOIN taken ON taken.id = chosen.id ORDER BY chosen.place;
END
$$;
