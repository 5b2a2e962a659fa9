CREATE TABLE sources (
    id      TEXT PRIMARY KEY,
    kind    TEXT NOT NULL,
    title   TEXT NOT NULL,
    origin  TEXT NOT NULL DEFAULT '',
    format  TEXT NOT NULL DEFAULT '',
    pages   INTEGER,
    added   REAL NOT NULL,
    -- When it is over: what a web search found; NULL for all else.
    expires REAL
) STRICT;
CREATE INDEX sources_by_kind ON sources(kind);
CREATE INDEX sources_by_end ON sources(expires) WHERE expires IS NOT NULL;

-- Every name and path under which a document's bytes were given: the same file in two places is one source.
CREATE TABLE names (
    source  TEXT NOT NULL REFERENCES sources(id) ON DELETE CASCADE,
    name    TEXT NOT NULL,
    origin  TEXT NOT NULL,
    PRIMARY KEY (source, name, origin)
) STRICT;

-- Pages of a document that are still to be read: OCR takes seconds for each.
CREATE TABLE unread (
    source  TEXT NOT NULL REFERENCES sources(id) ON DELETE CASCADE,
    page    INTEGER NOT NULL,
    PRIMARY KEY (source, page)
) STRICT, WITHOUT ROWID;

CREATE TABLE passages (
    number   INTEGER PRIMARY KEY,
    id       TEXT NOT NULL UNIQUE,
    source   TEXT NOT NULL REFERENCES sources(id) ON DELETE CASCADE,
    ordinal  INTEGER NOT NULL,
    page     INTEGER,
    line     INTEGER,
    start    INTEGER NOT NULL,
    "end"    INTEGER NOT NULL,
    message  TEXT,
    parent   TEXT,
    role     TEXT,
    time     REAL NOT NULL,
    heading  TEXT NOT NULL DEFAULT '',
    text     TEXT NOT NULL,
    confidence REAL  -- of OCR, 0 to 100; NULL for text that was read as text
) STRICT;
CREATE INDEX passages_by_place ON passages(source, ordinal);
CREATE INDEX passages_by_page ON passages(page, source) WHERE page IS NOT NULL;
CREATE INDEX passages_by_message ON passages(message) WHERE message IS NOT NULL;
CREATE INDEX passages_by_parent ON passages(parent) WHERE parent IS NOT NULL;

CREATE INDEX passages_of_digests ON passages(time) WHERE role = 'digest';
CREATE INDEX passages_asked ON passages(time) WHERE role = 'user';

-- Small copies of pictures, where an image embedder is in use: its vectors are made from them.
CREATE TABLE pictures (
    passage  TEXT PRIMARY KEY REFERENCES passages(id) ON DELETE CASCADE,
    image    BLOB NOT NULL
) STRICT;

-- Which messages a digest (a passage with that role) sums up, in order, and who wrote it.
CREATE TABLE digests (
    passage  TEXT PRIMARY KEY REFERENCES passages(id) ON DELETE CASCADE,
    maker    TEXT NOT NULL
) STRICT;
CREATE TABLE digested (
    message  TEXT PRIMARY KEY,
    passage  TEXT NOT NULL REFERENCES digests(passage) ON DELETE CASCADE,
    place    INTEGER NOT NULL
) STRICT;
CREATE INDEX digested_by_passage ON digested(passage, place);

-- How many terms a passage has. Apart, for a search reads those of all passages.
CREATE TABLE lengths (
    number  INTEGER PRIMARY KEY REFERENCES passages(number) ON DELETE CASCADE,
    words   INTEGER NOT NULL
) STRICT;

-- Terms made by words.py, joined with spaces; the tokenizer only has to cut at the spaces.
CREATE VIRTUAL TABLE terms USING fts5(
    body, context, tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* Co'"
);

-- One row while deleted words may still lie in the file or its log: set with the delete, removed by the scrub.
CREATE TABLE unscrubbed (one INTEGER PRIMARY KEY CHECK (one = 1)) STRICT;
