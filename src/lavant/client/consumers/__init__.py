"""Consumers: receive messages of a queue in loops or by handlers, with prefetching and leases that are extended."""
