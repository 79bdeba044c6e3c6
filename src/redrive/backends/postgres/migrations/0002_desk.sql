CREATE TABLE {schema}.desk (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id      uuid NOT NULL
);

CREATE TABLE {schema}.operations (
    id         uuid PRIMARY KEY,
    started_at bigint NOT NULL,
    data       bytea NOT NULL
);

CREATE INDEX operations_by_start ON {schema}.operations (started_at, id);

CREATE TABLE {schema}.ledger (
    operation  uuid NOT NULL,
    number     bigint NOT NULL,
    letter     uuid NOT NULL,
    generation bigint NOT NULL,
    entry      text NOT NULL,
    at         bigint NOT NULL,
    detail     text NOT NULL,
    PRIMARY KEY (operation, number)
);

-- What is still to be sent, and what was sent and is still open.
CREATE INDEX ledger_to_be_sent ON {schema}.ledger (operation, number) WHERE entry IN ('chosen', 'intended');
CREATE INDEX ledger_undecided ON {schema}.ledger (operation, number) WHERE entry IN ('sent', 'unknown');

-- What people have said of groups. Names are of any length: the key is the digest of both.
CREATE TABLE {schema}.triage (
    key         bytea PRIMARY KEY,
    namespace   text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    data        bytea NOT NULL
);

CREATE TABLE {schema}.audit (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      bigint NOT NULL,
    by      text NOT NULL,
    act     text NOT NULL,
    subject text NOT NULL,
    detail  text NOT NULL
);

CREATE TABLE {schema}.totals (
    name  text COLLATE "C" PRIMARY KEY,
    total bigint NOT NULL
);

-- What handlers have begun and done, for those that work once.
CREATE TABLE {schema}.receipts (
    namespace text COLLATE "C" NOT NULL,
    handler   text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    token     uuid NOT NULL,
    at        bigint NOT NULL,
    state     text NOT NULL,
    until     bigint,
    by        text NOT NULL,
    PRIMARY KEY (namespace, handler, key)
);

CREATE INDEX receipts_by_time ON {schema}.receipts (namespace, at);
CREATE INDEX receipts_unknown ON {schema}.receipts (namespace, at) WHERE state = 'unknown';
CREATE INDEX receipts_over ON {schema}.receipts (until) WHERE until IS NOT NULL;
