"""Queues on a server: their operations for both clients, and the calls behind them."""

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Delivery, Receipt, SendEntry
from lavant.client.queues.queue import AsyncQueue, Queue

__all__ = ["AsyncQueue", "Delivery", "Queue", "QueueConfig", "Receipt", "SendEntry"]
