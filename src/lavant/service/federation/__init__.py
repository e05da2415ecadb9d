"""Links to other brokers: they come in as connections with a preface of their own, or go out to each `--join`."""
