"""Compares ways to know a reliable queue: for each, delivery times with intervals, attempts and utilisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lavant.cli.reports.charts import Chart, ChartLine, picture
from lavant.cli.reports.queue_models.live import require_live, run_queue
from lavant.core.errors import InvalidValue
from lavant.models.reliable_queue import QueueScenario, predict
from lavant.simulation.queueing.steady import Estimate
from lavant.simulation.reliable_queue.net import net_of, simulate_net
from lavant.simulation.reliable_queue.observed import ObservedQueue, controlled
from lavant.simulation.reliable_queue.queue_machine import simulate_queue

EQUATIONS, NET, MACHINE, LIVE = "equations", "Petri net", "queue machine", "live server"
CONTROLLED = "live, controlled"
"""The live server with the queue machine as its control variate."""


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one way says about one scenario."""

    way: str
    utilisation: float
    """Of consumers, as predicted."""
    delivery_s: Estimate
    p95_s: Estimate
    attempts: float
    duplicates: float
    busy: float


def with_utilisation(scenario: QueueScenario, utilisation: float) -> QueueScenario:
    """The scenario at another load: so busy are consumers if every message is attempted 1/q times."""
    if not 0 < utilisation < 1:
        raise InvalidValue(f"a utilisation is between 0 and 1, got {utilisation:g}")
    rate = utilisation * scenario.consumers.rate_per_s * (1.0 - scenario.loss)
    return msgspec.structs.replace(scenario, arrival_rate_per_s=rate)


def compare(
    scenarios: Sequence[QueueScenario],
    *,
    messages: int,
    live_messages: int,
    stretch: float,
    seed: int,
    report: Callable[[str], None],
) -> list[QueueRow]:
    """All ways for each scenario; without `live_messages`, no server is started."""
    if live_messages:
        for scenario in scenarios:
            require_live(scenario, messages=live_messages)
    rows = []
    for scenario in scenarios:
        found = predict(scenario)
        utilisation = found.consumers.utilisation
        rows.append(
            QueueRow(
                way=EQUATIONS,
                utilisation=utilisation,
                delivery_s=Estimate(found.delivery_s, 0.0),
                p95_s=Estimate(found.p95_s, 0.0),
                attempts=found.attempts,
                duplicates=found.duplicates,
                busy=utilisation,
            )
        )
        seen = {}
        if why_not_net(scenario) is None:
            seen[NET] = simulate_net(scenario, messages=messages, seed=seed)
            report(NET)
        seen[MACHINE] = simulate_queue(scenario, messages=messages, seed=seed)
        report(MACHINE)
        if live_messages:
            seen[LIVE] = run_queue(scenario, messages=live_messages, seed=seed, stretch=stretch)
            same_load = simulate_queue(scenario, messages=live_messages, seed=seed)
            seen[CONTROLLED] = controlled(seen[LIVE], same_load=same_load, long=seen[MACHINE])
            report(LIVE)
        rows += [_row(way, utilisation, each) for way, each in seen.items()]
    return rows


def _row(way: str, utilisation: float, seen: ObservedQueue) -> QueueRow:
    return QueueRow(
        way=way,
        utilisation=utilisation,
        delivery_s=seen.delivery_s,
        p95_s=seen.p95_s,
        attempts=seen.attempts,
        duplicates=seen.duplicates,
        busy=seen.utilisation,
    )


def why_not_net(scenario: QueueScenario) -> str | None:
    """Why the paper's net cannot show a scenario; None if it can."""
    try:
        net_of(scenario)
    except InvalidValue as error:
        return str(error)
    return None


def as_picture(rows: Sequence[QueueRow]) -> str:
    """Mean and 95th percentile over the utilisation, with intervals."""
    ways = list(dict.fromkeys(row.way for row in rows))

    def lines(name: str) -> list[ChartLine]:
        found = []
        for way in ways:
            here = [row for row in rows if row.way == way]
            estimates: list[Estimate] = [getattr(row, name) for row in here]
            found.append(
                ChartLine(
                    way,
                    [round(100.0 * row.utilisation, 6) for row in here],  # a tick stands at whole numbers only
                    [estimate.mean for estimate in estimates],
                    half_widths=[estimate.half_width for estimate in estimates],
                )
            )
        return found

    return picture(
        [
            Chart("Mean delivery time", "utilisation of consumers (%)", "delivery time (s)", lines("delivery_s")),
            Chart("95th percentile", "utilisation of consumers (%)", "delivery time (s)", lines("p95_s")),
        ]
    )
