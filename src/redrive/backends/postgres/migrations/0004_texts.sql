-- Bodies and tracebacks as words, as `letters` has those of messages: written behind, by whoever tidies.
CREATE TABLE {schema}.texts (
    id        uuid PRIMARY KEY,
    traceback text COLLATE "C" NOT NULL,
    body      text COLLATE "C" NOT NULL
) {gently};
SELECT {schema}.compress('texts', 'traceback', 'body');

CREATE INDEX texts_by_traceback ON {schema}.texts USING gin (string_to_array(btrim(traceback), ' '))
    WITH (gin_pending_list_limit = 512);
CREATE INDEX texts_by_body ON {schema}.texts USING gin (string_to_array(btrim(body), ' ')) WITH (gin_pending_list_limit = 512);

-- Letters whose texts are not there yet, or changed since; one that changed twice is here twice. Not cut off at its end, as `changes` is not.
CREATE TABLE {schema}.unread (
    id uuid NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_analyze_threshold = 1000000,
    vacuum_truncate = off);

-- How many these are: counted while they are few. Beyond that it is what PostgreSQL itself knows of the table, which may be a second old,
-- for counting hundreds of thousands takes longer than to search for a word among a million letters.
CREATE FUNCTION {schema}.unread_count() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN count(*) < 5000 THEN count(*) ELSE greatest(count(*), pg_stat_get_live_tuples('{schema}.unread'::regclass)) END
    FROM (SELECT FROM {schema}.unread LIMIT 5000) u
$$;
