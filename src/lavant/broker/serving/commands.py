"""Everything that a broker can be asked, and answers."""

from __future__ import annotations

from typing import TypeAlias, get_args

from lavant.broker.queues import commands as queues
from lavant.broker.subscriptions import commands as subscriptions
from lavant.broker.workflows import commands as workflows

Command: TypeAlias = queues.Command | subscriptions.Command | workflows.JobCommand
Query: TypeAlias = queues.Query | subscriptions.Query | workflows.JobQuery
Request: TypeAlias = queues.Request | subscriptions.Request | workflows.JobRequest
Answer: TypeAlias = queues.Answer | subscriptions.Answer | workflows.JobAnswer

QUERIES: frozenset[type] = frozenset(get_args(Query))
"""Change nothing: a mistake in one of them harms nobody but who asked."""
