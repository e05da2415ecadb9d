"""Configuration of the publisher's environment: durations. The defaults are those of the reproduced figures."""

from __future__ import annotations

import msgspec

from lavant.core.errors import InvalidValue


class SubscriberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Pulls from the broker: leaves, returns, reads what was there at that moment, and leaves again.

    "Auto-tuned Publisher in a Pub/Sub System", Section V-A: a gated server with vacations; both times are exponential.
    """

    read_ms: float = 40.0
    """Mean time to read one publication: 25 a second."""
    away_ms: float = 1000.0
    """Mean time between two visits."""


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Takes transfers one after the other, up to its capacity for publications.

    A publication that does not fit waits, and so does the worker that sent it: flow control per publication, as in the
    paper.
    """

    transfer_ms: int = 0
    """To take a transfer, whatever its size."""
    each_ms: int = 0
    """To take one publication of it."""
    room: int | None = None
    """Publications that the subscriber has not read; None means unlimited."""
    subscriber: SubscriberConfig = SubscriberConfig()
    """Reads from the broker; not simulated if its capacity is unlimited."""


class SystemConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything around the publisher's machine."""

    rtt_ms: int = 140
    """From the publisher to the broker and back."""
    rtt_changes: tuple[tuple[float, int], ...] = ()
    """Later round trips: from so many seconds on, so many milliseconds; in the order of time."""
    work_ms: int = 5
    """Of a worker per publication, before it is stored and again before it is sent."""
    write_ms: int = 1
    """To write one publication to the store."""
    read_ms: int = 150
    """To read from the store, however many."""
    read_each_ms: int = 1
    """To read one more."""
    broker: BrokerConfig = BrokerConfig()

    def __post_init__(self) -> None:
        if any(rtt_ms < 0 for _, rtt_ms in self.rtt_changes) or list(self.rtt_changes) != sorted(self.rtt_changes):
            raise InvalidValue(f"rtt_changes must be in the order of time and 0 ms or more, got {self.rtt_changes}")
        for name in ("rtt_ms", "work_ms", "write_ms", "read_ms", "read_each_ms"):
            if getattr(self, name) < 0:
                raise InvalidValue(f"{name} of the simulated system must be 0 or more, got {getattr(self, name)}")

    def rtt_ms_at(self, now_s: float) -> int:
        """
        >>> system = SystemConfig(rtt_changes=((60, 400), (120, 200)))
        >>> [system.rtt_ms_at(now_s) for now_s in (0, 60, 119, 121)]
        [140, 400, 400, 200]
        """
        return next((rtt_ms for since_s, rtt_ms in reversed(self.rtt_changes) if now_s >= since_s), self.rtt_ms)
