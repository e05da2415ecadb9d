"""The server process: event loop, ingest queue, clock, and the broker machine with its effects performed."""
