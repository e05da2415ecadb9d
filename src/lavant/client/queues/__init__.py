"""Queues on a server: their operations for both clients, and the calls behind them."""

from lavant.broker.protocol.queues import Receipt
from lavant.client.queues.queue import AsyncQueue, Queue
from lavant.client.values.queues import Delivery, QueueConfig, SendEntry

__all__ = ["AsyncQueue", "Delivery", "Queue", "QueueConfig", "Receipt", "SendEntry"]
