-- Messages that stay in the window of every chat whose path they are on.
ALTER TABLE messages ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
CREATE INDEX messages_by_pin ON messages (pinned) WHERE pinned = 1;
