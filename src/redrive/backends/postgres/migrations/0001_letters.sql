-- Instants are microseconds since 1970. `data` is the whole letter in its stored form; the columns are what is asked for.
-- Texts compare byte by byte, as Python does; NUL, which PostgreSQL's texts cannot hold, is escaped.
CREATE TABLE {schema}.letters (
    id               uuid PRIMARY KEY,
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
    words            text COLLATE "C" NOT NULL, -- of the failure's type and message, a space around each
    lane             bigint NOT NULL, -- namespace and source as one number
    priority         bigint NOT NULL,
    attempts         bigint NOT NULL,
    dead_lettered_at bigint NOT NULL,
    updated_at       bigint NOT NULL,
    next_retry_at    bigint,
    expires_at       bigint,
    data             bytea NOT NULL,
    version          bigint NOT NULL DEFAULT 1 -- counts every change, so that what was read is known to be the latest
);

CREATE INDEX letters_by_age ON {schema}.letters (dead_lettered_at, id);
CREATE INDEX letters_by_status ON {schema}.letters (status, dead_lettered_at, id);
-- The beginning of a fingerprint is enough to find it, and an index takes no text of any length.
CREATE INDEX letters_by_group ON {schema}.letters (left(fingerprint, 64), dead_lettered_at);

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
) WITH (fillfactor = 70);

CREATE INDEX claims_due ON {schema}.claims (lane, priority DESC, at, id) WHERE is_due;

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
                SELECT due.place, l.id, l.data, l.version FROM due JOIN {schema}.letters l ON l.id = due.id
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
            SELECT due.place, l.id, l.data, l.version FROM due JOIN {schema}.letters l ON l.id = due.id
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

-- End claims of letters that are all still as they were when they were claimed, or of none: then the answer is false. The
-- letters are written first, which locks them; only after that is it certain whose their leases are.
CREATE FUNCTION {schema}.settle(
    moment bigint, ids uuid[], tokens bigint[], versions bigint[], statuses text[], categories text[], errors text[],
    error_names text[], fingerprints text[], terms text[], tries bigint[], updates bigint[], retries bigint[], contents bytea[]
)
    RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
DECLARE
    present bigint := coalesce(moment, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    written bigint;
    freed bigint;
    planned bigint;
BEGIN
    UPDATE {schema}.letters l SET version = l.version + 1, status = a.status, category = a.category, error = a.error,
        error_name = a.error_name, fingerprint = a.fingerprint, words = a.words, attempts = a.attempts,
        updated_at = a.updated_at, next_retry_at = a.next_retry_at, data = a.data
    FROM unnest(ids, versions, statuses, categories, errors, error_names, fingerprints, terms, tries, updates, retries, contents)
        AS a (id, version, status, category, error, error_name, fingerprint, words, attempts, updated_at, next_retry_at, data)
    WHERE l.id = a.id AND l.version = a.version;
    GET DIAGNOSTICS written = ROW_COUNT;
    DELETE FROM {schema}.claims c USING unnest(ids, tokens, statuses, retries) AS a (id, token, status, next_retry_at)
    WHERE c.id = a.id AND c.token = a.token AND c.until > present AND (a.status <> 'pending' OR a.next_retry_at IS NULL);
    GET DIAGNOSTICS freed = ROW_COUNT;
    UPDATE {schema}.claims c SET at = a.next_retry_at, is_due = true, token = NULL, owner = NULL, until = NULL
    FROM unnest(ids, tokens, statuses, retries) AS a (id, token, status, next_retry_at)
    WHERE c.id = a.id AND c.token = a.token AND c.until > present AND a.status = 'pending' AND a.next_retry_at IS NOT NULL;
    GET DIAGNOSTICS planned = ROW_COUNT;
    IF written < cardinality(ids) OR freed + planned < cardinality(ids) THEN
        RAISE SQLSTATE 'RD001';
    END IF;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'RD001' THEN
    RETURN false; -- and nothing is changed: leaving the block this way undoes it
END
$$;
