"""What decides how publications are gathered: the interface of controllers.

A controller has `settings`, is told what happened, and may change them: then it returns a decision that says why. It
never reads a clock: the time is in the figures it is given.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from lavant.core.decisions import Decision

LOOP = "tuning"


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller controls."""

    batch_size: int
    """N: so many are waited for, and at most so many taken from the store at once."""
    poll_ms: int
    """T_poll: how often it is looked whether there are N; 0 means to take what is there, as soon as it is there."""
    transfers_max: int
    """Workers that may hand over to the broker at the same time."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at one moment."""

    now_ms: int
    load_per_s: float
    """λ_est."""
    capacity_per_s: float | None
    """η_est; None while nothing was published yet."""
    waiting: int
    """Publications in the store that nobody has taken yet."""
    transfers: int
    """On their way to the broker."""
    silence_ms: int
    """How long transfers are on their way without any of them ending."""
    transfer_size: int = 1
    """Publications of a transfer on its way, on average."""

    def decision(self, action: str, reason: str, settings: BatchSettings, **figures: float) -> Decision:
        """With these figures, and the settings that are decided."""
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
    """Others that were under way when it began."""
    was_held: bool
    """More was ready at its end than might go."""


class Controller(Protocol):
    """Told at each turn of the publisher what happened; a change of `settings` is a decision."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> BatchSettings: ...

    def fell_short(self, figures: Figures) -> Decision | None:
        """The polling interval is over, and fewer than N are waiting."""
        ...

    def handed_over(self, figures: Figures, *, took_ms: int, in_time: bool, was_full: bool) -> Decision | None:
        """A batch is in the workers' hands: T_mpt, whether the next poll is still to come, whether there were N."""
        ...

    def wants_to_send(self, figures: Figures) -> Decision | None:
        """Something could be handed to the broker now."""
        ...

    def published(self, figures: Figures, ended: TransferEnded) -> Decision | None:
        """A transfer ended well."""
        ...

    def failed(self, figures: Figures) -> Decision | None:
        """A transfer failed."""
        ...


class Passive:
    """What a controller does not care about changes nothing."""

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
