-- Messages that stay in the window of every chat whose path they are on.
ALTER TABLE messages ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
