"""When a client tries again, and how long it waits before."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from lavant.core.errors import InvalidValue

TIMEOUT_S = 30.0
"""For an answer, beyond the time that a receive may wait for a message."""


def check_timeout(timeout_s: float) -> None:
    """
    >>> check_timeout(0)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: a client's timeout_s must be positive, got 0
    """
    if not timeout_s > 0:
        raise InvalidValue(f"a client's timeout_s must be positive, got {timeout_s}")


class Retries(msgspec.Struct, frozen=True):
    """Pauses between attempts double, and are shortened by chance so that many clients do not come back at once."""

    count: int = 8
    first_s: float = 0.05
    longest_s: float = 2.0

    def pauses_s(self) -> Iterator[float]:
        """One for each further attempt.

        >>> [0 < pause <= limit for pause, limit in zip(Retries(4).pauses_s(), (0.05, 0.1, 0.2, 0.4), strict=True)]
        [True, True, True, True]
        """
        pause = self.first_s
        for _ in range(self.count):
            yield random.uniform(pause / 2, pause)
            pause = min(2 * pause, self.longest_s)


RETRIES = Retries()
NO_RETRIES = Retries(count=0)
