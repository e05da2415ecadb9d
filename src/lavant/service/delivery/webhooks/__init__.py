"""Delivery by webhook: the server posts the messages of a subscription to an address.

    queue ──receive──► post ──┬── 2xx ──► acknowledge
                              └── else ─► hidden for a pause that doubles with each attempt, then received again

All state is in the queues: a server that was killed resumes where it was. After `attempts_max` attempts, the queue
moves a message to its dead letters.
"""

from lavant.service.delivery.webhooks.sender import WebhookDelivery

__all__ = ["WebhookDelivery"]
