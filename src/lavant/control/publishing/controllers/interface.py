"""The interface of controllers, which decide how publications are gathered into batches.

A controller has `settings`, is told what happened, and may change them: then it returns a decision that says why. It
never reads a clock: the time is in the figures it is given.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from lavant.core.decisions import Decision

LOOP = "tuning"


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The controlled settings."""

    batch_size: int
    """N: the batch size to wait for, and the most taken from the store at once."""
    poll_ms: int
    """T_poll: the interval between checks for N; 0 means to take publications as soon as there are any."""
    transfers_max: int
    """Workers that may publish at the same time."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements at one moment."""

    now_ms: int
    load_per_s: float
    """λ_est."""
    capacity_per_s: float | None
    """η_est; None while nothing was published yet."""
    waiting: int
    """Publications in the store, not taken yet."""
    transfers: int
    """In flight to the broker."""
    silence_ms: int
    """How long transfers have been in flight without any of them ending."""
    transfer_size: int = 1
    """Mean number of publications of a transfer in flight."""

    def decision(self, action: str, reason: str, settings: BatchSettings, **figures: float) -> Decision:
        """A decision with these figures and the new settings."""
        known = {} if self.capacity_per_s is None else {"capacity_per_s": self.capacity_per_s}
        return Decision(
            loop=LOOP,
            action=action,
            reason=reason,
            figures={
                **msgspec.structs.asdict(settings),
                "load_per_s": self.load_per_s,
                "waiting": self.waiting,
                "transfers": self.transfers,
                **known,
                **figures,
            },
            time_ms=self.now_ms,
        )


class TransferEnded(NamedTuple):
    """A transfer that the broker has acknowledged."""

    size: int
    """Publications in it."""
    duration_ms: int
    rivals: int
    """Others in flight when it began."""
    was_held: bool
    """More was ready at its end than was allowed."""


class Controller(Protocol):
    """Told what happened at each step of the publisher; a change of `settings` is a decision."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> BatchSettings: ...

    def fell_short(self, figures: Figures) -> Decision | None:
        """The polling interval is over, and fewer than N are waiting."""
        ...

    def handed_over(self, figures: Figures, *, took_ms: int, in_time: bool, was_full: bool) -> Decision | None:
        """Workers have taken a batch: T_mpt, whether the next poll is still to come, whether there were N."""
        ...

    def wants_to_send(self, figures: Figures) -> Decision | None:
        """Something could be sent to the broker now."""
        ...

    def published(self, figures: Figures, ended: TransferEnded) -> Decision | None:
        """A transfer succeeded."""
        ...

    def failed(self, figures: Figures) -> Decision | None:
        """A transfer failed."""
        ...


class Passive:
    """Ignores every event that a subclass does not handle."""

    def fell_short(self, figures: Figures) -> Decision | None:
        return None

    def handed_over(self, figures: Figures, *, took_ms: int, in_time: bool, was_full: bool) -> Decision | None:
        return None

    def wants_to_send(self, figures: Figures) -> Decision | None:
        return None

    def published(self, figures: Figures, ended: TransferEnded) -> Decision | None:
        return None

    def failed(self, figures: Figures) -> Decision | None:
        return None
