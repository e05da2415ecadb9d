"""Everything that a broker can be asked, and answers."""

from __future__ import annotations

from typing import TypeAlias, get_args

from lavant.broker.protocol import jobs as workflows
from lavant.broker.protocol import queues, subscriptions

Command: TypeAlias = queues.Command | subscriptions.Command | workflows.JobCommand
Query: TypeAlias = queues.Query | subscriptions.Query | workflows.JobQuery
Request: TypeAlias = queues.Request | subscriptions.Request | workflows.JobRequest
Answer: TypeAlias = queues.Answer | subscriptions.Answer | workflows.JobAnswer

QUERIES: frozenset[type] = frozenset(get_args(Query))
"""Change nothing: a mistake in one of them harms nobody but who asked."""
