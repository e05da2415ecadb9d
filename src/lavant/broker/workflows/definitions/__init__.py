"""Job types: definitions, the TOML format, validation, and the graph of tasks."""
