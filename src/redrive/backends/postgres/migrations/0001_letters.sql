-- Instants are microseconds since 1970. `data` is the whole letter in its stored form; the columns are what is asked for.
-- Texts compare byte by byte, as Python does; NUL, which PostgreSQL's texts cannot hold, is escaped.
CREATE TABLE {schema}.letters (
    id               uuid PRIMARY KEY,
    namespace        text COLLATE "C" NOT NULL,
    source           text COLLATE "C" NOT NULL,
    source_id        text COLLATE "C" NOT NULL,
    key              bytea,
    kind             text COLLATE "C",
    status           text COLLATE "C" NOT NULL,
    generation       bigint NOT NULL,
    category         text COLLATE "C" NOT NULL,
    error            text COLLATE "C" NOT NULL,
    error_name       text COLLATE "C" NOT NULL,
    fingerprint      text COLLATE "C" NOT NULL,
    tags             jsonb,
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
    priority bigint NOT NULL,
    at       bigint NOT NULL,
    is_due   boolean NOT NULL,
    token    bigint,
    owner    text COLLATE "C",
    until    bigint
) WITH (fillfactor = 70);

CREATE INDEX claims_due ON {schema}.claims (priority DESC, at, id) WHERE is_due;

-- Fencing tokens: each higher than any before.
CREATE SEQUENCE {schema}.fence;
