"""Counters, memory accounting, limits and quotas of queues."""
