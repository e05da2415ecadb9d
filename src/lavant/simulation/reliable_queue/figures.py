"""Reproduces Figures 11 to 15 of the reliable-queue paper: equations, and Lavant's queue machine in virtual time.

The paper's timer starts when a message is sent; its timeout and its link delay are not given, and taken as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from lavant.core.errors import Infeasible
from lavant.models.reliable_queue import Phase, QueuePrediction, QueueScenario, ServiceTime, TimerStart, predict
from lavant.models.reliable_queue.scenario import DeliveryOrder
from lavant.simulation.figures import (
    FigureChart,
    FigureEntry,
    FigureLine,
    FigureSettings,
    FigureStatement,
    Paper,
    PaperFigure,
)
from lavant.simulation.queueing.steady import Estimate
from lavant.simulation.reliable_queue.observed import ObservedQueue, difference
from lavant.simulation.reliable_queue.queue_machine import simulate_queue

ARRIVALS_PER_S, SERVICE_S = 30.3, 0.1
THREADS = range(4, 11)
THREAD_XS = tuple(map(float, THREADS))
MESSAGES = 50_000
"""Of each simulation."""
OUT, IN = DeliveryOrder.OUT_OF_ORDER, DeliveryOrder.IN_ORDER


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

    def __init__(self, scenarios: Sequence[QueueScenario], settings: FigureSettings) -> None:
        self.predicted: dict[DeliveryOrder, list[QueuePrediction]] = {}
        self.simulated: dict[DeliveryOrder, list[ObservedQueue]] = {}
        for order in (OUT, IN):
            ordered = [msgspec.structs.replace(scenario, order=order) for scenario in scenarios]
            self.predicted[order] = [predict(scenario) for scenario in ordered]
            self.simulated[order] = []
            for number, scenario in enumerate(ordered):
                self.simulated[order].append(simulate_queue(scenario, messages=MESSAGES, seed=settings.seed + number))
                settings.report(f"{order}, {scenario.senders.count if scenario.senders else 0} senders")

    def costs_of_order(self) -> list[Estimate]:
        """How many times as long delivery in order takes.

        Out of order it is known exactly. Both simulations have the same load, so its chance cancels out in their
        difference.
        """
        found = []
        for exact, out, within in zip(self.predicted[OUT], self.simulated[OUT], self.simulated[IN], strict=True):
            longer = difference(within, out)
            found.append(Estimate(1.0 + longer.mean / exact.delivery_s, longer.half_width / exact.delivery_s))
        return found

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
                    half_widths=tuple(half for _, half in pairs) if any(half for _, half in pairs) else (),
                )
            )
        return tuple(found)


@lru_cache(maxsize=2)
def _alike(q: float, seed: int) -> _Sweep:
    """As many senders as consumers, for Figures 11 and 13."""
    return _Sweep([scenario_of(senders=n, consumers=n, q=q) for n in THREADS], FigureSettings(seed))


def _sweeps(settings: FigureSettings) -> dict[float, _Sweep]:
    found = {}
    for q in (0.99, 0.88):
        found[q] = _alike(q, settings.seed)
        settings.report(f"q = {q:g}")
    return found


def figure_11(settings: FigureSettings) -> PaperFigure:
    charts, statements = [], []
    for q, sweep in _sweeps(settings).items():
        costs = sweep.costs_of_order()
        errors = [
            abs(predicted.delivery_s / observed.delivery_s.mean - 1.0)
            for predicted, observed in zip(sweep.predicted[OUT], sweep.simulated[OUT], strict=True)
        ]
        charts.append(
            FigureChart(
                title=f"Mean delivery time, q = {q:g}",
                x_label="threads of each phase",
                y_label="delivery time (s)",
                xs=THREAD_XS,
                lines=sweep.lines(lambda found: found.delivery_s, lambda found: _pair(found.delivery_s)),
            )
        )
        statements.append(
            FigureStatement(
                paper=f"q = {q:g}: analysis and simulation agree very well out of order; out of order is about 50 % "
                "better.",
                here=f"They differ by {max(errors):.1%} at most; in order takes "
                f"{min(costs, key=_mean)} to {max(costs, key=_mean)} times as long.",
                why="Eq. 8 is read with 1 − p in its third denominator; with p, as printed, nothing would agree.",
            )
        )
    return PaperFigure(charts=tuple(charts), statements=tuple(statements))


def figure_12(settings: FigureSettings) -> PaperFigure:
    charts, statements = [], []
    for fixed, other, printed in (("senders", "consumers", 3000), ("consumers", "senders", 4000)):
        scenarios = [
            scenario_of(senders=6 if fixed == "senders" else n, consumers=6 if fixed == "consumers" else n, q=0.99)
            for n in THREADS
        ]
        sweep = _Sweep(scenarios, settings)
        last = sweep.simulated[IN][-1].waiting
        charts.append(
            FigureChart(
                title=f"Messages that wait in the queue, six {fixed}",
                x_label=other,
                y_label="messages",
                xs=THREAD_XS,
                lines=sweep.lines(
                    lambda found: found.consumers.waiting + found.held,
                    lambda found: (0.0 if found.waiting is None else found.waiting, 0.0),
                ),
            )
        )
        statements.append(
            FigureStatement(
                paper=f"In order, with six {fixed} and many {other}, about {printed} messages wait.",
                here=f"{0.0 if last is None else last:.2f} messages wait with ten {other}.",
                why="The axis counts thousandths. In order, most of them wait for older messages that are still "
                f"being sent, so more {other} change little.",
            )
        )
    return PaperFigure(charts=tuple(charts), statements=tuple(statements))


def figure_13(settings: FigureSettings) -> PaperFigure:
    sweeps = _sweeps(settings)
    charts = []
    for q, sweep in sweeps.items():
        predicted = sweep.predicted[OUT]
        busy = {order: tuple(found.utilisation for found in sweep.simulated[order]) for order in (OUT, IN)}
        charts.append(
            FigureChart(
                title=f"Utilisation, q = {q:g}",
                x_label="threads of each phase",
                y_label="utilisation",
                xs=THREAD_XS,
                lines=(
                    FigureLine(
                        name="senders, predicted",
                        ys=tuple(0.0 if found.senders is None else found.senders.utilisation for found in predicted),
                    ),
                    FigureLine(
                        name="consumers, predicted", ys=tuple(found.consumers.utilisation for found in predicted)
                    ),
                    *(FigureLine(name=f"consumers, {order}", ys=ys) for order, ys in busy.items()),
                ),
            )
        )
    out, within = (sweeps[0.99].simulated[order][-1].utilisation for order in (OUT, IN))
    return PaperFigure(
        charts=tuple(charts),
        statements=(
            FigureStatement(
                paper="Consumers are much less busy in order than out of order, because they wait for older messages.",
                here=f"They are as busy in both: {within:.3f} in order, {out:.3f} out of order, with ten threads.",
                why="Each message is served as often and as long in any order, so the busy time per second is the "
                "same. Only the share of time in which some consumer is busy differs.",
            ),
        ),
    )


TURNS = {5: 0.08, 7: 0.12}
"""By threads, the service time from which on the paper sees waiting messages rise."""


def figure_14(settings: FigureSettings) -> PaperFigure:
    times_s = [number / 100 for number in range(2, 31)]

    def scenario(n: int, x: float) -> QueueScenario:
        return scenario_of(senders=n, consumers=n, q=0.99, arrivals_per_s=30.0, service_s=x)

    found = {n: [_stable(scenario(n, x)) for x in times_s] for n in (5, 7, 9)}
    settings.report("service times")
    waiting = {n: [predict(scenario(n, x)).consumers.waiting for x in (turn, turn + 0.01)] for n, turn in TURNS.items()}
    here, later = ([each[place] for each in waiting.values()] for place in (0, 1))
    grown = " and ".join(f"{after / before:.1f}" for before, after in zip(here, later, strict=True))
    return PaperFigure(
        charts=_predicted("service time (s)", times_s, found),
        statements=(
            FigureStatement(
                paper="The number of waiting messages rises sharply from a service time of 80 ms on with five "
                "threads, and from 120 ms with seven.",
                here=f"There, {' and '.join(f'{each:.2f}' for each in here)} messages wait for a consumer, and with "
                f"10 ms more {grown} times as many.",
            ),
            FigureStatement(
                paper="Utilisation grows sharply at first and then stays at about 47 % for a while.",
                here="It is a straight line, Λ/(n·μ), up to 1.",
                why="No plateau can result from the model; a run of 100 s, as the paper's are, has not reached a "
                "steady state where the load is near 1.",
            ),
        ),
    )


def figure_15(settings: FigureSettings) -> PaperFigure:
    rates = [float(rate) for rate in range(2, 91, 2)]

    def scenario(n: int, x: float) -> QueueScenario:
        return scenario_of(senders=n, consumers=n, q=0.88, arrivals_per_s=x)

    found = {n: [_stable(scenario(n, x)) for x in rates] for n in (5, 7, 9)}
    settings.report("arrival rates")
    some = found[9][0]
    assert some is not None
    assert some.senders is not None
    last = {n: max(x for x, y in zip(rates, found[n], strict=True) if y is not None) for n in found}
    return PaperFigure(
        charts=_predicted("messages a second", rates, found),
        statements=(
            FigureStatement(
                paper="Delivery time increases slowly before a steep rise, for any number of threads.",
                here=f"It rises steeply towards {last[5]:g}, {last[7]:g} and {last[9]:g} messages a second with 5, 7 "
                "and 9 threads, the last rates with a steady state.",
            ),
            FigureStatement(
                paper="Consumers are always a little busier than senders.",
                here=f"They are {some.consumers.utilisation / some.senders.utilisation:.3f} times as busy, which is "
                "1/q.",
            ),
        ),
    )


def _predicted(
    x_label: str, xs: Sequence[float], found: dict[int, list[QueuePrediction | None]]
) -> tuple[FigureChart, ...]:
    """Three charts: delivery time, waiting, utilisation of consumers, by number of threads."""
    figures: tuple[tuple[str, Callable[[QueuePrediction], float]], ...] = (
        ("delivery time (s)", lambda each: each.delivery_s),
        ("messages that wait", _waiting),
        ("utilisation of consumers", lambda each: each.consumers.utilisation),
    )
    charts = []
    for y_label, figure in figures:
        lines = [
            FigureLine(name=f"{n} threads", ys=tuple(None if each is None else figure(each) for each in predictions))
            for n, predictions in found.items()
        ]
        steady = sorted(y for line in lines for y in line.ys if y is not None)
        top = 8.0 * steady[len(steady) // 2]
        charts.append(
            FigureChart(
                title=f"{y_label[0].upper()}{y_label[1:]} by {x_label}",
                x_label=x_label,
                y_label=y_label,
                xs=tuple(xs),
                lines=tuple(lines),
                y_max=top if steady[-1] > 2 * top else None,
            )
        )
    return tuple(charts)


def _waiting(found: QueuePrediction) -> float:
    """Added up: as all messages less those in service, few of them would drown in rounding."""
    phases = [phase for phase in (found.senders, found.consumers) if phase is not None]
    return found.held + sum(phase.waiting for phase in phases)


def _stable(scenario: QueueScenario) -> QueuePrediction | None:
    try:
        return predict(scenario)
    except Infeasible:
        return None


def _mean(estimate: Estimate) -> float:
    return estimate.mean


def _pair(estimate: Estimate) -> tuple[float, float]:
    return estimate.mean, estimate.half_width


RELIABLE_QUEUE = Paper(
    "reliable-queue",
    "J. Li, Y. Cui, Y. Ma, *Modeling Message Queueing Services with Reliability Guarantee in Cloud Computing "
    "Environment Using Colored Petri Nets*",
    "Predicted by the equations of [queue models](../queue-models.md), and simulated with Lavant's own queue machine "
    f"in virtual time, {MESSAGES:,} messages a point.",
    (
        FigureEntry("11", "delivery time by threads", 2, figure_11),
        FigureEntry("12", "waiting messages by threads", 4 * len(THREADS), figure_12),
        FigureEntry("13", "utilisation by threads", 2, figure_13),
        FigureEntry("14", "delivery time, waiting and utilisation by service time", 1, figure_14),
        FigureEntry("15", "delivery time, waiting and utilisation by arrival rate", 1, figure_15),
    ),
)
