"""What is in a broker, in figures."""

from __future__ import annotations

import msgspec

from lavant.broker.machine.state import BrokerState
from lavant.service.observability.metrics import figures_of, queue_names


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    queues: int
    messages: int
    in_flight: int
    """Of the messages."""
    subscriptions: int
    advertisements: int
    jobs: int
    """Under way."""
    owed: int
    """Publications that the Spark engine has not delivered yet."""
    time_ms: int
    """Of the last record."""

    @classmethod
    def of(cls, broker: BrokerState) -> Contents:
        queues = broker.queues
        figures = [figures_of(queues, name) for name in queue_names(queues)]
        _, _, advertisements = broker.subscriptions.contents()
        return cls(
            queues=len(figures),
            messages=sum(each.visible + each.in_flight + each.delayed for each in figures),
            in_flight=sum(each.in_flight for each in figures),
            subscriptions=len(broker.subscriptions),
            advertisements=len(list(advertisements)),
            jobs=queues.running,
            owed=broker.subscriptions.lanes.owed,
            time_ms=queues.now_ms,
        )
