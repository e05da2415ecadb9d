"""Everything that a broker can be asked, and answers."""

from __future__ import annotations

from typing import TypeAlias

from lavant.broker.queues import commands as queues
from lavant.broker.subscriptions import commands as subscriptions
from lavant.broker.workflows import commands as workflows

Command: TypeAlias = queues.Command | subscriptions.Command | workflows.JobCommand
Request: TypeAlias = queues.Request | subscriptions.Request | workflows.JobRequest
Answer: TypeAlias = queues.Answer | subscriptions.Answer | workflows.JobAnswer
