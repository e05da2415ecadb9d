"""Lavant: elastic publish/subscribe. The names that applications need are here; everything else is one package below.

>>> import lavant
>>> matcher = lavant.PlainMatcher()
>>> matcher.add([1, 2], ["symbol = 'YHOO' and volume > 300000", "price < 10 or symbol like 'I%'"])
>>> rows = [{"symbol": "YHOO", "volume": 300001}, {"symbol": "IBM", "price": 121.5}]
>>> quotes = lavant.PublicationBatch.from_dicts(rows)
>>> [matcher.match(quotes).of(i).tolist() for i in range(len(quotes))]
[[1], [2]]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lavant.broker.filters import Filter, covers, explain, intersects
    from lavant.broker.matching import EncryptedMatcher, Matches, PlainMatcher, ScanMatcher
    from lavant.broker.protocol.jobs import Result
    from lavant.broker.protocol.queues import Receipt
    from lavant.client.async_client import AsyncClient, connect_async
    from lavant.client.client import Client, connect
    from lavant.client.connection.retries import Retries
    from lavant.client.consumers.consumer import AsyncConsumer, Consumer, QueueMessage
    from lavant.client.encryption import Key, NumericAttribute, Schema
    from lavant.client.publisher import Publisher, PublisherConfig, PublisherStatistics, TuningConfig
    from lavant.client.queues.queue import AsyncQueue, Queue
    from lavant.client.subscriptions.async_subscription import AsyncSubscription
    from lavant.client.subscriptions.notification import Notification
    from lavant.client.subscriptions.subscription import Subscription
    from lavant.client.values.jobs import JobSummary, JobView, ScheduleState
    from lavant.client.values.queues import Delivery, Described, MoveState, PeekedMessage, QueueConfig, SendEntry
    from lavant.client.values.subscriptions import AdvertisementState, SubscriptionState, Webhook
    from lavant.client.workers.functions import task
    from lavant.client.workers.task import Task
    from lavant.client.workers.worker import Worker
    from lavant.client.workflows import Workflow
    from lavant.core import errors
    from lavant.core.errors import (
        Conflict,
        Denied,
        Internal,
        Invalid,
        LavantError,
        Missing,
        OverLimit,
        PartlyRefused,
        PermanentFailure,
        Unavailable,
    )
    from lavant.core.publications.batch import PublicationBatch
    from lavant.core.publications.json_lines import from_json_lines, to_json_lines
    from lavant.core.publications.publication import Advertisement, Publication
    from lavant.core.publications.trace_context import TraceContext

    __version__: str

_HOMES = {
    "lavant.broker.filters": ("Filter", "covers", "explain", "intersects"),
    "lavant.broker.matching": ("EncryptedMatcher", "Matches", "PlainMatcher", "ScanMatcher"),
    "lavant.broker.protocol.jobs": ("Result",),
    "lavant.broker.protocol.queues": ("Receipt",),
    "lavant.client.async_client": ("AsyncClient", "connect_async"),
    "lavant.client.client": ("Client", "connect"),
    "lavant.client.connection.retries": ("Retries",),
    "lavant.client.consumers.consumer": ("AsyncConsumer", "Consumer", "QueueMessage"),
    "lavant.client.encryption": ("Key", "NumericAttribute", "Schema"),
    "lavant.client.publisher": ("Publisher", "PublisherConfig", "PublisherStatistics", "TuningConfig"),
    "lavant.client.queues.queue": ("AsyncQueue", "Queue"),
    "lavant.client.subscriptions.async_subscription": ("AsyncSubscription",),
    "lavant.client.subscriptions.notification": ("Notification",),
    "lavant.client.subscriptions.subscription": ("Subscription",),
    "lavant.client.values.jobs": ("JobSummary", "JobView", "ScheduleState"),
    "lavant.client.values.queues": (
        "Delivery",
        "Described",
        "MoveState",
        "PeekedMessage",
        "QueueConfig",
        "SendEntry",
    ),
    "lavant.client.values.subscriptions": ("AdvertisementState", "SubscriptionState", "Webhook"),
    "lavant.client.workers.functions": ("task",),
    "lavant.client.workers.task": ("Task",),
    "lavant.client.workers.worker": ("Worker",),
    "lavant.client.workflows": ("Workflow",),
    "lavant.core.errors": (
        "Conflict",
        "Denied",
        "Internal",
        "Invalid",
        "LavantError",
        "Missing",
        "OverLimit",
        "PartlyRefused",
        "PermanentFailure",
        "Unavailable",
    ),
    "lavant.core.publications.batch": ("PublicationBatch",),
    "lavant.core.publications.json_lines": ("from_json_lines", "to_json_lines"),
    "lavant.core.publications.publication": ("Advertisement", "Publication"),
    "lavant.core.publications.trace_context": ("TraceContext",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Advertisement",
    "AdvertisementState",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncQueue",
    "AsyncSubscription",
    "Client",
    "Conflict",
    "Consumer",
    "Delivery",
    "Denied",
    "Described",
    "EncryptedMatcher",
    "Filter",
    "Internal",
    "Invalid",
    "JobSummary",
    "JobView",
    "Key",
    "LavantError",
    "Matches",
    "Missing",
    "MoveState",
    "Notification",
    "NumericAttribute",
    "OverLimit",
    "PartlyRefused",
    "PeekedMessage",
    "PermanentFailure",
    "PlainMatcher",
    "Publication",
    "PublicationBatch",
    "Publisher",
    "PublisherConfig",
    "PublisherStatistics",
    "Queue",
    "QueueConfig",
    "QueueMessage",
    "Receipt",
    "Result",
    "Retries",
    "ScanMatcher",
    "ScheduleState",
    "Schema",
    "SendEntry",
    "Subscription",
    "SubscriptionState",
    "Task",
    "TraceContext",
    "TuningConfig",
    "Unavailable",
    "Webhook",
    "Worker",
    "Workflow",
    "__version__",
    "connect",
    "connect_async",
    "covers",
    "errors",
    "explain",
    "from_json_lines",
    "intersects",
    "task",
    "to_json_lines",
]


def __getattr__(name: str) -> Any:
    """Loads a name when it is first used: `import lavant` itself costs nothing."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        found: Any = version("lavant")
    elif name == "errors":
        found = import_module("lavant.core.errors")
    elif name in _HOME_OF:
        from lavant.core.packages import named_extras  # noqa: PLC0415  `import lavant` loads no other module

        with named_extras():
            found = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'lavant' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The names for applications, and what every module has."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
