"""The publisher in virtual time: its store, its workers, its way to a broker, and a subscriber that may be slow."""
