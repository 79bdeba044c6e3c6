-- Words, found by an index. They come cut and folded by redrive, so that the index only has to know where a space is: all that is
-- not ASCII belongs to a word.
-- The failure's type and message are indexed with the letter itself. Whatever an index has of one word, it merges at once, so that who
-- captures waits the longer for it the more letters have the word. Here each word carries the number of a shelf, of 131,072 letters.
CREATE VIRTUAL TABLE message_words USING fts5 (
    shelved, content = 'letters', content_rowid = 'seq', columnsize = 0, tokenize = "ascii tokenchars '_'"
);

CREATE VIEW shelves (shelf) AS
    WITH RECURSIVE found (shelf) AS (
        SELECT coalesce(min(seq), 0) >> 17 FROM letters UNION ALL SELECT shelf + 1 FROM found WHERE shelf < (SELECT max(seq) >> 17 FROM letters)
    )
    SELECT shelf FROM found;

-- Tracebacks and bodies are indexed later, for that takes longer than to hold the letter. What is in the index is not kept a second
-- time: who changes a letter brings the words that it was indexed by, to take them out. The words of a letter that is removed stay
-- there, for to take them out takes longer than all the rest; when most of the index is about such letters, it is made anew, while
-- the former one is still searched.
CREATE VIRTUAL TABLE letter_texts USING fts5 (traceback, body, content = '', columnsize = 0, tokenize = 'ascii');
CREATE VIRTUAL TABLE former_texts USING fts5 (traceback, body, content = '', columnsize = 0, tokenize = 'ascii');

-- Their parts are merged a few pages at a time, those of texts in transactions of their own, so that nobody who captures waits long for
-- that; by itself only where many pile up.
INSERT INTO message_words (message_words, rank) VALUES ('automerge', 0);
INSERT INTO message_words (message_words, rank) VALUES ('usermerge', 16);
INSERT INTO message_words (message_words, rank) VALUES ('crisismerge', 64);
INSERT INTO letter_texts (letter_texts, rank) VALUES ('automerge', 0);
INSERT INTO letter_texts (letter_texts, rank) VALUES ('crisismerge', 64);
INSERT INTO former_texts (former_texts, rank) VALUES ('automerge', 0);
INSERT INTO former_texts (former_texts, rank) VALUES ('crisismerge', 64);

-- One row.
CREATE TABLE indexed (
    seq            INTEGER NOT NULL, -- letters up to this number are in letter_texts, but for those that have changed since
    letters        INTEGER NOT NULL, -- how many that makes
    ghosts         INTEGER NOT NULL, -- how many are in there that were removed
    former         INTEGER NOT NULL, -- those beyond, up to this number, are in former_texts, but for those that have changed since
    former_letters INTEGER NOT NULL  -- how many that makes
) STRICT;
INSERT INTO indexed VALUES (0, 0, 0, 0, 0);
-- Those that have changed since, and wait to be indexed again.
CREATE TABLE unindexed (seq INTEGER PRIMARY KEY) STRICT;

CREATE TRIGGER letters_come AFTER INSERT ON letters BEGIN
    INSERT INTO message_words (rowid, shelved) VALUES (new.seq, new.shelved);
END;

CREATE TRIGGER letters_change AFTER UPDATE OF words ON letters WHEN old.words <> new.words BEGIN
    INSERT INTO message_words (message_words, rowid, shelved) VALUES ('delete', old.seq, old.shelved);
    INSERT INTO message_words (rowid, shelved) VALUES (new.seq, new.shelved);
END;

CREATE TRIGGER letters_leave AFTER DELETE ON letters BEGIN
    INSERT INTO message_words (message_words, rowid, shelved) VALUES ('delete', old.seq, old.shelved);
    DELETE FROM unindexed WHERE seq = old.seq;
END;
