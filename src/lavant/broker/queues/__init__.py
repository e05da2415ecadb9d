"""Durable queues: messages wait until a consumer has acknowledged them, each delivered at least once."""

from lavant.broker.queues.accounting.quotas import UNLIMITED, QueueLimits
from lavant.broker.queues.machine import Queues

__all__ = ["UNLIMITED", "QueueLimits", "Queues"]
