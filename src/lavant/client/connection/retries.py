"""When a client tries again, and how long it waits before."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import msgspec

from lavant.core.errors import LavantError, NotReady

TIMEOUT_S = 30.0
"""For an answer, beyond the time that a receive may wait for a message."""
STARTING_S = 300.0
"""For a server that says that it is starting: it compiles kernels, perhaps, on a slow machine."""


class Retries(msgspec.Struct, frozen=True):
    """Pauses between attempts double, and are shortened by chance so that many clients do not come back at once."""

    within_s: float = 30.0
    """No further attempt when so much time has passed since the first failed."""
    first_s: float = 0.05
    longest_s: float = 2.0

    def pauses_s(self, clock: Callable[[], float] = time.monotonic) -> Iterator[float]:
        """One for each further attempt; it is looked at the clock when the next one is asked for.

        >>> pauses = Retries().pauses_s()
        >>> [0 < next(pauses) <= limit for limit in (0.05, 0.1, 0.2, 0.4)]
        [True, True, True, True]
        """
        pause, end_s = self.first_s, clock() + self.within_s
        while clock() < end_s:
            yield random.uniform(pause / 2, pause)
            pause = min(2 * pause, self.longest_s)


class Pauses:
    """Before each further attempt at one thing, by the error of the last.

    A server that is starting is waited for longer than one that is gone; without retries, neither is.
    """

    def __init__(self, retries: Retries, clock: Callable[[], float] = time.monotonic) -> None:
        starting_s = max(retries.within_s, STARTING_S) if retries.within_s else 0.0
        self._while_gone = retries.pauses_s(clock)
        self._while_starting = msgspec.structs.replace(retries, within_s=starting_s).pauses_s(clock)

    def after_s(self, error: LavantError) -> float | None:
        """None if there is to be no further attempt."""
        return next(self._while_starting if isinstance(error, NotReady) else self._while_gone, None)


RETRIES = Retries()
NO_RETRIES = Retries(within_s=0)
