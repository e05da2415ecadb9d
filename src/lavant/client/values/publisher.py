"""The configuration of a publisher, its statistics and its decisions."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from lavant.client.values.mirror import Bounds, Mirror, check_types, to_protocol
from lavant.control import publishing as original
from lavant.core import decisions
from lavant.core.errors import InvalidValue
from lavant.core.seconds import SECOND_MS

_TUNING, _CONFIG = original.TuningConfig(), original.PublisherConfig()
_RANGE_MS = (1, 24 * 3600 * SECOND_MS)


def _check_order(lower: str, low: float, upper: str, high: float) -> None:
    if low > high:
        raise InvalidValue(f"{lower} must not be above {upper}, got {low} and {high}")


class TuningConfig(Mirror[original.TuningConfig], frozen=True, kw_only=True):
    """How publications are gathered into batches, by a `controller`: `eager`, `aimd` or `fixed`."""

    controller: str = _TUNING.controller
    batch_size: int = _TUNING.batch_size
    """At first; for `fixed`, always. `eager` takes up to `batch_size_max` from the start."""
    batch_size_min: int = _TUNING.batch_size_min
    batch_size_max: int = _TUNING.batch_size_max
    poll_s: float = _TUNING.poll_ms / SECOND_MS
    """The polling interval at first; for `fixed`, always. `eager` does not poll."""
    poll_s_min: float = _TUNING.poll_ms_min / SECOND_MS
    poll_s_max: float = _TUNING.poll_ms_max / SECOND_MS
    poll_margin: float = _TUNING.poll_margin
    """The polling interval is so many times the time it took to pass a batch to workers."""
    load_gain: float = _TUNING.load_gain
    """The weight of the past in the estimate of the load."""
    capacity_gain: float = _TUNING.capacity_gain
    """The weight of the past in the estimate of the server's capacity."""

    _bounds_ms: ClassVar[Bounds] = {"poll_s": _RANGE_MS, "poll_s_min": _RANGE_MS, "poll_s_max": _RANGE_MS}

    def __post_init__(self) -> None:
        check_types(self)
        self._check_times()
        _check_order("poll_s_min", self.poll_s_min, "poll_s_max", self.poll_s_max)
        to_protocol(self)


class PublisherConfig(Mirror[original.PublisherConfig], frozen=True, kw_only=True):
    """The whole publisher: workers, limits, and retries."""

    tuning: TuningConfig = TuningConfig()
    workers: int = _CONFIG.workers
    """They store received publications and publish stored ones."""
    workers_reserved: int = _CONFIG.workers_reserved
    """Workers that never publish: a server that blocks all others cannot keep the publisher from receiving."""
    buffer_max: int = _CONFIG.buffer_max
    """Publications received that no worker has taken yet; when it is full, the next is dropped."""
    stored_max: int = _CONFIG.stored_max
    """Publications stored and not yet published; at this many, new ones wait in the buffer."""
    held_bytes_max: int = _CONFIG.held_bytes_max
    """Of all publications not published yet; above it, the next is dropped."""
    writes_max: int = _CONFIG.writes_max
    """Workers that may store at the same time."""
    write_size_max: int = _CONFIG.write_size_max
    """Publications that one worker stores at once."""
    transfer_size_max: int = _CONFIG.transfer_size_max
    """Publications that one worker publishes at once."""
    wait_s_max: float = _CONFIG.wait_ms_max / SECOND_MS
    """After waiting so long for a batch to fill, the publications present are taken."""
    backoff_s_min: float = _CONFIG.backoff_ms_min / SECOND_MS
    backoff_s_max: float = _CONFIG.backoff_ms_max / SECOND_MS
    """The pause after a failure, doubled with each further failure, up to the maximum."""
    jitter_seed: int = _CONFIG.jitter_seed
    """Publishers with different seeds pause for different times, so that they do not all return at once."""

    _bounds_ms: ClassVar[Bounds] = {
        "wait_s_max": _RANGE_MS,
        "backoff_s_min": _RANGE_MS,
        "backoff_s_max": _RANGE_MS,
    }

    def __post_init__(self) -> None:
        check_types(self)
        self._check_times()
        _check_order("backoff_s_min", self.backoff_s_min, "backoff_s_max", self.backoff_s_max)
        to_protocol(self)


class Latencies(Mirror[original.Latencies], frozen=True, kw_only=True):
    """From received to published; all 0 if nothing was published yet."""

    mean_s: float = 0.0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0


class PublisherStatistics(Mirror[original.PublisherStatistics], frozen=True, kw_only=True):
    """Publications since the start, where they are, and the controller's estimates and settings."""

    controller: str
    received: int
    dropped: int
    """Dropped because the buffer was full; not among `received`."""
    recovered: int
    """In the store when the publisher started."""
    stored: int
    """Made durable since the start."""
    published: int
    """Taken by the server, including those it refused for good."""
    refused: int
    retries: int
    """Sent again after a failure, counted each time."""
    failures: int
    """Transfers that failed."""
    buffered: int
    """Received and not stored yet."""
    waiting: int
    """Stored and not published yet."""
    held_bytes: int
    """Of everything received or recovered and not published yet."""
    in_flight: int
    """Of these, in transfers in flight."""
    transfers: int
    """Transfers in flight."""
    batch_size: int
    poll_s: float
    transfers_max: int
    load_per_s: float
    """Estimated."""
    capacity_per_s: float | None
    """Estimated."""
    latencies: Latencies
    """Of the last 4096 publications."""


class Decision(Mirror[decisions.Decision], frozen=True, kw_only=True):
    """What the controller decided at `time_s` of a clock that no one sets, the reason, and the figures behind it."""

    loop: str
    action: str
    reason: str
    figures: dict[str, float] = field(default_factory=dict)
    time_s: float = 0.0

    def __str__(self) -> str:
        return str(to_protocol(self))
