"""Object storage: named byte strings below a local directory or a URI (`s3://`, `gs://`, `hdfs://` …).

Logs, slice stores, results and the manager's state live on it.
"""

from __future__ import annotations

from pathlib import Path

from lavant.broker.storage.objects.interface import ObjectStorage
from lavant.broker.storage.objects.local import LocalStorage
from lavant.core.errors import InvalidValue
from lavant.core.files import is_uri, local_path

__all__ = ["LocalStorage", "ObjectStorage", "open_storage"]


def open_storage(place: str | Path | ObjectStorage) -> ObjectStorage:
    """The storage at a local path, a `file:///…`, `hdfs://…` or any URI that `pyarrow.fs` knows; a storage is its own.

    Nothing is made or looked for yet.

    >>> open_storage("data/log")
    LocalStorage('data/log')
    """
    if not isinstance(place, str | Path):
        return place
    if is_uri(str(place)):
        if isinstance(place, Path):
            scheme = str(place).partition(":")[0]
            raise InvalidValue(f"a path is a URI ({scheme}): pass it as text, since a Path drops one of its slashes")
        if place.lower().startswith("hdfs://"):
            from lavant.broker.storage.objects.hdfs import open_hdfs_storage  # noqa: PLC0415

            return open_hdfs_storage(place)
        from lavant.broker.storage.objects.arrow import open_arrow_storage  # noqa: PLC0415

        return open_arrow_storage(place)
    return LocalStorage(local_path(place))
