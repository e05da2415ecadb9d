"""The slices that this Python worker has open, kept from batch to batch."""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import Any

from lavant.broker.log import LogReader
from lavant.broker.slices import SliceReader
from lavant.broker.slices.store import Version

SLICES_OPEN_MAX = 256
"""Beyond this the slice that was not used for longest is closed; its mapped pages were the system's to keep anyway."""

_slices: OrderedDict[tuple[str, int], Any] = OrderedDict()


def open_slice(store: str, number: int, version: Version) -> Any:
    """The matcher of a slice at a version: the one of the last batch, brought forward, if it is still open."""
    key = (store, number)
    matcher = _reader(store).matcher(number, version, _slices.pop(key, None))
    _slices[key] = matcher
    if len(_slices) > SLICES_OPEN_MAX:
        _slices.popitem(last=False)
    return matcher


def store_version(store: str, number: int | None = None) -> Version:
    return _reader(store).version(number)


@lru_cache(maxsize=64)
def scheme_of(store: str) -> str:
    return _reader(store).settings.scheme


@lru_cache(maxsize=64)
def open_log(path: str) -> LogReader:
    return LogReader(Path(path))


@lru_cache(maxsize=64)
def _reader(store: str) -> SliceReader:
    return SliceReader(Path(store))
