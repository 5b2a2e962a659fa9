"""From a question to a fenced block: decide, search, rank, assemble; and afterwards cite."""
