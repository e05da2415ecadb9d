"""When a client retries, and how long it pauses before."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator

import msgspec

from lavant.core.errors import LavantError, NotReady
from lavant.core.seconds import check_seconds

TIMEOUT_S = 30.0
"""The time for an answer, in addition to the long poll of a receive."""
STARTING_S = 300.0
"""How long to retry while the server says it is starting: it may compile kernels on a slow machine."""


class Retries(msgspec.Struct, frozen=True):
    """Exponential backoff with jitter, so that many clients do not come back at once."""

    within_s: float = 30.0
    """No further attempt after this time since the first failure."""
    first_s: float = 0.05
    longest_s: float = 2.0

    def __post_init__(self) -> None:
        check_seconds("within_s", self.within_s, high=math.inf)
        check_seconds("first_s", self.first_s)
        check_seconds("longest_s", self.longest_s)

    def pauses_s(self, clock: Callable[[], float] = time.monotonic) -> Iterator[float]:
        """Yields the pause before each further attempt, and ends when `within_s` is over.

        >>> pauses = Retries().pauses_s()
        >>> [0 < next(pauses) <= limit for limit in (0.05, 0.1, 0.2, 0.4)]
        [True, True, True, True]
        """
        pause, end_s = self.first_s, clock() + self.within_s
        while clock() < end_s:
            yield random.uniform(pause / 2, pause)
            pause = min(2 * pause, self.longest_s)


class Pauses:
    """The pauses before further attempts of one call, by the error of the last.

    A server that is starting is retried for longer than one that does not answer; without retries, neither is.
    """

    def __init__(self, retries: Retries, clock: Callable[[], float] = time.monotonic) -> None:
        starting_s = max(retries.within_s, STARTING_S) if retries.within_s else 0.0
        self._while_gone = retries.pauses_s(clock)
        self._while_starting = msgspec.structs.replace(retries, within_s=starting_s).pauses_s(clock)

    def after_s(self, error: LavantError) -> float | None:
        """The pause after this error; None if there is no further attempt."""
        return next(self._while_starting if isinstance(error, NotReady) else self._while_gone, None)


RETRIES = Retries()
NO_RETRIES = Retries(within_s=0)
