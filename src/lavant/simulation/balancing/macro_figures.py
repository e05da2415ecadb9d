"""The macro experiments, Figures 5.3 to 5.22: one run over time, for each policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lavant.simulation.balancing.experiment import BalancingTrace, Floats, run_balancing
from lavant.simulation.balancing.measures import (
    balanced_s,
    between,
    deviation,
    estimation_errors,
    least_moves,
    mean_error,
    overhead,
    sessions,
    smoothed,
)
from lavant.simulation.balancing.setups import GLOBAL, LOCAL, WIDE
from lavant.simulation.figures import (
    FigureChart,
    FigureLine,
    FigureSettings,
    FigureStatement,
    FigureTable,
    PaperFigure,
)

MACRO = ("thesis", "shares", "even-counts")
SETUPS = {each.name: each for each in (LOCAL, WIDE, GLOBAL)}
POINTS = 100
COMPARED_SEEDS = 6


@lru_cache(maxsize=64)
def macro_trace(setup: str, policy: str, seed: int, quotes: Path | None = None) -> BalancingTrace:
    """One run of a setup by its name."""
    return run_balancing(SETUPS[setup], policy, seed, quotes=quotes)


def _traces(settings: FigureSettings, setup: str) -> dict[str, BalancingTrace]:
    found = {}
    for policy in MACRO:
        found[policy] = macro_trace(setup, policy, settings.seed, settings.quotes)
        settings.report(f"{setup} experiment, {policy}")
    return found


def over_time(
    title: str, y_label: str, trace: BalancingTrace, series: dict[str, Floats], **options: object
) -> FigureChart:
    """A chart over time; every point is the mean of the rows since the last one."""
    step = max(1, len(trace.time_s) // POINTS)
    kept = len(trace.time_s) // step * step

    def thinned(values: Floats) -> tuple[float, ...]:
        return tuple(float(f"{value:.5g}") for value in values[:kept].reshape(-1, step).mean(axis=1))

    return FigureChart(
        title=f"{title}, {trace.policy}",
        x_label="time (s)",
        y_label=y_label,
        xs=tuple(trace.time_s[step - 1 : kept : step].tolist()),
        lines=tuple(FigureLine(name=name, ys=thinned(values)) for name, values in series.items()),
        **options,  # type: ignore[arg-type]
    )


def by_broker(trace: BalancingTrace, values: npt.NDArray[Any]) -> dict[str, Floats]:
    """A series for each broker."""
    return {spec.name: values[:, column] for column, spec in enumerate(trace.experiment.brokers)}


def by_cluster(trace: BalancingTrace, values: npt.NDArray[Any], *, is_sum: bool = False) -> dict[str, Floats]:
    """The mean of each cluster, or the sum."""
    clusters: dict[str, list[int]] = {}
    for column, spec in enumerate(trace.experiment.brokers):
        clusters.setdefault(spec.cluster, []).append(column)
    combine = np.sum if is_sum else np.mean
    return {head: np.asarray(combine(values[:, columns], axis=1)) for head, columns in clusters.items()}


def _charts(
    traces: dict[str, BalancingTrace],
    title: str,
    y_label: str,
    series: Callable[[BalancingTrace], dict[str, Floats]],
    **options: object,
) -> tuple[FigureChart, ...]:
    return tuple(over_time(title, y_label, trace, series(trace), **options) for trace in traces.values())


def _balanced(trace: BalancingTrace) -> tuple[float | None, float | None]:
    """When a run was balanced, before and after the change of rates."""
    experiment = trace.experiment
    change_s = experiment.duration_s if experiment.change_s is None else experiment.change_s
    first = balanced_s(trace, begin_s=experiment.joins_s[1], end_s=change_s)
    return first, balanced_s(trace, begin_s=change_s, end_s=experiment.duration_s)


def _times(trace: BalancingTrace) -> str:
    first, second = ("never" if each is None else f"{each:.0f} s" for each in _balanced(trace))
    return f"{trace.policy} {first} and {second}"


def _all_times(traces: dict[str, BalancingTrace]) -> str:
    return "balanced at " + "; ".join(_times(trace) for trace in traces.values())


WHY_NEVER = (
    "even-counts gives the weakest broker as many subscribers as the strongest, and never balances load. "
    "shares plans for "
    "all brokers and indices at once, so no load runs through several brokers."
)


def figure_input(settings: FigureSettings) -> PaperFigure:
    traces = _traces(settings, "local")
    thesis = traces["thesis"]
    counts = {policy: len(sessions(trace)) for policy, trace in traces.items()}
    rows = []
    for policy, trace in traces.items():
        moved = [each for each in trace.decisions if each.moves and not each.measured]
        by_index = {
            index: sum(each.index == index for each in moved) for index in sorted({each.index for each in moved})
        }
        of_first = sum(each.offloading == "B1" for each in moved)
        rows.append(
            (policy, str(len(moved)), str(of_first), ", ".join(f"{count} {index}" for index, count in by_index.items()))
        )
    table = FigureTable(
        title="Sessions that moved something (Figures 5.4 and 5.5)",
        columns=("policy", "sessions", "by B1", "by index"),
        rows=tuple(rows),
    )
    return PaperFigure(
        charts=_charts(
            traces, "Input utilisation", "input utilisation", lambda trace: by_broker(trace, trace.input), y_max=2.0
        ),
        tables=(table,),
        statements=(
            FigureStatement(
                paper="B1 is overloaded from about 200 s, all brokers are balanced at 1,800 s, and again at 3,400 s",
                here=_all_times(traces),
                why=WHY_NEVER,
            ),
            FigureStatement(
                paper="19 input sessions from 204 s to 1,065 s, three of them without B1",
                here=f"{sum(time_s < thesis.experiment.joins_s[1] for time_s in sessions(thesis))} sessions of all "
                f"kinds until the last join; in the whole run {counts['thesis']} (thesis), {counts['shares']} (shares)",
                why="a broker that has moved something is available again after a minute of stable load",
            ),
        ),
    )


def figure_queues(settings: FigureSettings) -> PaperFigure:
    traces = _traces(settings, "local")
    highest = {policy: float(trace.input_queuing_s.max()) for policy, trace in traces.items()}
    return PaperFigure(
        charts=(
            *_charts(traces, "Input queuing", "delay (s)", lambda trace: by_broker(trace, trace.input_queuing_s)),
            *_charts(
                traces,
                "Output utilisation",
                "output utilisation",
                lambda trace: by_broker(trace, trace.output),
                y_max=1.5,
            ),
            *_charts(traces, "Output queuing", "delay (s)", lambda trace: by_broker(trace, trace.output_queuing_s)),
        ),
        statements=(
            FigureStatement(
                paper="B1's input queue grows until 1,010 s and is empty at 1,400 s",
                here="the longest input queuing delay is "
                + ", ".join(f"{value:.0f} s ({policy})" for policy, value in highest.items()),
                why="shares gives away what B1 cannot keep before B1 is overloaded",
            ),
        ),
    )


def figure_delays(settings: FigureSettings) -> PaperFigure:
    traces = _traces(settings, "local")
    ends = {policy: "/".join(map(str, trace.subscribers[-1].tolist())) for policy, trace in traces.items()}
    late = {policy: float(between(trace, trace.delivery_s, 5000, 6000).mean()) for policy, trace in traces.items()}
    return PaperFigure(
        charts=(
            *_charts(traces, "Matching delay", "delay (s)", lambda trace: by_broker(trace, trace.delay_s), y_max=0.1),
            _over_policies("Delivery delay", "mean delay (s)", traces, lambda trace: trace.delivery_s, y_max=2.0),
            *_charts(traces, "Subscribers", "subscribers", lambda trace: by_broker(trace, trace.subscribers)),
        ),
        statements=(
            FigureStatement(
                paper="matching delays are within .018 and .022 s from 1,800 to 3,000 s",
                here="; ".join(
                    f"{policy} {low:.4f} to {high:.4f} s"
                    for policy, trace in traces.items()
                    for low, high in [_range(between(trace, trace.delay_s, 2500, 3000))]
                ),
            ),
            FigureStatement(
                paper="about 120, 240, 490 and 1,220 subscribers at 5,000 s, 71 of them of the system",
                here=", ".join(f"{end} ({policy})" for policy, end in ends.items()) + " of 2,000 at the end",
            ),
            FigureStatement(
                paper="the delivery delay falls when B1 is no longer overloaded",
                here="mean over the last 1,000 s: "
                + ", ".join(f"{value:.3f} s ({policy})" for policy, value in late.items()),
            ),
        ),
    )


def _range(values: Floats) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _over_policies(
    title: str,
    y_label: str,
    traces: dict[str, BalancingTrace],
    series: Callable[[BalancingTrace], Floats],
    **options: object,
) -> FigureChart:
    """One line a policy."""
    charts = [over_time(title, y_label, trace, {policy: series(trace)}, **options) for policy, trace in traces.items()]
    return FigureChart(
        title=title,
        x_label=charts[0].x_label,
        y_label=y_label,
        xs=charts[0].xs,
        lines=tuple(chart.lines[0] for chart in charts),
        limit=charts[0].limit,
        y_max=charts[0].y_max,
    )


def figure_deviations(settings: FigureSettings) -> PaperFigure:
    traces = _traces(settings, "local")
    series: dict[str, tuple[Callable[[BalancingTrace], Floats], float | None]] = {
        "input utilisation": (lambda trace: deviation(smoothed(trace.input)), 0.5),
        "output utilisation": (lambda trace: deviation(smoothed(trace.output)), 0.5),
        "matching delay (s)": (lambda trace: deviation(trace.delay_s), 0.05),
        "input queuing delay (s)": (lambda trace: deviation(trace.input_queuing_s), None),
        "output queuing delay (s)": (lambda trace: deviation(trace.output_queuing_s), None),
    }
    steady = {
        policy: [float(between(trace, of(trace), 2000, 3000).mean()) for of, _ in list(series.values())[:3]]
        for policy, trace in traces.items()
    }
    return PaperFigure(
        charts=tuple(
            _over_policies(f"Standard deviation of the {name}", "deviation", traces, of, y_max=y_max)
            for name, (of, y_max) in series.items()
        ),
        statements=(
            FigureStatement(
                paper="the deviation of input and output settles between .02 and .04, that of the matching "
                "delay at .001 to "
                ".002 s",
                here="means from 2,000 to 3,000 s (input, output, delay): "
                + "; ".join(f"{policy} {a:.3f}, {b:.3f}, {c:.4f} s" for policy, (a, b, c) in steady.items()),
                why="the thesis's sessions begin at a difference of .1, those of shares at .04, and are "
                "planned with four "
                "times as many samples",
            ),
        ),
    )


def figure_estimates(settings: FigureSettings) -> PaperFigure:
    traces = _traces(settings, "local")
    rows = []
    for policy, trace in traces.items():
        errors = estimation_errors(trace)
        for index in ("input_utilization", "output_utilization", "matching_delay_s"):
            for role in ("offloading", "accepting"):
                chosen = [each for each in errors if each.index == index and each.role == role]
                if not chosen:
                    continue
                differences = np.array([each.predicted - each.measured for each in chosen])
                mean = np.mean([each.measured for each in chosen])
                rows.append(
                    (
                        policy,
                        index.replace("_", " ").removesuffix(" s"),
                        role,
                        str(len(chosen)),
                        f"{differences.mean() / mean:+.1%}",
                        f"{differences.std() / mean:.1%}",
                    )
                )
    means = {
        policy: (mean_error(trace, "input_utilization"), mean_error(trace, "output_utilization"))
        for policy, trace in traces.items()
    }
    return PaperFigure(
        tables=(
            FigureTable(
                title="Predicted load against the load measured after a session, relative to the mean",
                columns=("policy", "index", "broker", "sessions", "error", "deviation"),
                rows=tuple(rows),
            ),
        ),
        statements=(
            FigureStatement(
                paper="input 3.3 % ± 5.4 (offloading) and -1.6 % ± 5.2 (accepting), output .1 % ± .3 and 1.5 % ± 1.9",
                here="; ".join(f"{policy}: input {a:+.1%}, output {b:+.1%}" for policy, (a, b) in means.items()),
                why="measured when both brokers have settled, so sessions of others and joins in between "
                "count as errors; "
                "even-counts predicts nothing but numbers",
            ),
        ),
    )


def figure_overhead(settings: FigureSettings) -> PaperFigure:
    traces = _traces(settings, "local")
    steady = {policy: float(overhead(trace)[-100:].mean()) for policy, trace in traces.items()}
    so_far = {policy: float(_so_far(trace)[trace.time_s > 1010].max()) for policy, trace in traces.items()}
    return PaperFigure(
        charts=(
            _over_policies("Overhead within 100 s", "control messages of all", traces, overhead, y_max=0.03),
            _over_policies("Overhead so far", "control messages of all", traces, _so_far, y_max=0.03),
        ),
        statements=(
            FigureStatement(
                paper=".3 % in the steady state, .55 % at the most after the change of rates",
                here="last 1,000 s: "
                + ", ".join(f"{value:.3%} ({policy})" for policy, value in steady.items())
                + "; highest overhead so far after the last join: "
                + ", ".join(f"{value:.2%} ({policy})" for policy, value in so_far.items()),
                why="deliveries to subscribers count as messages here, as do those between brokers; the "
                "thesis does not say",
            ),
        ),
    )


def _so_far(trace: BalancingTrace) -> Floats:
    return np.asarray(trace.control_messages / np.maximum(trace.messages, 1))


def figure_clusters(settings: FigureSettings) -> PaperFigure:
    traces = _traces(settings, "global")
    return PaperFigure(
        charts=(
            *_charts(
                traces, "Input utilisation of clusters", "mean", lambda trace: by_cluster(trace, trace.input), y_max=1.0
            ),
            *_charts(
                traces,
                "Output utilisation of clusters",
                "mean",
                lambda trace: by_cluster(trace, trace.output),
                y_max=1.0,
            ),
            *_charts(
                traces,
                "Matching delay of clusters",
                "mean (s)",
                lambda trace: by_cluster(trace, trace.delay_s),
                y_max=0.08,
            ),
        ),
        statements=(
            FigureStatement(
                paper="global balancing converges at 4,700 s and, after the change of rates, at 10,500 s",
                here=_all_times(traces),
                why="clusters balance in pairs under every policy; the edge brokers of a pair need one "
                "session with shares",
            ),
            FigureStatement(
                paper="the input utilisations of B10 and B40 differ by .2",
                here=", ".join(f"{_ends_apart(trace):.2f} ({policy})" for policy, trace in traces.items())
                + " at 8,000 s",
            ),
        ),
    )


def _ends_apart(trace: BalancingTrace) -> float:
    clusters = by_cluster(trace, smoothed(trace.input))
    row = int(np.searchsorted(trace.time_s, 8000)) - 1
    return abs(float(clusters["B10"][row] - clusters["B40"][row]))


def figure_cluster_clients(settings: FigureSettings) -> PaperFigure:
    traces = _traces(settings, "global")
    ends = {
        policy: "/".join(str(int(values[-1])) for values in by_cluster(trace, trace.subscribers, is_sum=True).values())
        for policy, trace in traces.items()
    }
    return PaperFigure(
        charts=(
            _over_policies("Delivery delay", "mean delay (s)", traces, lambda trace: trace.delivery_s, y_max=2.0),
            *_charts(
                traces,
                "Subscribers of clusters",
                "subscribers",
                lambda trace: by_cluster(trace, trace.subscribers, is_sum=True),
            ),
            _over_policies("Overhead within 100 s", "control messages of all", traces, overhead, y_max=0.03),
        ),
        statements=(
            FigureStatement(
                paper="B40, the weakest cluster and the furthest from B10, has the fewest subscribers",
                here=", ".join(f"{end} ({policy})" for policy, end in ends.items()) + " in B10 to B40 at the end",
            ),
        ),
    )


def figure_policies(settings: FigureSettings) -> PaperFigure:
    """All policies on the local experiment and on capacities of 1:50, over several seeds."""
    rows = []
    worst: dict[str, float] = {}
    for setup in ("local", "wide"):
        for policy in MACRO:
            traces = []
            for seed in range(settings.seed, settings.seed + COMPARED_SEEDS):
                traces.append(macro_trace(setup, policy, seed, settings.quotes))
                settings.report(f"{setup}, {policy}, seed {seed}")
            times = [_balanced(trace)[0] for trace in traces]
            found = sorted(time_s for time_s in times if time_s is not None)
            ratio = max(int(trace.moves[-1]) / least_moves(trace) for trace in traces)
            worst[f"{setup} {policy}"] = ratio
            rows.append(
                (
                    setup,
                    policy,
                    f"{len(found)} of {len(times)}",
                    f"{np.median(found):.0f} s" if found else "–",
                    f"{found[-1]:.0f} s" if found else "–",
                    f"{ratio:.2f}",
                    *(f"{value:.4f}" for value in _steady(traces)),
                )
            )
    return PaperFigure(
        tables=(
            FigureTable(
                title="Balanced at, moves by the least possible number, and standard deviations from 2,000 to 3,000 s",
                columns=("setup", "policy", "balanced", "median", "last", "moves", "input", "output", "delay (s)"),
                rows=tuple(rows),
            ),
        ),
        statements=(
            FigureStatement(
                paper="brokers of up to 10 times the capacity of others are balanced",
                here=f"1:10 (local) and 1:50 (wide); shares needs at most {worst['local shares']:.2f} and "
                f"{worst['wide shares']:.2f} times the moves of somebody who knows everything",
                why="the last join is at 1,010 s; balanced means within the thresholds for 95 % of the time "
                "until 3,000 s",
            ),
        ),
    )


def _steady(traces: list[BalancingTrace]) -> list[float]:
    """Mean deviations of input, output and delay before the change of rates."""
    series: list[Callable[[BalancingTrace], Floats]] = [
        lambda trace: smoothed(trace.input),
        lambda trace: smoothed(trace.output),
        lambda trace: trace.delay_s,
    ]
    return [
        float(np.mean([between(trace, deviation(of(trace)), 2000, 3000).mean() for trace in traces])) for of in series
    ]
