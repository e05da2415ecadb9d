"""Caches the slices and logs that this Python worker has open, from batch to batch.

The key is the identity as well as the path: a store or a log that was recreated at the same path is another one.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import Any

from lavant.broker.slices import SliceReader
from lavant.broker.slices.reader import StoreVersion
from lavant.broker.storage.log import LogReader

SLICES_OPEN_MAX = 256
"""Beyond this the least recently used slice is closed; the system may keep its mapped pages anyway."""

_slices: OrderedDict[tuple[Path, str, int], Any] = OrderedDict()


def open_slice(store: SliceReader, number: int, version: StoreVersion) -> Any:
    """The matcher of a slice at a version: that of the last batch, brought forward, if it is still open."""
    key = (store.directory, store.identity, number)
    matcher = store.matcher(number, version, _slices.pop(key, None))
    _slices[key] = matcher
    if len(_slices) > SLICES_OPEN_MAX:
        _slices.popitem(last=False)
    return matcher


@lru_cache(maxsize=64)
def open_log(path: str, identity: str) -> LogReader:
    return LogReader(Path(path), identity)
