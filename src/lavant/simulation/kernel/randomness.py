"""Chance from one seed, split by name: each user has a stream of its own.

A stream depends on the seed and its name only: not on which streams there are besides, nor on the order in which they
were asked for, nor on Python's hash seed. So a scenario that gets one more client keeps the links of the others as they
were, and a fault that is switched off leaves the times of all other faults alone.
"""

from __future__ import annotations

import hashlib
from random import Random


class Randomness:
    """Streams by name; a name asked for again is the same stream, further on.

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
