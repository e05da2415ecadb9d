"""Durable queues: state machine, ordering, leases, de-duplication, dead letters, redrive, fan-out and a history
checker.

Queue commands and the time come in, answers leave. A message stays until a consumer acknowledges it or its retention
ends, so each is delivered at least once.
"""
