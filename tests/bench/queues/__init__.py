"""Durable queues: ours, and others beside them in the same run."""
