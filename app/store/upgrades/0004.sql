-- A row for each deletion whose words may still lie in the file or its log: set with it, removed by the scrub.
CREATE TABLE unscrubbed (id INTEGER PRIMARY KEY AUTOINCREMENT) STRICT;
