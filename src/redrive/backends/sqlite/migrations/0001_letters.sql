-- Instants are microseconds since 1970. A letter is kept in two rows. In the first are the columns that are asked for and how the letter
-- stands: what changes when a claim ends lies close together, however large the letters are. What it holds is in the second; with the
-- standing behind it that is the letter's stored form.
CREATE TABLE letters (
    seq              INTEGER PRIMARY KEY AUTOINCREMENT, -- never given out again: indexes of words may still tell of a letter that is gone
    id               BLOB NOT NULL UNIQUE,
    namespace        TEXT NOT NULL,
    source           TEXT NOT NULL,
    source_id        TEXT NOT NULL,
    key              BLOB,
    kind             TEXT,
    policy           TEXT NOT NULL,
    status           TEXT NOT NULL,
    generation       INTEGER NOT NULL,
    category         TEXT NOT NULL,
    error            TEXT NOT NULL,
    error_name       TEXT NOT NULL,
    fingerprint      TEXT NOT NULL,
    tags             TEXT, -- a JSON list, each in hexadecimal
    words            TEXT NOT NULL, -- of the failure's type and message, a space around each
    shelved          TEXT AS (replace(substr(words, 2), ' ', '_' || (seq >> 17) || ' ')), -- each with the number of its shelf behind it
    priority         INTEGER NOT NULL,
    attempts         INTEGER NOT NULL,
    dead_lettered_at INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    next_retry_at    INTEGER,
    expires_at       INTEGER,
    standing         BLOB NOT NULL
) STRICT;

CREATE TABLE contents (
    seq  INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

-- With the namespace behind, so that letters of others are passed over without being read.
CREATE INDEX letters_by_age ON letters (dead_lettered_at, namespace);
CREATE INDEX letters_by_status ON letters (status, dead_lettered_at, namespace);
CREATE INDEX letters_by_source ON letters (source, dead_lettered_at, namespace);
CREATE INDEX letters_by_error ON letters (error_name, dead_lettered_at, namespace);
CREATE INDEX letters_by_group ON letters (fingerprint, dead_lettered_at, namespace);
CREATE INDEX letters_by_change ON letters (updated_at, namespace);

-- A row for each letter that waits for a retry or is leased; narrow, so that claiming touches little.
-- `at` is when it may be claimed as due: its retry's time, or the end of the lease on it if that is later.
CREATE TABLE claims (
    seq      INTEGER PRIMARY KEY,
    id       BLOB, -- of one that is due: those of the same instant come by it
    lane     INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    is_due   INTEGER NOT NULL,
    token    INTEGER,
    owner    TEXT,
    until    INTEGER
) STRICT;

CREATE INDEX claims_due ON claims (lane, priority DESC, at, id) WHERE is_due;
CREATE INDEX claims_held ON claims (until) WHERE until IS NOT NULL;

-- One row: the last fencing token given out, which is also the last instant that the store's clock is known to have passed.
CREATE TABLE fence (token INTEGER NOT NULL) STRICT;
INSERT INTO fence VALUES (0);
