-- How many letters there are, of each kind that people ask for. Every transaction that changes letters notes here what that does
-- to the counts: one row, so that little is written where one letter comes. Now and then the notes are summed up.
CREATE TABLE changes (
    number INTEGER PRIMARY KEY,
    cells  BLOB NOT NULL,
    groups BLOB NOT NULL
) STRICT;

-- The counts, without what is still among the changes. One that comes down to nothing is removed.
CREATE TABLE counts (
    facet     TEXT NOT NULL, -- what is counted by: source, category, error, policy, hour; or all
    namespace TEXT NOT NULL,
    value     TEXT NOT NULL,
    status    TEXT NOT NULL,
    count     INTEGER NOT NULL,
    PRIMARY KEY (facet, namespace, value, status)
) STRICT, WITHOUT ROWID;

-- How many times counts were put right: who compared them before somebody else put them right has to compare them anew.
CREATE TABLE repairs (number INTEGER NOT NULL) STRICT;
INSERT INTO repairs VALUES (0);

-- Letters that failed in the same way, a row for each namespace they are in.
CREATE TABLE groups (
    namespace   TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    pending     INTEGER NOT NULL,
    redriven    INTEGER NOT NULL,
    exhausted   INTEGER NOT NULL,
    quarantined INTEGER NOT NULL,
    completed   INTEGER NOT NULL,
    archived    INTEGER NOT NULL,
    discarded   INTEGER NOT NULL,
    count       INTEGER AS (pending + redriven + exhausted + quarantined + completed + archived + discarded) STORED,
    first_seen  INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    hours       BLOB, -- how many came in each of its last hours, as redrive packs them
    PRIMARY KEY (namespace, fingerprint)
) STRICT, WITHOUT ROWID;

CREATE INDEX groups_by_last_seen ON groups (namespace, last_seen, hours); -- with its hours, which are short: so it tells who has grown
CREATE INDEX groups_by_count ON groups (namespace, count);

-- Where changes are summed up into: all of them in one statement, and the triggers put them where they belong. By `kind`:
-- cell:      a change of `counts`; cell gone: remove it if it has come down to nothing
-- group:     a change of a group's letters of one status, with the first and the last instant of those that came, and its hours if
--            they are others now
-- shaken:    letters have left the group; remove it if none is left, else look up its ends
CREATE VIEW census (kind, facet, namespace, value, status, count, first, last, hours) AS
    SELECT '', '', '', '', '', 0, 0, 0, x'' WHERE false;

CREATE TRIGGER census_cell INSTEAD OF INSERT ON census WHEN new.kind = 'cell' BEGIN
    INSERT INTO counts VALUES (new.facet, new.namespace, new.value, new.status, new.count)
        ON CONFLICT DO UPDATE SET count = count + excluded.count;
END;

CREATE TRIGGER census_cell_gone INSTEAD OF INSERT ON census WHEN new.kind = 'cell gone' BEGIN
    DELETE FROM counts
        WHERE facet = new.facet AND namespace = new.namespace AND value = new.value AND status = new.status AND count = 0;
END;

CREATE TRIGGER census_group INSTEAD OF INSERT ON census WHEN new.kind = 'group' BEGIN
    INSERT INTO groups (
            namespace, fingerprint, pending, redriven, exhausted, quarantined, completed, archived, discarded, first_seen, last_seen,
            hours
        )
        VALUES (
            new.namespace, new.value,
            (new.status = 'pending') * new.count, (new.status = 'redriven') * new.count, (new.status = 'exhausted') * new.count,
            (new.status = 'quarantined') * new.count, (new.status = 'completed') * new.count, (new.status = 'archived') * new.count,
            (new.status = 'discarded') * new.count, new.first, new.last, new.hours
        )
        ON CONFLICT DO UPDATE SET
            pending = pending + excluded.pending, redriven = redriven + excluded.redriven,
            exhausted = exhausted + excluded.exhausted, quarantined = quarantined + excluded.quarantined,
            completed = completed + excluded.completed, archived = archived + excluded.archived,
            discarded = discarded + excluded.discarded,
            first_seen = min(first_seen, excluded.first_seen), last_seen = max(last_seen, excluded.last_seen),
            hours = coalesce(excluded.hours, hours);
END;

CREATE TRIGGER census_shaken INSTEAD OF INSERT ON census WHEN new.kind = 'shaken' BEGIN
    DELETE FROM groups WHERE namespace = new.namespace AND fingerprint = new.value AND count = 0;
    -- There may be no letter though the count says so: a wrong count is told and mended by who recounts, and must not keep letters from being held.
    UPDATE groups SET
        first_seen = coalesce((
            SELECT dead_lettered_at FROM letters WHERE namespace = new.namespace AND fingerprint = new.value
            ORDER BY dead_lettered_at LIMIT 1
        ), first_seen),
        last_seen = coalesce((
            SELECT dead_lettered_at FROM letters WHERE namespace = new.namespace AND fingerprint = new.value
            ORDER BY dead_lettered_at DESC LIMIT 1
        ), last_seen)
        WHERE namespace = new.namespace AND fingerprint = new.value;
END;
