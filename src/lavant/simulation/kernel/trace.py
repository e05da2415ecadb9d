"""The trace of a run, one line per event, with a running digest: the same seed gives the same bytes in any process.

    1.204331 client-2 > server Increment(session='client-2/1', number=7) +412
    │        │        │ └ the rest: whom, what, and how it went
    │        │        └ the kind
    │        └ who
    └ seconds of virtual time

Only the last lines are kept in memory; all go to files, if given. The digest covers all of them.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from typing import TextIO

from lavant.core.errors import InvalidValue

LINES_KEPT = 1_000
VALUE_CHARACTERS_MAX = 120
_BATCH_LINES = 256


class Trace:
    """Lines about a run."""

    def __init__(self, *files: TextIO, kept: int = LINES_KEPT) -> None:
        self.lines = 0
        self._files = files
        self._last: deque[str] = deque(maxlen=kept)
        self._batch: list[str] = []
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, now_us: int, text: str) -> None:
        if " at 0x" in text:
            raise InvalidValue(
                f"a line of the trace shows an address in memory, which differs from run to run: {text}; "
                "give the value a __repr__ of its contents (a msgspec.Struct has one)"
            )
        self.lines += 1
        self._batch.append(f"{now_us // 1_000_000}.{now_us % 1_000_000:06d} {text}\n")
        if len(self._batch) >= _BATCH_LINES:
            self._flush()

    def last(self, count: int) -> list[str]:
        """The last lines that are kept, oldest first."""
        self._flush()
        return [line[:-1] for line in list(self._last)[-count:]] if count > 0 else []

    def digest(self) -> str:
        self._flush()
        return self._digest.hexdigest()

    def _flush(self) -> None:
        if not self._batch:
            return
        text = "".join(self._batch)
        self._digest.update(text.encode())
        self._last.extend(self._batch)
        for file in self._files:
            file.write(text)
        self._batch.clear()


def shown(value: object) -> str:
    """A value on one short line; a cut is marked by length and checksum.

    >>> shown({"a": 1})
    "{'a': 1}"
    >>> shown(b"x" * 300)[-30:]
    'xxxxxxxxxx…(303, crc 1ee1620b)'
    """
    text = repr(value)
    if len(text) <= VALUE_CHARACTERS_MAX:
        return text
    return f"{text[: VALUE_CHARACTERS_MAX - 32]}…({len(text)}, crc {zlib.crc32(text.encode()):08x})"
