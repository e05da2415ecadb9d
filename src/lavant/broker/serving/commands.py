"""Everything that a broker can be asked, and answers."""

from __future__ import annotations

from typing import TypeAlias

from lavant.broker.queues import commands as queues
from lavant.broker.subscriptions import commands as subscriptions

Command: TypeAlias = queues.Command | subscriptions.Command
Request: TypeAlias = queues.Request | subscriptions.Request
Answer: TypeAlias = queues.Answer | subscriptions.Answer
