-- Knowledge bases: named collections of folders and files, and those that a chat searches (none: everything).
CREATE TABLE bases (
    name TEXT NOT NULL COLLATE NOCASE,
    path TEXT NOT NULL,
    PRIMARY KEY (name, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE chat_bases (
    chat TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    base TEXT NOT NULL COLLATE NOCASE,
    PRIMARY KEY (chat, base)
) STRICT, WITHOUT ROWID;
