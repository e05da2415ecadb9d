"""Figures 11 to 15 of the reliable-queue paper: equations, and Lavant's queue machine in virtual time.

The paper's timer starts when a message is sent; its timeout and its link delay are not given, and taken as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lavant.core.errors import Infeasible
from lavant.models.reliable_queue import Phase, QueuePrediction, QueueScenario, ServiceTime, TimerStart, predict
from lavant.models.reliable_queue.scenario import DeliveryOrder
from lavant.simulation.queueing.steady import Estimate
from lavant.simulation.reliable_queue.observed import ObservedQueue
from lavant.simulation.reliable_queue.queue_machine import simulate_queue

ARRIVALS_PER_S, SERVICE_S = 30.3, 0.1
THREADS = range(4, 11)
OUT, IN = DeliveryOrder.OUT_OF_ORDER, DeliveryOrder.IN_ORDER


class FigureLine(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ys: tuple[float | None, ...]
    """None where there is no steady state."""
    half_widths: tuple[float, ...] = ()
    """Of the 95 % confidence intervals of what is simulated."""


class PaperFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One chart of the paper, as it comes out here."""

    name: str
    """Such as 11a."""
    title: str
    x_label: str
    y_label: str
    xs: tuple[float, ...]
    lines: tuple[FigureLine, ...]
    paper: str
    """What the paper says."""
    here: str
    """What comes out, and why it differs."""


Report = Callable[[str], None]


def scenario_of(
    *,
    senders: int,
    consumers: int,
    q: float,
    order: DeliveryOrder = OUT,
    arrivals_per_s: float = ARRIVALS_PER_S,
    service_s: float = SERVICE_S,
) -> QueueScenario:
    service = ServiceTime(mean_s=service_s)
    return QueueScenario(
        arrival_rate_per_s=arrivals_per_s,
        senders=Phase(count=senders, service=service),
        consumers=Phase(count=consumers, service=service),
        loss=1.0 - q,
        visibility_s=0.0,
        timer=TimerStart.SEND,
        order=order,
    )


class _Sweep:
    """Both orders, predicted and simulated, along one parameter."""

    def __init__(self, scenarios: Sequence[QueueScenario], messages: int, report: Report) -> None:
        self.predicted: dict[DeliveryOrder, list[QueuePrediction]] = {}
        self.simulated: dict[DeliveryOrder, list[ObservedQueue]] = {}
        for order in (OUT, IN):
            ordered = [msgspec.structs.replace(scenario, order=order) for scenario in scenarios]
            self.predicted[order] = [predict(scenario) for scenario in ordered]
            self.simulated[order] = []
            for number, scenario in enumerate(ordered):
                self.simulated[order].append(simulate_queue(scenario, messages=messages, seed=1 + number))
                report(f"{order}, {scenario.senders.count if scenario.senders else 0} senders")

    def lines(
        self, predicted: Callable[[QueuePrediction], float], simulated: Callable[[ObservedQueue], tuple[float, float]]
    ) -> tuple[FigureLine, ...]:
        found = []
        for order in (OUT, IN):
            pairs = [simulated(each) for each in self.simulated[order]]
            found.append(FigureLine(name=f"{order}, predicted", ys=tuple(map(predicted, self.predicted[order]))))
            found.append(
                FigureLine(
                    name=f"{order}, simulated",
                    ys=tuple(mean for mean, _ in pairs),
                    half_widths=tuple(half for _, half in pairs),
                )
            )
        return tuple(found)


def tasks() -> int:
    """Simulations of `reproduce`."""
    return 4 * 2 * len(THREADS)


def reproduce(*, messages: int, report: Report) -> list[PaperFigure]:
    """All figures."""
    alike = {
        q: _Sweep([scenario_of(senders=n, consumers=n, q=q) for n in THREADS], messages, report) for q in (0.99, 0.88)
    }
    return [
        *(_figure_11(letter, q, alike[q]) for letter, q in (("a", 0.99), ("b", 0.88))),
        *_figure_12(messages, report),
        *(_figure_13(letter, q, alike[q]) for letter, q in (("a", 0.99), ("b", 0.88))),
        *_figure_14(),
        *_figure_15(),
    ]


def _figure_11(letter: str, q: float, sweep: _Sweep) -> PaperFigure:
    ratios = [
        within.delivery_s.mean / out.delivery_s.mean
        for out, within in zip(sweep.simulated[OUT], sweep.simulated[IN], strict=True)
    ]
    return PaperFigure(
        name=f"11{letter}",
        title=f"Mean delivery time, q = {q:g}",
        x_label="threads of each phase",
        y_label="delivery time (s)",
        xs=tuple(map(float, THREADS)),
        lines=sweep.lines(lambda found: found.delivery_s, lambda found: _pair(found.delivery_s)),
        paper="Analysis and simulation agree out-of-order; in-order takes about 50 % longer, by nearly the same time.",
        here=f"Both hold: in-order takes {min(ratios):.2f} to {max(ratios):.2f} times as long. Eq. 8 as printed (p for "
        "1 − p) could not agree with any simulation.",
    )


def _figure_12(messages: int, report: Report) -> list[PaperFigure]:
    found = []
    for letter, fixed in (("a", "senders"), ("b", "consumers")):
        scenarios = [
            scenario_of(senders=6 if fixed == "senders" else n, consumers=6 if fixed == "consumers" else n, q=0.99)
            for n in THREADS
        ]
        sweep = _Sweep(scenarios, messages, report)
        found.append(
            PaperFigure(
                name=f"12{letter}",
                title=f"Messages that wait in the queue, six {fixed}",
                x_label="consumers" if fixed == "senders" else "senders",
                y_label="messages",
                xs=tuple(map(float, THREADS)),
                lines=sweep.lines(
                    lambda found: found.consumers.waiting + found.held,
                    lambda found: (0.0 if found.waiting is None else found.waiting, 0.0),
                ),
                paper="In-order, about 3000 messages wait with six senders and many consumers, about 4000 with six "
                "consumers and many senders.",
                here="About 3.1 and 3.8 messages: the paper's axis counts thousandths. In-order, most of them wait "
                "for older messages that are still being sent, which more consumers cannot change.",
            )
        )
    return found


def _figure_13(letter: str, q: float, sweep: _Sweep) -> PaperFigure:
    predicted = sweep.predicted[OUT]
    return PaperFigure(
        name=f"13{letter}",
        title=f"Utilisation, q = {q:g}",
        x_label="threads of each phase",
        y_label="utilisation",
        xs=tuple(map(float, THREADS)),
        lines=(
            FigureLine(
                name="senders, predicted",
                ys=tuple(0.0 if found.senders is None else found.senders.utilisation for found in predicted),
            ),
            FigureLine(name="consumers, predicted", ys=tuple(found.consumers.utilisation for found in predicted)),
            *(
                FigureLine(name=f"consumers, {order}", ys=tuple(found.utilisation for found in sweep.simulated[order]))
                for order in (OUT, IN)
            ),
        ),
        paper="Consumers are less busy in-order than out-of-order, because they wait for older messages.",
        here="They are as busy in both: each message is served as often and as long, in whatever order. Shares of "
        "the time in which any consumer is busy would differ, and so would a run of 100 s, as the paper's are.",
    )


def _figure_14() -> list[PaperFigure]:
    times_s = [number / 100 for number in range(2, 31)]
    return _predicted(
        "14",
        "service time (s)",
        times_s,
        lambda n, x: scenario_of(senders=n, consumers=n, q=0.99, arrivals_per_s=30.0, service_s=x),
        paper="With five threads, waiting and delivery time rise sharply from a service time of about 0.1 s on, with "
        "seven from 0.14 s; utilisation stays at 47 % for a while.",
        here="The turning points are the same, where utilisation passes 60 to 70 %. Utilisation is a straight line "
        "(Λ/(n·μ)) up to 1; no plateau can come from the model.",
    )


def _figure_15() -> list[PaperFigure]:
    rates = [float(rate) for rate in range(2, 91, 2)]
    return _predicted(
        "15",
        "messages a second",
        rates,
        lambda n, x: scenario_of(senders=n, consumers=n, q=0.88, arrivals_per_s=x),
        paper="Delivery time rises slowly, then steeply; consumers are a little busier than senders.",
        here="The same; consumers are 1/q = 1.136 times as busy as senders.",
    )


def _predicted(
    number: str,
    x_label: str,
    xs: Sequence[float],
    scenario: Callable[[int, float], QueueScenario],
    *,
    paper: str,
    here: str,
) -> list[PaperFigure]:
    """Three charts: delivery time, waiting, utilisation of consumers, for 5, 7 and 9 threads."""
    found = {n: [_stable(scenario(n, x)) for x in xs] for n in (5, 7, 9)}
    figures: tuple[tuple[str, str, Callable[[QueuePrediction], float]], ...] = (
        ("a", "delivery time (s)", lambda each: each.delivery_s),
        ("b", "messages that wait", lambda each: each.requests - _in_service(each)),
        ("c", "utilisation of consumers", lambda each: each.consumers.utilisation),
    )
    return [
        PaperFigure(
            name=number + letter,
            title=f"{y_label[0].upper()}{y_label[1:]} by {x_label}",
            x_label=x_label,
            y_label=y_label,
            xs=tuple(xs),
            lines=tuple(
                FigureLine(
                    name=f"{n} threads", ys=tuple(None if each is None else figure(each) for each in predictions)
                )
                for n, predictions in found.items()
            ),
            paper=paper,
            here=here,
        )
        for letter, y_label, figure in figures
    ]


def _in_service(found: QueuePrediction) -> float:
    phases = [phase for phase in (found.senders, found.consumers) if phase is not None]
    return sum(phase.utilisation * phase.count for phase in phases)


def _stable(scenario: QueueScenario) -> QueuePrediction | None:
    try:
        return predict(scenario)
    except Infeasible:
        return None


def _pair(estimate: Estimate) -> tuple[float, float]:
    return estimate.mean, estimate.half_width
