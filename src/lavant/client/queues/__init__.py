"""Queues on a server, as clients use them."""

from lavant.broker.queues.commands import Delivery, Entry, Receipt
from lavant.broker.queues.config import QueueConfig
from lavant.client.queues.asynchronous import AsyncQueue
from lavant.client.queues.blocking import Queue

__all__ = ["AsyncQueue", "Delivery", "Entry", "Queue", "QueueConfig", "Receipt"]
