-- Only where letters are parted by months.
ALTER TABLE {schema}.letters ADD PRIMARY KEY (id, born);

CREATE TABLE {schema}.letters_others PARTITION OF {schema}.letters DEFAULT {gently};

CREATE TABLE {schema}.keys (
    id   uuid PRIMARY KEY,
    born bigint NOT NULL
);

-- Make partitions that are not there yet; answers with those that somebody who reads or writes keeps from being made right now. The table as a whole
-- is locked meanwhile, so it is not waited for: who writes a letter waits no longer than this does. To attach a table made aside would lock the others'
-- alone, but then whoever had just found that a letter goes there would be refused. One that cannot be made is no loss: its letters go to the others.
CREATE FUNCTION {schema}.make_months(names text[], begins bigint[], ends bigint[]) RETURNS text[] LANGUAGE plpgsql
    SET lock_timeout = '20ms'
AS $$
DECLARE
    lacking text[] := '{}';
BEGIN
    FOR number IN 1 .. cardinality(names) LOOP
        BEGIN
            IF to_regclass('{schema}.' || names[number]) IS NULL THEN
                LOCK TABLE ONLY {schema}.letters IN ACCESS EXCLUSIVE MODE;
                -- Of those who make the same month, one.
                IF to_regclass('{schema}.' || names[number]) IS NULL THEN
                    EXECUTE format('CREATE TABLE {schema}.%I PARTITION OF {schema}.letters FOR VALUES FROM (%s) TO (%s) {gently}',
                        names[number], begins[number], ends[number]);
                END IF;
            END IF;
        EXCEPTION
            WHEN lock_not_available OR deadlock_detected THEN
                lacking := lacking || names[number];
            WHEN check_violation OR insufficient_privilege THEN
                NULL;
        END;
    END LOOP;
    RETURN lacking;
END
$$;

-- Remove a partition of a month that is past and of which no letter is left; was there one? That is looked for while only those
-- wait who would write into that month; for the table as a whole everybody would wait, so it is locked when all is known, and not waited for.
CREATE FUNCTION {schema}.drop_month() RETURNS boolean LANGUAGE plpgsql
    SET lock_timeout = '20ms'
AS $$
DECLARE
    name text;
    is_empty boolean;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = '{schema}.letters'::regclass AND c.relname < to_char(now() AT TIME ZONE 'UTC', '"letters_"YYYY_MM')
    LOOP
        BEGIN
            EXECUTE format('SELECT NOT EXISTS (SELECT 1 FROM {schema}.%I)', name) INTO is_empty;
            IF is_empty THEN
                EXECUTE format('LOCK TABLE {schema}.%I IN SHARE ROW EXCLUSIVE MODE', name);
                EXECUTE format('SELECT NOT EXISTS (SELECT 1 FROM {schema}.%I)', name) INTO is_empty;
                IF is_empty THEN
                    LOCK TABLE ONLY {schema}.letters IN ACCESS EXCLUSIVE MODE;
                    EXECUTE format('DROP TABLE {schema}.%I', name);
                    RETURN true;
                END IF;
            END IF;
        EXCEPTION WHEN lock_not_available OR undefined_table OR insufficient_privilege OR deadlock_detected THEN
            NULL;
        END;
    END LOOP;
    RETURN false;
END
$$;
