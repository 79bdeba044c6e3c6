-- Queues. Instants are microseconds since 1970.
-- One row: the catalogue's version.
CREATE TABLE queue_catalogue (version INTEGER NOT NULL) STRICT;
INSERT INTO queue_catalogue VALUES (0);

CREATE TABLE queues (
    id   TEXT PRIMARY KEY,
    data BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Tokens of queues that have a rate.
CREATE TABLE queue_buckets (
    queue  TEXT PRIMARY KEY,
    tokens REAL NOT NULL,
    at_us  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A row for each partition: all that is known of it as a whole is in `state`, which is read once and written once by whoever
-- changes it. Rows of removed queues stay, so that nobody who knows nothing of it puts anything there.
CREATE TABLE queue_parts (
    part        INTEGER PRIMARY KEY,
    queue       TEXT NOT NULL,
    partition   INTEGER NOT NULL,
    is_gone     INTEGER NOT NULL DEFAULT 0,
    next_due_us INTEGER, -- nothing is due before
    state       BLOB NOT NULL,
    UNIQUE (queue, partition)
) STRICT;

CREATE INDEX queue_parts_due ON queue_parts (next_due_us, queue) WHERE next_due_us IS NOT NULL;

-- Lanes 0 to 9 are the priorities from the highest down: in each, items up to the cursor in the partition's state are leased,
-- those beyond are ready, and no row changes when it is leased. 10: scheduled, 11: behind another of their key, 12: dying.
CREATE TABLE queue_items (
    part       INTEGER NOT NULL,
    lane       INTEGER NOT NULL,
    id         TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    data       BLOB NOT NULL,
    due_us     INTEGER, -- of a scheduled item: when to look at it; of one that expires before one that stands ahead of it: when it does
    source     TEXT,
    key        TEXT, -- of those behind
    PRIMARY KEY (part, lane, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX queue_items_due ON queue_items (part, lane, due_us) WHERE due_us IS NOT NULL;
CREATE UNIQUE INDEX queue_items_source ON queue_items (part, source) WHERE source IS NOT NULL;
CREATE INDEX queue_items_key ON queue_items (part, key, id) WHERE key IS NOT NULL;

-- A row for all that were leased together, from the first to the last of a lane. `count` of them are still there.
CREATE TABLE queue_leases (
    part      INTEGER NOT NULL,
    lane      INTEGER NOT NULL,
    first     TEXT NOT NULL,
    last      TEXT NOT NULL,
    until_us  INTEGER NOT NULL,
    leased_us INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    PRIMARY KEY (part, lane, first)
) STRICT, WITHOUT ROWID;

CREATE INDEX queue_leases_end ON queue_leases (part, until_us);

-- Keys of ordered queues that have an item which is not behind another.
CREATE TABLE queue_keys (
    part INTEGER NOT NULL,
    key  TEXT NOT NULL,
    PRIMARY KEY (part, key)
) STRICT, WITHOUT ROWID;

-- References of queues that dedupe, and until when they are remembered.
CREATE TABLE queue_seen (
    part      INTEGER NOT NULL,
    reference TEXT NOT NULL,
    until_us  INTEGER NOT NULL,
    PRIMARY KEY (part, reference)
) STRICT, WITHOUT ROWID;

CREATE INDEX queue_seen_end ON queue_seen (part, until_us);
