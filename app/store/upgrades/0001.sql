-- Messages form a tree; a chat is the path from its head to the root. `depth` is the length of that path.
CREATE TABLE chats (
    id          TEXT PRIMARY KEY,
    title       TEXT NOT NULL,
    created     REAL NOT NULL,
    updated     REAL NOT NULL,
    head        TEXT REFERENCES messages (id) DEFERRABLE INITIALLY DEFERRED,
    forked_from TEXT REFERENCES messages (id) ON DELETE SET NULL
) STRICT;
CREATE INDEX chats_by_use ON chats (updated);
CREATE INDEX chats_by_head ON chats (head);
CREATE INDEX chats_by_fork ON chats (forked_from);

CREATE TABLE messages (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    chat       TEXT NOT NULL,
    parent     TEXT REFERENCES messages (id) DEFERRABLE INITIALLY DEFERRED,
    depth      INTEGER NOT NULL,
    role       TEXT NOT NULL,
    text       TEXT NOT NULL,
    created    REAL NOT NULL,
    status     TEXT NOT NULL,
    starred_at REAL,
    block      TEXT NOT NULL DEFAULT '',
    quote      TEXT REFERENCES messages (id) ON DELETE SET NULL,
    passages   TEXT NOT NULL DEFAULT '[]',
    citations  TEXT NOT NULL DEFAULT '[]',
    figures    TEXT,
    writer     TEXT,
    queued     INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX messages_by_chat ON messages (chat);
CREATE INDEX messages_by_parent ON messages (parent);
CREATE INDEX messages_by_quote ON messages (quote) WHERE quote IS NOT NULL;
CREATE INDEX messages_by_star ON messages (starred_at) WHERE starred_at IS NOT NULL;
CREATE INDEX messages_streaming ON messages (status) WHERE status = 'streaming';
CREATE INDEX messages_unqueued ON messages (queued) WHERE queued = 0;

CREATE TABLE attachments (
    message  TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    ordinal  INTEGER NOT NULL,
    name     TEXT NOT NULL,
    origin   TEXT NOT NULL,
    staged   TEXT NOT NULL,
    document TEXT,
    PRIMARY KEY (message, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX attachments_by_staged ON attachments (staged);
CREATE INDEX attachments_by_document ON attachments (document);

-- The text of an answer while it streams. Apart from messages, so that writing it does not touch the text index.
CREATE TABLE journal (
    message TEXT PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    text    TEXT NOT NULL
) STRICT;

-- AUTOINCREMENT: the id of a finished item is never given to another, so marking it done twice is harmless.
CREATE TABLE outbox (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    kind     TEXT NOT NULL,
    key      TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    error    TEXT NOT NULL DEFAULT '',
    UNIQUE (kind, key)
) STRICT;

-- unicode61 knows words but does not divide Chinese, Japanese or Korean; trigrams find any three characters.
CREATE VIRTUAL TABLE message_words USING fts5 (
    text, content = 'messages', content_rowid = 'seq', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE message_trigrams USING fts5 (
    text, content = 'messages', content_rowid = 'seq', tokenize = 'trigram'
);
CREATE TRIGGER messages_inserted AFTER INSERT ON messages BEGIN
    INSERT INTO message_words (rowid, text) VALUES (new.seq, new.text);
    INSERT INTO message_trigrams (rowid, text) VALUES (new.seq, new.text);
END;
CREATE TRIGGER messages_deleted AFTER DELETE ON messages BEGIN
    INSERT INTO message_words (message_words, rowid, text) VALUES ('delete', old.seq, old.text);
    INSERT INTO message_trigrams (message_trigrams, rowid, text) VALUES ('delete', old.seq, old.text);
END;
-- One trigger for both halves: SQLite does not say in which order two of them would run.
CREATE TRIGGER messages_rewritten AFTER UPDATE OF text ON messages BEGIN
    INSERT INTO message_words (message_words, rowid, text) VALUES ('delete', old.seq, old.text);
    INSERT INTO message_trigrams (message_trigrams, rowid, text) VALUES ('delete', old.seq, old.text);
    INSERT INTO message_words (rowid, text) VALUES (new.seq, new.text);
    INSERT INTO message_trigrams (rowid, text) VALUES (new.seq, new.text);
END;
