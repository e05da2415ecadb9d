"""Appends to the publication log."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pyarrow as pa

from lavant.broker.storage.log.files import FileAppender
from lavant.broker.storage.log.identity import keep_identity
from lavant.broker.storage.log.objects import ObjectAppender
from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import CorruptSnapshot, InvalidValue

FILE_BYTES_MAX = 256 << 20


class LogWriter:
    """The only writer of a log. `append` returns when the publications are on disk, if `durable`.

    >>> import tempfile
    >>> from lavant.core.publications.batch import PublicationBatch
    >>> with LogWriter(Path(tempfile.mkdtemp())) as log:
    ...     log.append(PublicationBatch.from_dicts([{"a": 1}, {"a": 2}]).records), log.end
    (0, 2)

    A new log gets the given identity or a unique one. An existing log must have the one given. At a URI each `append`
    is an object, which is always durable; a second writer gets a `StorageLocked`.
    """

    def __init__(
        self,
        place: str | Path | ObjectStorage,
        *,
        durable: bool = True,
        file_bytes_max: int = FILE_BYTES_MAX,
        identity: str | None = None,
        start: int = 0,
    ) -> None:
        """A new log begins at offset `start`."""
        storage = open_storage(place)
        self._uri = storage.uri
        self.identity = keep_identity(storage, identity)
        settings = storage.path("log.json")
        self._appender: FileAppender | ObjectAppender
        if settings is None:
            self._appender = ObjectAppender(storage, start=start)
        else:
            self._appender = FileAppender(settings.parent, durable=durable, file_bytes_max=file_bytes_max, start=start)

    @property
    def end(self) -> int:
        """The offset of the next publication."""
        return self._appender.end

    def append(self, records: pa.RecordBatch) -> int:
        """Append publications and return the offset of the first."""
        if records.num_rows == 0:
            raise InvalidValue("there are no publications to append")
        return self._appender.append(records)

    def trim(self, offset: int) -> None:
        """Delete the files that hold only publications before an offset, which are no longer needed."""
        self._appender.trim(offset)

    def cut(self, offset: int) -> None:
        """Truncate the log at an offset where an `append` began; the rest was never confirmed."""
        self._appender.cut(offset)
        if self.end != offset:
            raise CorruptSnapshot(
                f"the log {self._uri} should continue at publication {offset}, but its readable part ends "
                f"at {self.end}; restore its files from a copy"
            )

    def close(self) -> None:
        self._appender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
