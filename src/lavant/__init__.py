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
    from lavant.client.async_client import AsyncClient, connect_async
    from lavant.client.client import Client, connect
    from lavant.client.encryption import Key, NumericAttribute, Schema
    from lavant.client.workers.functions import task
    from lavant.client.workers.task import Task
    from lavant.client.workers.worker import Worker
    from lavant.core import errors
    from lavant.core.errors import LavantError, PermanentFailure
    from lavant.core.publications.batch import PublicationBatch
    from lavant.core.publications.json_lines import from_json_lines, to_json_lines
    from lavant.core.publications.publication import Advertisement, Publication, Subscription

_HOMES = {
    "lavant.broker.filters": ("Filter", "covers", "explain", "intersects"),
    "lavant.broker.matching": ("EncryptedMatcher", "Matches", "PlainMatcher", "ScanMatcher"),
    "lavant.broker.protocol.jobs": ("Result",),
    "lavant.client.async_client": ("AsyncClient", "connect_async"),
    "lavant.client.client": ("Client", "connect"),
    "lavant.client.encryption": ("Key", "NumericAttribute", "Schema"),
    "lavant.client.workers.functions": ("task",),
    "lavant.client.workers.task": ("Task",),
    "lavant.client.workers.worker": ("Worker",),
    "lavant.core.publications.batch": ("PublicationBatch",),
    "lavant.core.errors": ("LavantError", "PermanentFailure"),
    "lavant.core.publications.json_lines": ("from_json_lines", "to_json_lines"),
    "lavant.core.publications.publication": ("Advertisement", "Publication", "Subscription"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Advertisement",
    "AsyncClient",
    "Client",
    "EncryptedMatcher",
    "Filter",
    "Key",
    "LavantError",
    "Matches",
    "NumericAttribute",
    "PermanentFailure",
    "PlainMatcher",
    "Publication",
    "PublicationBatch",
    "Result",
    "ScanMatcher",
    "Schema",
    "Subscription",
    "Task",
    "Worker",
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
    if name == "errors":
        return import_module("lavant.core.errors")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'lavant' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
