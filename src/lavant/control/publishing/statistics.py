"""What a publisher says about itself."""

from __future__ import annotations

import msgspec

from lavant.control.publishing.latencies import Latencies


class PublisherStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Publications since the start, where they are, and what the controller knows and has set."""

    controller: str
    received: int
    dropped: int
    """Received when the buffer was full; they are not among `received`."""
    recovered: int
    """In the store when the publisher started."""
    stored: int
    """Made durable since the start."""
    published: int
    """Taken by the broker, those that it refused for good included."""
    refused: int
    retries: int
    """Handed over again after a failure, once for each time."""
    failures: int
    """Transfers that failed."""
    buffered: int
    """Received, and not stored yet."""
    waiting: int
    """Stored, and not published yet."""
    held_bytes: int
    """Of everything received or recovered, and not published yet."""
    in_flight: int
    """Of these, in transfers that are under way."""
    transfers: int
    """Transfers that are under way."""
    batch_size: int
    """N."""
    poll_ms: int
    """T_poll."""
    transfers_max: int
    load_per_s: float
    """λ_est."""
    capacity_per_s: float | None
    """η_est."""
    latencies: Latencies
    """Of the last 4096 publications."""
