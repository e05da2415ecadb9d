"""Randomness from one seed, split into named streams.

A stream depends on the seed and its name only: not on which other streams exist, nor on the order of requests, nor on
Python's hash seed. So a scenario with one more client keeps the links of the others unchanged, and switching off a
fault leaves the times of all other faults alone.
"""

from __future__ import annotations

import hashlib
from random import Random


class Randomness:
    """Streams by name; asking for a name again returns the same stream, further on.

    >>> Randomness(7).stream("link").random() == Randomness(7).stream("link").random()
    True
    >>> randomness = Randomness(7)
    >>> randomness.stream("link") is randomness.stream("link")
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, Random] = {}

    def stream(self, name: str) -> Random:
        stream = self._streams.get(name)
        if stream is None:
            digest = hashlib.blake2b(f"{self.seed}\n{name}".encode(), digest_size=32).digest()
            stream = self._streams[name] = Random(int.from_bytes(digest, "big"))
        return stream
