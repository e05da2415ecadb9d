"""Queue backends: other brokers through which tasks travel to workers, while jobs stay here."""
