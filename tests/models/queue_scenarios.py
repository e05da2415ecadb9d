"""Scenarios of the reliable queue for tests."""

from __future__ import annotations

import msgspec

from lavant.models.reliable_queue import Phase, QueueScenario, ServiceTime, TimerStart
from lavant.models.reliable_queue.scenario import DeliveryOrder, ServiceFamily


def paper(threads: int, q: float, order: DeliveryOrder = DeliveryOrder.OUT_OF_ORDER) -> QueueScenario:
    phase = Phase(count=threads, service=ServiceTime(mean_s=0.1))
    return QueueScenario(
        arrival_rate_per_s=30.3,
        senders=phase,
        consumers=phase,
        loss=1 - q,
        visibility_s=0.0,
        timer=TimerStart.SEND,
        order=order,
    )


def at_queue(**changes: object) -> QueueScenario:
    scenario = QueueScenario(arrival_rate_per_s=30.0, consumers=Phase(count=5, service=ServiceTime(mean_s=0.1)))
    return msgspec.structs.replace(scenario, **changes)


def phase_of(count: int, mean_s: float, scv: float, family: str = "gamma") -> Phase:
    return Phase(count=count, service=ServiceTime(mean_s=mean_s, scv=scv, family=ServiceFamily(family)))
