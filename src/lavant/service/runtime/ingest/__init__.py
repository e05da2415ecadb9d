"""Ingest: publications wait in order, gather to batches, are matched, and reach the journal with their deliveries."""
