-- Counts are kept in two steps: whoever changes letters notes by how much, in the same transaction, and the notes are summed up
-- later. So nobody waits for another who counts the same, and whoever asks adds what is not summed up yet. The table is emptied all the time;
-- to cut it off at its end, autovacuum would hold up all who write.
CREATE TABLE {schema}.changes (
    seq         bigint GENERATED ALWAYS AS IDENTITY, -- that a letter has left comes behind that it came
    namespace   text COLLATE "C" NOT NULL,
    source      text COLLATE "C" NOT NULL,
    category    text COLLATE "C" NOT NULL,
    error       text COLLATE "C" NOT NULL,
    policy      text COLLATE "C" NOT NULL,
    status      text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    hour        bigint NOT NULL,
    count       bigint NOT NULL,
    first       bigint, -- the oldest and the newest of those that came
    last        bigint,
    is_shaken   boolean NOT NULL -- some have left the group, or are older or newer than before
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_threshold = 1000000,
    vacuum_truncate = off);

-- What was noted and is not summed up yet, for whoever reads. After many letters at once the table is mostly empty pages, and stays as long as it
-- was: by this index they are passed over.
CREATE INDEX changes_by_number ON {schema}.changes (seq);
CREATE VIEW {schema}.noted AS SELECT * FROM {schema}.changes WHERE seq > 0;

-- By namespace, one facet and status, as `redrive.model.census.Cell`. Texts are of any length: the key is their digest.
CREATE TABLE {schema}.counts (
    key       bytea PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    facet     text COLLATE "C" NOT NULL,
    value     text COLLATE "C" NOT NULL,
    status    text COLLATE "C" NOT NULL,
    count     bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX counts_by_facet ON {schema}.counts (facet, left(value, 64));

-- A group in each namespace that it lies in, and once over all of them: there `place` is empty and there is no namespace.
CREATE TABLE {schema}.groups (
    key         bytea NOT NULL,
    place       bytea NOT NULL,
    namespace   text COLLATE "C",
    fingerprint text COLLATE "C" NOT NULL,
    count       bigint NOT NULL,
    pending     bigint NOT NULL,
    redriven    bigint NOT NULL,
    exhausted   bigint NOT NULL,
    quarantined bigint NOT NULL,
    completed   bigint NOT NULL,
    archived    bigint NOT NULL,
    discarded   bigint NOT NULL,
    first_seen  bigint,
    last_seen   bigint,
    PRIMARY KEY (key, place)
) WITH (fillfactor = 70);

CREATE INDEX groups_by_last_seen ON {schema}.groups (place, last_seen);
CREATE INDEX groups_by_count ON {schema}.groups (place, count);
CREATE INDEX groups_by_name ON {schema}.groups (place, left(fingerprint, 64));

CREATE TABLE {schema}.group_hours (
    key   bytea NOT NULL,
    place bytea NOT NULL,
    hour  bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (key, place, hour) INCLUDE (count)
) WITH (fillfactor = 70, autovacuum_vacuum_cost_delay = 10);

CREATE INDEX group_hours_by_hour ON {schema}.group_hours (place, hour) INCLUDE (key, count);

-- The clock hour that an instant lies in, counted from 1970. The great number keeps the division from rounding up before that.
CREATE FUNCTION {schema}.hour_of(at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT (at + 3600000000000000000) / 3600000000 - 1000000000 $$;

CREATE FUNCTION {schema}.key_of(name text) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT substring(sha256(convert_to(name, 'UTF8')) FOR 16) $$;

-- When a group was first and last seen, in a namespace or in all (NULL). The planner is told to take the first along the index: it
-- believes that few letters are of one group, and would rather sort them all.
CREATE FUNCTION {schema}.first_seen(group_name text, space text) RETURNS bigint LANGUAGE plpgsql STABLE
    SET enable_sort = off
    SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN (
        SELECT l.dead_lettered_at FROM {schema}.letters l
        WHERE left(l.fingerprint, 64) = left(group_name, 64) AND l.fingerprint = group_name AND (space IS NULL OR l.namespace = space)
        ORDER BY l.dead_lettered_at LIMIT 1
    );
END
$$;

CREATE FUNCTION {schema}.last_seen(group_name text, space text) RETURNS bigint LANGUAGE plpgsql STABLE
    SET enable_sort = off
    SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN (
        SELECT l.dead_lettered_at FROM {schema}.letters l
        WHERE left(l.fingerprint, 64) = left(group_name, 64) AND l.fingerprint = group_name AND (space IS NULL OR l.namespace = space)
        ORDER BY l.dead_lettered_at DESC LIMIT 1
    );
END
$$;

-- Sum up so many of the notes, unless another is at it; answers how many. Counts that come to nothing are removed, without being written once more.
-- Nobody else writes counts, so that each is looked up once, by an index, and then written where it was found. The planner is told so, for it
-- knows nothing of how many notes there are, and would rather go through all hours of all groups.
CREATE FUNCTION {schema}.fold(most bigint) RETURNS bigint LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
DECLARE
    taken bigint;
BEGIN
    IF most <= 0 OR NOT pg_try_advisory_xact_lock(1919185510, hashtext('{schema}')) THEN
        RETURN 0;
    END IF;
    WITH noted AS (
        DELETE FROM {schema}.changes WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.changes WHERE seq > 0 ORDER BY seq LIMIT most)) RETURNING *
    ),
    cells AS (
        SELECT d.key, d.namespace, d.facet, d.value, d.status, c.ctid AS at, coalesce(c.count, 0) + d.count AS count
        FROM (
            SELECT {schema}.key_of(ARRAY[n.namespace, f.facet, f.value, n.status]::text) AS key, n.namespace, f.facet, f.value, n.status,
                sum(n.count)::bigint AS count
            FROM noted n CROSS JOIN LATERAL (
                VALUES ('all', ''), ('source', n.source), ('category', n.category), ('error', n.error), ('policy', n.policy),
                    ('hour', lpad((n.hour + 1000000000)::text, 10, '0'))
            ) AS f (facet, value)
            GROUP BY n.namespace, f.facet, f.value, n.status HAVING sum(n.count) <> 0
        ) d LEFT JOIN {schema}.counts c ON c.key = d.key
    ),
    no_cells AS (DELETE FROM {schema}.counts c USING cells d WHERE c.ctid = d.at AND d.count = 0),
    known_cells AS (UPDATE {schema}.counts c SET count = d.count FROM cells d WHERE c.ctid = d.at AND d.count <> 0),
    new_cells AS (
        INSERT INTO {schema}.counts (key, namespace, facet, value, status, count)
        SELECT key, namespace, facet, value, status, count FROM cells WHERE at IS NULL
    ),
    placed AS (
        SELECT {schema}.key_of(fingerprint) AS key, CASE WHEN namespace IS NULL THEN '' ELSE {schema}.key_of(namespace) END AS place, k.*
        FROM (
            SELECT p.namespace, n.fingerprint, n.status, n.hour, sum(n.count)::bigint AS count, min(n.first) AS first, max(n.last) AS last,
                bool_or(n.is_shaken) AS is_shaken
            FROM noted n CROSS JOIN LATERAL (VALUES (NULL), (n.namespace)) AS p (namespace)
            GROUP BY p.namespace, n.fingerprint, n.status, n.hour
        ) k
    ),
    summed AS (
        SELECT d.key, d.place, d.namespace, d.fingerprint, g.ctid AS at,
            coalesce(g.count, 0) + d.count AS count, coalesce(g.pending, 0) + d.pending AS pending,
            coalesce(g.redriven, 0) + d.redriven AS redriven, coalesce(g.exhausted, 0) + d.exhausted AS exhausted,
            coalesce(g.quarantined, 0) + d.quarantined AS quarantined, coalesce(g.completed, 0) + d.completed AS completed,
            coalesce(g.archived, 0) + d.archived AS archived, coalesce(g.discarded, 0) + d.discarded AS discarded,
            least(g.first_seen, d.first) AS first_known, greatest(g.last_seen, d.last) AS last_known, d.is_shaken
        FROM (
            SELECT key, place, namespace, fingerprint, sum(count)::bigint AS count,
                coalesce(sum(count) FILTER (WHERE status = 'pending'), 0)::bigint AS pending,
                coalesce(sum(count) FILTER (WHERE status = 'redriven'), 0)::bigint AS redriven,
                coalesce(sum(count) FILTER (WHERE status = 'exhausted'), 0)::bigint AS exhausted,
                coalesce(sum(count) FILTER (WHERE status = 'quarantined'), 0)::bigint AS quarantined,
                coalesce(sum(count) FILTER (WHERE status = 'completed'), 0)::bigint AS completed,
                coalesce(sum(count) FILTER (WHERE status = 'archived'), 0)::bigint AS archived,
                coalesce(sum(count) FILTER (WHERE status = 'discarded'), 0)::bigint AS discarded,
                min(first) AS first, max(last) AS last, bool_or(is_shaken) AS is_shaken
            FROM placed GROUP BY key, place, namespace, fingerprint
        ) d LEFT JOIN {schema}.groups g ON (g.key, g.place) = (d.key, d.place)
    ),
    judged AS (
        SELECT *, (count, pending, redriven, exhausted, quarantined, completed, archived, discarded) = (0, 0, 0, 0, 0, 0, 0, 0) AS is_empty
        FROM summed
    ),
    -- Of a group that letters have left, the first and the last are looked up, if any is left; of all others it is known.
    grouped AS (
        SELECT *,
            CASE WHEN is_shaken AND NOT is_empty THEN {schema}.first_seen(fingerprint, namespace) ELSE first_known END AS first_seen,
            CASE WHEN is_shaken AND NOT is_empty THEN {schema}.last_seen(fingerprint, namespace) ELSE last_known END AS last_seen
        FROM judged
    ),
    no_groups AS (DELETE FROM {schema}.groups g USING grouped d WHERE g.ctid = d.at AND d.is_empty),
    known_groups AS (
        UPDATE {schema}.groups g SET count = d.count, pending = d.pending, redriven = d.redriven, exhausted = d.exhausted,
            quarantined = d.quarantined, completed = d.completed, archived = d.archived, discarded = d.discarded,
            first_seen = d.first_seen, last_seen = d.last_seen
        FROM grouped d WHERE g.ctid = d.at AND NOT d.is_empty
    ),
    new_groups AS (
        INSERT INTO {schema}.groups (key, place, namespace, fingerprint, count, pending, redriven, exhausted, quarantined,
            completed, archived, discarded, first_seen, last_seen)
        SELECT key, place, namespace, fingerprint, count, pending, redriven, exhausted, quarantined, completed, archived, discarded,
            first_seen, last_seen
        FROM grouped WHERE at IS NULL AND NOT is_empty
    ),
    timed AS (
        SELECT d.key, d.place, d.hour, h.ctid AS at, coalesce(h.count, 0) + d.count AS count
        FROM (SELECT key, place, hour, sum(count)::bigint AS count FROM placed GROUP BY key, place, hour HAVING sum(count) <> 0) d
        LEFT JOIN {schema}.group_hours h ON (h.key, h.place, h.hour) = (d.key, d.place, d.hour)
    ),
    no_hours AS (DELETE FROM {schema}.group_hours h USING timed d WHERE h.ctid = d.at AND d.count = 0),
    known_hours AS (UPDATE {schema}.group_hours h SET count = d.count FROM timed d WHERE h.ctid = d.at AND d.count <> 0),
    new_hours AS (INSERT INTO {schema}.group_hours (key, place, hour, count) SELECT key, place, hour, count FROM timed WHERE at IS NULL)
    SELECT count(*) INTO taken FROM noted;
    RETURN taken;
END
$$;

-- End claims of letters that are all still as they were when they were claimed, or of none: then the answer is false. The
-- letters are written first, which locks them; only after that is it certain whose their leases are. What they were before
-- is read by the same statement: had they been changed since, their version would not fit.
CREATE FUNCTION {schema}.settle(
    moment bigint, ids uuid[], tokens bigint[], versions bigint[], statuses text[], categories text[], errors text[],
    error_names text[], fingerprints text[], terms text[], messages text[], tries bigint[], updates bigint[], retries bigint[], contents bytea[],
    rewritten uuid[]
)
    RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $$
DECLARE
    present bigint := coalesce(moment, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint);
    written bigint;
    freed bigint;
    planned bigint;
BEGIN
    WITH a AS (
        SELECT * FROM unnest(ids, versions, statuses, categories, errors, error_names, fingerprints, terms, messages, tries, updates,
            retries, contents) AS a (id, version, status, category, error, error_name, fingerprint, words, message, attempts, updated_at,
            next_retry_at, data)
    ),
    changed AS (
        SELECT l.namespace, l.source, l.policy, l.dead_lettered_at, {schema}.hour_of(l.dead_lettered_at) AS hour, l.status,
            l.category, l.error, l.fingerprint, a.status AS new_status, a.category AS new_category, a.error AS new_error,
            a.fingerprint AS new_fingerprint
        FROM a {letter_of a}
        WHERE (l.status, l.category, l.error, l.fingerprint) <> (a.status, a.category, a.error, a.fingerprint)
    ),
    noted AS (
        INSERT INTO {schema}.changes (namespace, source, policy, hour, status, category, error, fingerprint, count, first, last,
            is_shaken)
        SELECT c.namespace, c.source, c.policy, c.hour, k.status, k.category, k.error, k.fingerprint, sum(k.count),
            min(c.dead_lettered_at) FILTER (WHERE k.count > 0), max(c.dead_lettered_at) FILTER (WHERE k.count > 0),
            bool_or(k.count < 0 AND c.fingerprint <> c.new_fingerprint)
        FROM changed c CROSS JOIN LATERAL (
            VALUES (c.status, c.category, c.error, c.fingerprint, -1),
                (c.new_status, c.new_category, c.new_error, c.new_fingerprint, 1)
        ) AS k (status, category, error, fingerprint, count)
        GROUP BY c.namespace, c.source, c.policy, c.hour, k.status, k.category, k.error, k.fingerprint
    ),
    done AS (
        UPDATE {schema}.letters l SET version = l.version + 1, status = a.status, category = a.category, error = a.error,
            error_name = a.error_name, fingerprint = a.fingerprint, words = a.words, message = a.message, attempts = a.attempts,
            updated_at = a.updated_at, next_retry_at = a.next_retry_at, data = a.data
        FROM a {key_of a} WHERE l.id = a.id{is_of_key} AND l.version = a.version RETURNING l.id
    )
    SELECT count(*) INTO written FROM done;
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
    INSERT INTO {schema}.unread (id) SELECT unnest(rewritten);
    RETURN true;
EXCEPTION WHEN SQLSTATE 'RD001' THEN
    RETURN false; -- and nothing is changed: leaving the block this way undoes it
END
$$;
