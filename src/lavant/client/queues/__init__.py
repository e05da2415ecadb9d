"""Clients of a server of queues: blocking and asynchronous."""

from lavant.broker.queues.commands import Delivery, Entry, Receipt
from lavant.broker.queues.config import QueueConfig
from lavant.client.queues.asynchronous import AsyncQueue, AsyncQueueClient
from lavant.client.queues.blocking import Queue, QueueClient

__all__ = ["AsyncQueue", "AsyncQueueClient", "Delivery", "Entry", "Queue", "QueueClient", "QueueConfig", "Receipt"]
