"""Settings of the RabbitMQ bridge."""

from __future__ import annotations

import msgspec

from lavant.broker.protocol.amqp_messages import check_address
from lavant.core.errors import InvalidValue

AHEAD_MAX = 10.0
LEASE_S_MIN, LEASE_S_MAX = 1.0, 3600.0


class RabbitMQSettings(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    ahead: float = 1.0
    """Tasks in RabbitMQ for each consumer (prefetch). More than one hides the round trip of some milliseconds, but a
    task's service time then begins before its work does."""
    lease_s: float = 30.0
    """A worker without a report or heartbeat for so long counts as dead."""

    def __post_init__(self) -> None:
        check_address(self.url)
        if not 1.0 <= self.ahead <= AHEAD_MAX:
            raise InvalidValue(f"ahead must be between 1 and {AHEAD_MAX:g}, got {self.ahead:g}")
        if not LEASE_S_MIN <= self.lease_s <= LEASE_S_MAX:
            raise InvalidValue(f"lease_s must be between {LEASE_S_MIN:g} and {LEASE_S_MAX:g}, got {self.lease_s:g}")
