"""The durable broker: requests come in; records for the journal, and replies once they are durable, leave."""
