"""Webhooks: a worker that posts the notifications of subscriptions that have an address.

    queue ──receive──► post ──┬── 2xx ──► acknowledge
                              └── else ─► hidden for a while that doubles with each attempt, then received again

All state is in the queues: a server that was killed goes on where it was. After as many attempts as the subscription
says, the queue's own rule moves a notification to the dead-letter queue.
"""

from lavant.service.delivery.webhooks.dispatcher import Webhooks

__all__ = ["Webhooks"]
