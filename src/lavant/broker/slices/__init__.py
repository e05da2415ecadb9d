"""Slices: parts of the subscriptions that are matched, moved and stored independently.

`SliceStore` keeps them in files, for Spark; `AccessSlice`, `MatchSlice` and `ExitSlice` are e-StreamHub's operators as
state machines, for everything else. The path of a publication:

>>> from lavant.core.publications.batch import PublicationBatch
>>> layout = SliceLayout(match=2)
>>> slices = make_slices(layout)
>>> def send(upstream, emits):
...     for emit in emits:
...         if emit.to == SINK:
...             print([emit.content.matches.of(row).tolist() for row in range(2)])
...         else:
...             send(emit.to, slices[emit.to].handle(SliceDelivery(upstream, emit.sequence, emit.content), now_ms=0))
>>> send("source", [Emit("AP:0", 1, SliceSubscribe("plain", [7, 8], ["volume > 300", "symbol = 'IBM'"]))])
>>> batch = PublicationBatch.from_dicts([{"symbol": "IBM", "volume": 200}, {"symbol": "HP", "volume": 500}])
>>> send("source", [Emit("AP:0", 2, SlicePublish("plain", batch))])
[[8], [7]]
"""

from lavant.broker.slices.access import AccessSlice
from lavant.broker.slices.exit import ExitSlice
from lavant.broker.slices.factory import make_slice, make_slices
from lavant.broker.slices.layout import SINK, SliceLayout
from lavant.broker.slices.machine import SliceMachine
from lavant.broker.slices.match import MatchSlice
from lavant.broker.slices.reader import SliceReader
from lavant.broker.slices.store import SliceStore, slice_of
from lavant.broker.slices.values import (
    Allow,
    BatchId,
    Emit,
    Matched,
    Publications,
    SliceDelivery,
    SliceNotification,
    SlicePublish,
    SliceRefusal,
    SliceSubscribe,
    SliceUnsubscribe,
)

__all__ = [
    "SINK",
    "AccessSlice",
    "Allow",
    "BatchId",
    "Emit",
    "ExitSlice",
    "MatchSlice",
    "Matched",
    "Publications",
    "SliceDelivery",
    "SliceLayout",
    "SliceMachine",
    "SliceNotification",
    "SlicePublish",
    "SliceReader",
    "SliceRefusal",
    "SliceStore",
    "SliceSubscribe",
    "SliceUnsubscribe",
    "make_slice",
    "make_slices",
    "slice_of",
]
