"""Configuration of a publisher, with all defaults and validation.

The defaults are those of the paper ("Auto-tuned Publisher in a Pub/Sub System", Table I) where it has one: a polling
interval of 50 to 200 ms, T = 200 ms, α = 0.5, γ = 0.75, β = 1.2, N from 1 on.
"""

from __future__ import annotations

import math

import msgspec

from lavant.core.errors import InvalidValue


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise InvalidValue(f"{name} must be 1 or more, got {value}")


class TuningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How publications are gathered into batches. `controller` is a name in `registry.CONTROLLERS`."""

    controller: str = "eager"
    batch_size: int = 1
    """Initial N; for `fixed`, N. `eager` takes up to `batch_size_max` from the start."""
    batch_size_min: int = 1
    batch_size_max: int = 1000
    poll_ms: int = 50
    """Initial T_poll; for `fixed`, T_poll. `eager` does not poll."""
    poll_ms_min: int = 50
    poll_ms_max: int = 200
    poll_margin: float = 1.2
    """β: the polling interval is so many times the time it took to pass a batch to workers."""
    load_gain: float = 0.5
    """α: the weight of the past in the estimate of the load (Equation 1)."""
    capacity_gain: float = 0.75
    """γ: the weight of the past in the estimate of the broker's capacity (Equation 2)."""

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size_min <= self.batch_size <= self.batch_size_max:
            raise InvalidValue(
                "tuning needs 1 ≤ batch_size_min ≤ batch_size ≤ batch_size_max, "
                f"got {self.batch_size_min}, {self.batch_size} and {self.batch_size_max}"
            )
        if not 1 <= self.poll_ms_min <= self.poll_ms_max:
            raise InvalidValue(
                f"tuning needs 1 ≤ poll_ms_min ≤ poll_ms_max, got {self.poll_ms_min} and {self.poll_ms_max}"
            )
        _require_positive("tuning poll_ms", self.poll_ms)
        if not (math.isfinite(self.poll_margin) and self.poll_margin > 1):
            raise InvalidValue(
                f"tuning poll_margin must be above 1, got {self.poll_margin}; "
                "otherwise every batch is late, and batches shrink to nothing"
            )
        for name in ("load_gain", "capacity_gain"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidValue(f"tuning {name} must be 0 or more and below 1, got {getattr(self, name)}")


class PublisherConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole publisher: workers, limits, and retries."""

    tuning: TuningConfig = TuningConfig()
    workers: int = 20
    """They store received publications and publish stored ones."""
    workers_reserved: int = 3
    """Workers that never publish: a broker that blocks all others cannot keep the publisher from receiving."""
    buffer_max: int = 1000
    """Publications received that no worker has taken yet; when it is full, the next is dropped."""
    stored_max: int = 100_000
    """Publications stored and not yet published; at this many, new ones wait in the buffer."""
    held_bytes_max: int = 256 << 20
    """Of all publications not published yet; above it, the next is dropped."""
    writes_max: int = 20
    """Workers that may store at the same time."""
    write_size_max: int = 1
    """Publications that one worker stores at once."""
    transfer_size_max: int = 500
    """Publications that one worker publishes at once."""
    wait_ms_max: int = 200
    """T: after waiting so long for N publications, those present are taken."""
    backoff_ms_min: int = 100
    backoff_ms_max: int = 30_000
    """The pause after a failure, doubled with each further failure, up to the maximum."""
    jitter_seed: int = 0
    """Publishers with different seeds pause for different times, so that they do not all return at once."""

    def __post_init__(self) -> None:
        if not 0 <= self.workers_reserved < self.workers:
            raise InvalidValue(
                f"a publisher needs 0 ≤ workers_reserved < workers, got {self.workers_reserved} and {self.workers}; "
                "those that are not reserved publish"
            )
        for name in (
            "buffer_max",
            "stored_max",
            "held_bytes_max",
            "writes_max",
            "write_size_max",
            "transfer_size_max",
            "wait_ms_max",
        ):
            _require_positive(f"publisher {name}", getattr(self, name))
        if not 1 <= self.backoff_ms_min <= self.backoff_ms_max:
            raise InvalidValue(
                "a publisher needs 1 ≤ backoff_ms_min ≤ backoff_ms_max, "
                f"got {self.backoff_ms_min} and {self.backoff_ms_max}"
            )

    @property
    def transfers_max(self) -> int:
        """Workers that may publish at the same time."""
        return self.workers - self.workers_reserved
