"""The micro experiments, Figures 5.23 to 5.57: one variable at a time, means over seeds, for two policies."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.policies.registry import balancing_policy
from lavant.simulation.balancing.experiment import BalancingExperiment, BalancingTrace, run_balancing
from lavant.simulation.balancing.macro_figures import by_cluster
from lavant.simulation.balancing.measures import (
    balanced_s,
    between,
    deviation,
    mean_error,
    overhead,
    sessions,
    smoothed,
)
from lavant.simulation.balancing.setups import LOCAL, STAR, chain, equal_brokers
from lavant.simulation.figures import FigureChart, FigureLine, FigureSettings, FigureStatement, PaperFigure

MICRO = ("thesis", "shares")
LOCAL_SEEDS = 3
GLOBAL_SEEDS = 2
SHORT = msgspec.structs.replace(LOCAL, change_s=None, duration_s=4000)
"""The local experiment without the change of rates."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the micro experiments keep of a run; NaN where there is no value."""

    converged_s: float
    input_deviation: float
    output_deviation: float
    delay_deviation_s: float
    input_error: float
    output_error: float
    delivery_s: float
    input_max: float
    overloaded_s: float
    sessions: float
    cluster_sessions: float
    overhead: float

    @classmethod
    def of(cls, trace: BalancingTrace) -> RunFigures:
        experiment = trace.experiment
        end_s = experiment.duration_s
        begin_s = experiment.joins_s[1]
        converged = balanced_s(trace, begin_s=begin_s, end_s=end_s)
        late = (end_s - 1000, end_s)
        columns = {"input": smoothed(trace.input), "output": smoothed(trace.output), "delay": trace.delay_s}
        if experiment.neighbours:
            columns = {
                name: np.stack(list(by_cluster(trace, values).values()), axis=1) for name, values in columns.items()
            }
        first = [spec.name for spec in experiment.brokers].index(experiment.joins_at)
        of_first = smoothed(trace.input)[:, first]
        return cls(
            converged_s=math.nan if converged is None else converged,
            input_deviation=float(between(trace, deviation(columns["input"]), *late).mean()),
            output_deviation=float(between(trace, deviation(columns["output"]), *late).mean()),
            delay_deviation_s=float(between(trace, deviation(columns["delay"]), *late).mean()),
            input_error=mean_error(trace, "input_utilization"),
            output_error=mean_error(trace, "output_utilization"),
            delivery_s=float(between(trace, trace.delivery_s, *late).mean()),
            input_max=float(of_first.max()),
            overloaded_s=float(trace.time_s[of_first > 1.0].max(initial=0.0)),
            sessions=len(sessions(trace)),
            cluster_sessions=trace.cluster_sessions,
            overhead=float(overhead(trace, end_s // 2)[-1]),
        )


class MicroVariant(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the variable: its setup, and the parameters that differ from those of the policy."""

    x: float
    experiment: BalancingExperiment
    parameters: tuple[tuple[str, float], ...] = ()

    def parameters_of(self, policy: str, quotes: Path | None) -> dict[str, str]:
        """As `run_micro` takes them."""
        config = msgspec.structs.replace(balancing_policy(policy).config, **dict(self.parameters))
        return {
            "experiment": msgspec.json.encode(self.experiment).decode(),
            "config": msgspec.json.encode(config).decode(),
            "policy": policy,
            "quotes": "" if quotes is None else str(quotes.resolve()),
        }


class MicroMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the thesis: a measure over the variable."""

    figure: str
    title: str
    y_label: str
    of: Callable[[RunFigures], float]


CONVERGENCE = ("Convergence time", "balanced at (s)", lambda run: run.converged_s)


def _measure(figure: str, title: str, y_label: str, of: Callable[[RunFigures], float]) -> MicroMeasure:
    return MicroMeasure(figure=figure, title=title, y_label=y_label, of=of)


class MicroExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """All figures over one variable, and what the thesis says of them."""

    variable: str
    variants: tuple[MicroVariant, ...]
    measures: tuple[MicroMeasure, ...]
    statement: str
    why: str = ""
    seeds: int = LOCAL_SEEDS

    @property
    def steps(self) -> int:
        return len(self.variants) * len(MICRO) * self.seeds

    def figure(self, settings: FigureSettings) -> PaperFigure:
        seeds = range(settings.seed, settings.seed + self.seeds)
        wanted = [(variant, policy, seed) for variant in self.variants for policy in MICRO for seed in seeds]
        calls = [(variant.parameters_of(policy, settings.quotes), seed) for variant, policy, seed in wanted]
        found: dict[tuple[str, float], list[RunFigures]] = {}
        runs = settings.run_all(f"{__name__}:{run_micro.__name__}", calls)
        for (variant, policy, seed), run in zip(wanted, runs, strict=True):
            found.setdefault((policy, variant.x), []).append(RunFigures(**run))
            settings.report(f"{self.variable} {variant.x:g}, {policy}, seed {seed}")
        charts = tuple(self._chart(measure, found) for measure in self.measures)
        here = "; ".join(f"{measure.title.lower()}: {self._ends(measure, found)}" for measure in self.measures)
        return PaperFigure(charts=charts, statements=(FigureStatement(paper=self.statement, here=here, why=self.why),))

    def _chart(self, measure: MicroMeasure, found: dict[tuple[str, float], list[RunFigures]]) -> FigureChart:
        xs = tuple(variant.x for variant in self.variants)
        lines = tuple(
            FigureLine(name=policy, ys=tuple(_mean(measure, found[policy, x]) for x in xs)) for policy in MICRO
        )
        return FigureChart(
            title=f"{measure.figure}: {measure.title}",
            x_label=self.variable,
            y_label=measure.y_label,
            xs=xs,
            lines=lines,
        )

    def _ends(self, measure: MicroMeasure, found: dict[tuple[str, float], list[RunFigures]]) -> str:
        """The first and the last value by policy."""
        ends = []
        for policy in MICRO:
            values = [_mean(measure, found[policy, variant.x]) for variant in (self.variants[0], self.variants[-1])]
            first, last = ("–" if value is None else f"{float(f'{value:.3g}'):,g}" for value in values)
            ends.append(f"{first} to {last} ({policy})")
        return ", ".join(ends)


def _mean(measure: MicroMeasure, runs: list[RunFigures]) -> float | None:
    """The mean over seeds; None if a run has no value, such as one that never converged."""
    values = [measure.of(run) for run in runs]
    return None if any(math.isnan(value) for value in values) else float(f"{np.mean(values):.5g}")


def run_micro(parameters: dict[str, str], seed: int) -> dict[str, float]:
    """One run, as `lavant sweep` calls functions: text in, figures out."""
    return _run(**parameters, seed=seed)


@lru_cache(maxsize=1024)
def _run(*, experiment: str, config: str, policy: str, quotes: str, seed: int) -> dict[str, float]:
    trace = run_balancing(
        msgspec.json.decode(experiment, type=BalancingExperiment),
        policy,
        seed,
        config=msgspec.json.decode(config, type=BalancingConfig),
        quotes=Path(quotes) if quotes else None,
    )
    return msgspec.structs.asdict(RunFigures.of(trace))


def _changed(experiment: BalancingExperiment, **changes: object) -> BalancingExperiment:
    return msgspec.structs.replace(experiment, **changes)


SUBSCRIBERS = MicroExperiment(
    variable="subscribers",
    variants=tuple(
        MicroVariant(
            x=float(count),
            experiment=_changed(SHORT, subscribers=count, joins_s=(10, 10 + count / 4), duration_s=2500 + count),
        )
        for count in (1000, 2000, 3000, 4000)
    ),
    measures=(
        _measure("5.23", *CONVERGENCE),
        _measure("5.24", "Deviation of the matching delay", "deviation (s)", lambda run: run.delay_deviation_s),
        _measure("5.25", "Deviation of the input utilisation", "deviation", lambda run: run.input_deviation),
        _measure("5.25", "Deviation of the output utilisation", "deviation", lambda run: run.output_deviation),
        _measure("5.26", "Error of estimated input", "relative error", lambda run: run.input_error),
        _measure("5.27", "Error of estimated output", "relative error", lambda run: run.output_error),
    ),
    statement="1,000 s more for each 2,000 subscribers that join at four a second; deviations and errors do "
    "not depend on "
    "their number",
    why="4,000 subscribers are about what these brokers can carry: input grows with their number and their "
    "interests, and "
    "the thesis's 8,000 would overload all of them here",
)

ZERO_TRAFFIC = MicroExperiment(
    variable="subscribers without traffic (%)",
    variants=tuple(
        MicroVariant(x=float(percent), experiment=_changed(SHORT, zero_traffic=percent / 100))
        for percent in (0, 20, 40, 60, 80)
    ),
    measures=(
        _measure("5.28", "Deviation of the input utilisation", "deviation", lambda run: run.input_deviation),
        _measure("5.28", "Deviation of the output utilisation", "deviation", lambda run: run.output_deviation),
        _measure("5.29", "Deviation of the matching delay", "deviation (s)", lambda run: run.delay_deviation_s),
        _measure("5.30", *CONVERGENCE),
    ),
    statement="load is even whatever the share, the deviation of the matching delay is .001 to .002 s; convergence is "
    "faster up to 20 %, and the same beyond",
)

EDGE_BROKERS = MicroExperiment(
    variable="edge brokers",
    variants=tuple(MicroVariant(x=float(count), experiment=equal_brokers(count)) for count in (2, 3, 4, 6, 8)),
    measures=(
        _measure("5.31", "Delivery delay", "mean delay (s)", lambda run: run.delivery_s),
        _measure("5.32", "Deviation of the input utilisation", "deviation", lambda run: run.input_deviation),
        _measure("5.32", "Deviation of the output utilisation", "deviation", lambda run: run.output_deviation),
        _measure("5.33", "Deviation of the matching delay", "deviation (s)", lambda run: run.delay_deviation_s),
        _measure("5.34", *CONVERGENCE),
    ),
    statement="more brokers shorten the delivery delay, deviations stay the same, and the convergence time "
    "rises most from "
    "two to three brokers",
)

SAMPLES = MicroExperiment(
    variable="samples",
    variants=tuple(
        MicroVariant(x=float(count), experiment=SHORT, parameters=(("press_samples", count),))
        for count in (1, 5, 10, 50, 200)
    ),
    measures=(
        _measure("5.35", "Error of estimated input", "relative error", lambda run: run.input_error),
        _measure("5.36", "Error of estimated output", "relative error", lambda run: run.output_error),
        _measure("5.37", *CONVERGENCE),
        _measure("5.38", "Highest input utilisation of B1", "input utilisation", lambda run: run.input_max),
        _measure("5.39", "B1 overloaded until", "time (s)", lambda run: run.overloaded_s),
    ),
    statement="10 to 50 samples are best; more make sessions slower, and the first samples out of date",
    why="drawn quotes do not drift as real ones do, so samples do not grow old here, and more of them estimate better",
)

THRESHOLD = MicroExperiment(
    variable="local detection threshold",
    variants=tuple(
        MicroVariant(
            x=value,
            experiment=SHORT,
            parameters=(
                ("ratio_threshold", value),
                ("delay_threshold", value),
                ("cluster_ratio_threshold", max(value, 0.15)),
                ("cluster_delay_threshold", max(value, 0.15)),
            ),
        )
        for value in (0.02, 0.05, 0.1, 0.2, 0.4, 0.7)
    ),
    measures=(
        _measure("5.40", "Deviation of the input utilisation", "deviation", lambda run: run.input_deviation),
        _measure("5.40", "Deviation of the output utilisation", "deviation", lambda run: run.output_deviation),
        _measure("5.41", "Deviation of the matching delay", "deviation (s)", lambda run: run.delay_deviation_s),
        _measure("5.42", "Sessions", "sessions", lambda run: float(run.sessions)),
        _measure("5.43", "Overhead", "control messages of all", lambda run: run.overhead),
    ),
    statement="below .04 sessions never end, because estimates are less precise; from .08 on there are fewer than 40; "
    "deviations stay below .25 even at .7",
)

PERIOD = MicroExperiment(
    variable="period of local reports (s)",
    variants=tuple(
        MicroVariant(
            x=float(seconds),
            experiment=SHORT,
            parameters=(
                ("report_period_ms", seconds * 1000),
                ("cluster_report_period_ms", max(60, seconds) * 1000),
            ),
        )
        for seconds in (10, 30, 60, 120, 240)
    ),
    measures=(
        _measure("5.44", *CONVERGENCE),
        _measure("5.45", "Highest input utilisation of B1", "input utilisation", lambda run: run.input_max),
        _measure("5.46", "Overhead", "control messages of all", lambda run: run.overhead),
    ),
    statement="200 s more convergence time for each 100 s; the overhead is below .6 % at 20 s, and .1 % at 120 s",
)

CLUSTERS = MicroExperiment(
    variable="clusters",
    variants=tuple(MicroVariant(x=float(count), experiment=chain(count)) for count in (2, 3, 4, 6, 8)),
    measures=(
        _measure("5.47", "Delivery delay", "mean delay (s)", lambda run: run.delivery_s),
        _measure("5.48", *CONVERGENCE),
    ),
    statement="clusters more than three hops away get no load; the convergence time rises up to four clusters",
    seeds=GLOBAL_SEEDS,
)

CLUSTER_THRESHOLD = MicroExperiment(
    variable="global detection threshold",
    variants=tuple(
        MicroVariant(
            x=value,
            experiment=STAR,
            parameters=(("cluster_ratio_threshold", value), ("cluster_delay_threshold", value)),
        )
        for value in (0.1, 0.15, 0.2, 0.3, 0.4)
    ),
    measures=(
        _measure("5.53", "Deviation of the input utilisation", "deviation", lambda run: run.input_deviation),
        _measure("5.53", "Deviation of the output utilisation", "deviation", lambda run: run.output_deviation),
        _measure("5.54", "Deviation of the matching delay", "deviation (s)", lambda run: run.delay_deviation_s),
        _measure("5.55", "Sessions of clusters", "sessions", lambda run: float(run.cluster_sessions)),
    ),
    statement="deviations stay below the threshold, except that of the output at .1; sessions become fewer",
    seeds=GLOBAL_SEEDS,
)

CLUSTER_PERIOD = MicroExperiment(
    variable="period of global reports (s)",
    variants=tuple(
        MicroVariant(x=float(seconds), experiment=STAR, parameters=(("cluster_report_period_ms", seconds * 1000),))
        for seconds in (30, 60, 120, 240)
    ),
    measures=(
        _measure("5.56", "Overhead", "control messages of all", lambda run: run.overhead),
        _measure("5.57", *CONVERGENCE),
    ),
    statement="neither overhead nor convergence time depends on it",
    seeds=GLOBAL_SEEDS,
)
