-- Words, found by an index. They come cut and folded by redrive, so that the index only has to know where a space is: all that is
-- not ASCII belongs to a word.
-- The failure's type and message are indexed with the letter itself.
CREATE VIRTUAL TABLE message_words USING fts5 (words, content = 'letters', content_rowid = 'seq', columnsize = 0, tokenize = 'ascii');

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
    INSERT INTO message_words (rowid, words) VALUES (new.seq, new.words);
END;

CREATE TRIGGER letters_change AFTER UPDATE OF words ON letters WHEN old.words <> new.words BEGIN
    INSERT INTO message_words (message_words, rowid, words) VALUES ('delete', old.seq, old.words);
    INSERT INTO message_words (rowid, words) VALUES (new.seq, new.words);
END;

CREATE TRIGGER letters_leave AFTER DELETE ON letters BEGIN
    INSERT INTO message_words (message_words, rowid, words) VALUES ('delete', old.seq, old.words);
    DELETE FROM unindexed WHERE seq = old.seq;
END;
