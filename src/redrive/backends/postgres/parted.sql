-- Only where letters are parted by months.
ALTER TABLE {schema}.letters ADD PRIMARY KEY (id, born);

CREATE TABLE {schema}.letters_others PARTITION OF {schema}.letters DEFAULT {gently};

CREATE TABLE {schema}.keys (
    id   uuid PRIMARY KEY,
    born bigint NOT NULL
);

-- Make partitions that are not there yet. One that cannot be made in time is no loss: its letters go to the others.
CREATE FUNCTION {schema}.make_months(names text[], begins bigint[], ends bigint[]) RETURNS void LANGUAGE plpgsql
    SET lock_timeout = '2s'
AS $$
BEGIN
    FOR number IN 1 .. cardinality(names) LOOP
        BEGIN
            IF to_regclass('{schema}.' || names[number]) IS NULL THEN
                EXECUTE format('CREATE TABLE {schema}.%I PARTITION OF {schema}.letters FOR VALUES FROM (%s) TO (%s) {gently}',
                    names[number], begins[number], ends[number]);
            END IF;
        EXCEPTION WHEN lock_not_available OR check_violation OR duplicate_table OR insufficient_privilege OR deadlock_detected THEN
            NULL;
        END;
    END LOOP;
END
$$;

-- Remove partitions of months that are past and of which no letter is left.
CREATE FUNCTION {schema}.drop_months() RETURNS bigint LANGUAGE plpgsql
    SET lock_timeout = '200ms'
AS $$
DECLARE
    name text;
    is_empty boolean;
    dropped bigint := 0;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = '{schema}.letters'::regclass AND c.relname < to_char(now() AT TIME ZONE 'UTC', '"letters_"YYYY_MM')
    LOOP
        BEGIN
            EXECUTE format('SELECT NOT EXISTS (SELECT 1 FROM {schema}.%I)', name) INTO is_empty;
            IF is_empty THEN
                LOCK TABLE ONLY {schema}.letters IN ACCESS EXCLUSIVE MODE;
                EXECUTE format('LOCK TABLE {schema}.%I IN ACCESS EXCLUSIVE MODE', name);
                EXECUTE format('SELECT NOT EXISTS (SELECT 1 FROM {schema}.%I)', name) INTO is_empty;
                IF is_empty THEN
                    EXECUTE format('DROP TABLE {schema}.%I', name);
                    dropped := dropped + 1;
                END IF;
            END IF;
        EXCEPTION WHEN lock_not_available OR undefined_table OR insufficient_privilege OR deadlock_detected THEN
            NULL;
        END;
    END LOOP;
    RETURN dropped;
END
$$;
