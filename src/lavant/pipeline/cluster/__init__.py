"""Elastic executors: the manager, its durable state, its probes, and a standalone cluster on one machine."""
