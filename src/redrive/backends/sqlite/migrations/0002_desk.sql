CREATE TABLE desk (id BLOB NOT NULL) STRICT;

CREATE TABLE operations (
    id         BLOB PRIMARY KEY,
    started_at INTEGER NOT NULL,
    data       BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX operations_by_start ON operations (started_at);

CREATE TABLE ledger (
    operation  BLOB NOT NULL,
    letter     BLOB NOT NULL,
    generation INTEGER NOT NULL,
    entry      TEXT NOT NULL,
    at         INTEGER NOT NULL,
    detail     TEXT NOT NULL,
    PRIMARY KEY (operation, letter, generation)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    by      TEXT NOT NULL,
    act     TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail  TEXT NOT NULL
) STRICT;

CREATE TABLE totals (
    name  TEXT PRIMARY KEY,
    total INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
