"""Durable queues: messages wait until a consumer has acknowledged them, each delivered at least once."""

from lavant.broker.queues.hub import Queues
from lavant.broker.queues.limits import UNLIMITED, HubLimits

__all__ = ["UNLIMITED", "HubLimits", "Queues"]
