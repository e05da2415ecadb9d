"""Subscriptions and advertisements: registry, routing of matches to queues, idempotency keys, log offsets.

Commands about subscriptions come in; changes for matchers and fan-outs for queues leave.
"""
