"""Object storage in memory, for tests of what lives on it."""

from __future__ import annotations

from itertools import count

from pyarrow import fs

from lavant.broker.storage.objects.arrow import ArrowStorage
from lavant.broker.storage.objects.uris import parse_uri

_numbers = count()


def memory_storage() -> ArrowStorage:
    """A new and empty storage that is not local."""
    name = f"store-{next(_numbers)}"
    return ArrowStorage(fs._MockFileSystem(), name, parse_uri(f"mock://{name}"))
