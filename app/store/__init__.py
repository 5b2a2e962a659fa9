"""chats.db: message tree, favourites, journal, outbox."""
