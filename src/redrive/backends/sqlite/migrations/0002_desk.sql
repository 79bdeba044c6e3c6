CREATE TABLE desk (id BLOB NOT NULL) STRICT;

CREATE TABLE operations (
    id         BLOB PRIMARY KEY,
    started_at INTEGER NOT NULL,
    data       BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX operations_by_start ON operations (started_at);

-- Some hundred rows on a sheet, beside each other in `data`, with how many of them there are of each entry.
CREATE TABLE ledger (
    operation BLOB NOT NULL,
    sheet     INTEGER NOT NULL,
    chosen    INTEGER NOT NULL,
    intended  INTEGER NOT NULL,
    sent      INTEGER NOT NULL,
    confirmed INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    unknown   INTEGER NOT NULL,
    skipped   INTEGER NOT NULL,
    data      BLOB NOT NULL,
    UNIQUE (operation, sheet)
) STRICT;

-- What is still to be sent, and what was sent and is still open: an operation that goes on reads neither what is done nor what is to come.
CREATE INDEX ledger_to_be_sent ON ledger (operation, sheet) WHERE chosen + intended > 0;
CREATE INDEX ledger_undecided ON ledger (operation, sheet) WHERE sent + unknown > 0;

-- What people have said of groups.
CREATE TABLE triage (
    namespace   TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    data        BLOB NOT NULL,
    PRIMARY KEY (namespace, fingerprint)
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

-- What handlers have begun and done, for those that work once.
CREATE TABLE receipts (
    namespace TEXT NOT NULL,
    handler   TEXT NOT NULL,
    key       TEXT NOT NULL,
    token     BLOB NOT NULL,
    at        INTEGER NOT NULL,
    state     TEXT NOT NULL,
    until     INTEGER,
    by        TEXT NOT NULL,
    PRIMARY KEY (namespace, handler, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX receipts_by_time ON receipts (namespace, at);
CREATE INDEX receipts_unknown ON receipts (namespace, at) WHERE state = 'unknown';
CREATE INDEX receipts_over ON receipts (until) WHERE until IS NOT NULL;
