"""Figures 8 to 11 and Table II of the publisher paper, and its list of figures: latency and batch sizes with and
without auto-tuning.

`eager`, Lavant's default controller, is added to each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec
import numpy as np

from lavant.simulation.figures import (
    FigureChart,
    FigureEntry,
    FigureLine,
    FigureSettings,
    FigureStatement,
    FigureTable,
    Paper,
    PaperFigure,
)
from lavant.simulation.kernel.distributions import S
from lavant.simulation.publisher.batches import batch_sizes, binned, run_publisher
from lavant.simulation.publisher.congestion import SHORT_OF_CAPACITY, SLOW_SUBSCRIBER, Congested, congest
from lavant.simulation.publisher.latency import AS_IN_THE_PAPER, Latency, measure, tuned
from lavant.simulation.publisher.load import PAPER_LOADS_PER_S, TABLE_II, LoadStep
from lavant.simulation.publisher.steps import SHORT_TABLE_II, StepResponse, respond
from lavant.simulation.publisher.trace_figures import TRACE_SIZES, figure_12, figure_13, figure_14

SEEDS = 4
STEP_SEEDS = 12
CONGESTION_SEEDS = 5
SIZES = {
    1.75: (1, 2, 3, 4, 6, 8, 10),
    17.5: (3, 4, 5, 6, 7, 10, 15, 20),
    35.0: (7, 8, 9, 10, 11, 15, 20, 30),
    55.0: (11, 13, 14, 15, 16, 20, 30, 40),
}
"""Fixed N at each load: from the first that keeps up."""
INITIAL = (1, 5, 10, 20, 50)
EXPECTED_FIXED_MS = {1.75: 313, 17.5: 408, 35.0: 420, 55.0: 434}
EXPECTED_AIMD_MS = {1.75: 424, 17.5: 549, 35.0: 581, 55.0: 621}
"""From simulations with other code, of the same system and reading of the paper; the paper has no numbers."""
BIN_S = 5.0
"""N is averaged over so long in charts."""
SHORT = msgspec.structs.replace(AS_IN_THE_PAPER, workers_reserved=3, transfer_size_max=500)
"""A worker may take several publications at once: one by one, no controller could help this broker."""
SLOW_CONTROLLERS = (("fixed", 5), ("aimd", 1), ("eager", 1))
SHORT_CONTROLLERS = (("fixed", 15), ("aimd", 1), ("eager", 1))
"""With the initial N: for `fixed`, about the best at this load."""


@lru_cache(maxsize=256)
def _latency(controller: str, load_per_s: float, batch_size: int, seed: int) -> Latency:
    config = tuned(AS_IN_THE_PAPER, controller, batch_size=batch_size)
    return measure(config, load_per_s, seeds=range(seed, seed + SEEDS))


def _best_fixed(load_per_s: float, seed: int) -> Latency:
    return min((_latency("fixed", load_per_s, size, seed) for size in SIZES[load_per_s]), key=lambda each: each.mean_ms)


def figure_8(settings: FigureSettings) -> PaperFigure:
    charts, rows = [], []
    for load_per_s, sizes in SIZES.items():
        found = []
        for size in sizes:
            found.append(_latency("fixed", load_per_s, size, settings.seed))
            settings.report(f"N = {size} at {load_per_s:g} a second")
        charts.append(
            FigureChart(
                title=f"Latency without tuning, {load_per_s:g} requests a second",
                x_label="N",
                y_label="mean latency (ms)",
                xs=tuple(map(float, sizes)),
                lines=(_latencies("fixed N", found),),
            )
        )
        best = _best_fixed(load_per_s, settings.seed)
        expected = EXPECTED_FIXED_MS[load_per_s]
        rows.append((f"{load_per_s:g}", str(best.batch_size), str(best), str(expected), _off(best.mean_ms, expected)))
    best = _best_fixed(35.0, settings.seed)
    unstable = _latency("fixed", 17.5, 1, settings.seed)
    return PaperFigure(
        charts=tuple(charts),
        tables=(
            FigureTable(
                title="The best fixed N: mean latency in ms",
                columns=("requests a second", "best N", "latency", "with other code", "difference"),
                rows=tuple(rows),
            ),
        ),
        statements=(
            FigureStatement(
                paper="At 1.75 requests a second N = 1 is best; at 35 about N = 10.",
                here=f"N = {rows[0][1]} and N = {best.batch_size}.",
            ),
            FigureStatement(
                paper="At higher loads small N have high response times, since there are not enough workers.",
                here=f"N = 1 does not keep up from 17.5 requests a second on: {unstable.mean_ms / 1000:.0f} s in a "
                f"run of {20 + 2500 / 17.5:.0f} s.",
                why="It is no longer a response time, but grows with the length of the run.",
            ),
        ),
    )


def figure_9(settings: FigureSettings) -> PaperFigure:
    charts, rows = [], []
    above: list[float] = []
    below: list[float] = []
    spread = 0.0
    for load_per_s in PAPER_LOADS_PER_S:
        found = []
        for size in INITIAL:
            found.append(_latency("aimd", load_per_s, size, settings.seed))
            settings.report(f"aimd at {load_per_s:g} a second")
        means = [each.mean_ms for each in found]
        spread = max(spread, max(means) / min(means) - 1.0)
        best = _best_fixed(load_per_s, settings.seed)
        eager = _latency("eager", load_per_s, 1, settings.seed)
        settings.report(f"eager at {load_per_s:g} a second")
        charts.append(
            FigureChart(
                title=f"Latency with tuning, {load_per_s:g} requests a second",
                x_label="initial N",
                y_label="mean latency (ms)",
                xs=tuple(map(float, INITIAL)),
                lines=(_latencies("aimd", found), _latencies("eager (default)", [eager] * len(INITIAL))),
            )
        )
        aimd = found[0]
        expected = EXPECTED_AIMD_MS[load_per_s]
        above.append(aimd.mean_ms / best.mean_ms - 1.0)
        below.append(1.0 - eager.mean_ms / best.mean_ms)
        rows.append(
            (
                f"{load_per_s:g}",
                str(best),
                str(aimd),
                f"{expected}",
                _off(aimd.mean_ms, expected),
                f"{above[-1]:+.0%}",
                str(eager),
                f"{-below[-1]:+.0%}",
            )
        )
    return PaperFigure(
        charts=tuple(charts),
        tables=(
            FigureTable(
                title="Mean latency in ms",
                columns=(
                    "requests a second",
                    "best fixed N",
                    "aimd",
                    "aimd with other code",
                    "difference",
                    "aimd to best",
                    "eager",
                    "eager to best",
                ),
                rows=tuple(rows),
            ),
        ),
        statements=(
            FigureStatement(
                paper="With auto-tuning the response time is the same whatever the initial N.",
                here=f"It differs by {spread:.0%} at most.",
            ),
            FigureStatement(
                paper="Auto-tuning finds the N that optimises the latency.",
                here=f"Its latency is {_range(above)} above that of the best fixed N; that of `eager` is "
                f"{_range(below)} below.",
                why="The polling interval follows the time to read the store (150 ms here), so `aimd` waits about "
                "one more reading than needed. Where reading takes 30 ms the difference is 3 to 10 %.",
            ),
        ),
    )


def figure_10(settings: FigureSettings) -> PaperFigure:
    run = run_publisher("aimd", (LoadStep(35.0, 300.0),), settings.seed)
    settings.report("aimd at 35 a second")
    times_s, sizes = batch_sizes(run)
    mean = float(sizes[times_s >= 20.0].mean())
    best = min((_latency("fixed", 35.0, size, settings.seed) for size in SIZES[35.0]), key=lambda each: each.mean_ms)
    settings.report("the best fixed N")
    by_second = binned(times_s, sizes, 1.0, 300.0)
    return PaperFigure(
        charts=(
            FigureChart(
                title="N with auto-tuning, 35 requests a second",
                x_label="time (s)",
                y_label="publications per batch",
                xs=tuple(float(second) for second in range(300)),
                lines=(FigureLine(name="batch", ys=by_second),),
                limit=("mean", mean),
            ),
        ),
        statements=(
            FigureStatement(
                paper="The average N is slightly less than 10, the N that minimises the response time.",
                here=f"Batches hold {mean:.1f} publications on average; the best fixed N is {best.batch_size}.",
                why="N falls by half whenever too few wait at a poll, which happens often with Poisson arrivals, and "
                "grows by 1 only.",
            ),
        ),
    )


def figure_11(settings: FigureSettings) -> PaperFigure:
    length_s = sum(step.duration_s for step in TABLE_II)
    lines, means = [], {}
    for controller in ("aimd", "eager"):
        run = run_publisher(controller, TABLE_II, settings.seed)
        times_s, sizes = batch_sizes(run)
        lines.append(FigureLine(name=controller, ys=binned(times_s, sizes, BIN_S, length_s)))
        means[controller] = _by_step(times_s, sizes)
        settings.report(f"{controller} under the load of Table II")
    bins = tuple(BIN_S * number for number in range(int(length_s / BIN_S)))
    load = tuple(next(rate for rate, until in _until() if x < until) for x in bins)
    responses = {name: respond(tuned(AS_IN_THE_PAPER, name), seeds=_seeds(settings, STEP_SEEDS)) for name in means}
    settings.report("settling times")
    aimd = responses["aimd"]
    return PaperFigure(
        charts=(
            FigureChart(
                title="Batches under the load of Table II",
                x_label="time (s)",
                y_label="publications",
                xs=bins,
                lines=tuple(lines),
            ),
            FigureChart(
                title="The load",
                x_label="time (s)",
                y_label="requests a second",
                xs=bins,
                lines=(FigureLine(name="load", ys=load, steps=True),),
            ),
        ),
        tables=(_settling(responses),),
        statements=(
            FigureStatement(
                paper="N quickly adapts to the changes of the load.",
                here=f"Latency has settled {max(step.settling_s for step in aimd)} s after a step at most; `eager` "
                "has nothing to settle.",
            ),
            FigureStatement(
                paper="The average N correlates well with the value that optimises the latency.",
                here="Batches hold "
                + ", ".join(f"{mean:.1f}" for mean in means["aimd"])
                + " publications on average in the five "
                "steps; the best fixed N are 1, 15, 6, 10 and 6.",
            ),
        ),
    )


def table_2(settings: FigureSettings) -> PaperFigure:
    rows, start_s = [], 0.0
    run = run_publisher("aimd", TABLE_II, settings.seed)
    received_s = np.array([taken.received_us for taken in run.taken]) / S
    for step in TABLE_II:
        end_s = start_s + step.duration_s
        count = int(((received_s >= start_s) & (received_s < end_s)).sum())
        rows.append((f"{start_s:g}", f"{end_s:g}", f"{step.rate_per_s:g}", f"{count / step.duration_s:.2f}"))
        start_s = end_s
    settings.report("the load of Table II")
    return PaperFigure(
        tables=(
            FigureTable(
                title="The load profile",
                columns=("from (s)", "to (s)", "requests a second", "simulated"),
                rows=tuple(rows),
            ),
        ),
        statements=(
            FigureStatement(
                paper="Times up to 1,000,000, with steps at 100000, 500000, 7500000.",
                here="Steps at 100, 300, 500 and 750 s.",
                why="The times are milliseconds; the caption leaves out 300000 and has a zero too many in 750000.",
            ),
        ),
    )


def congestion(settings: FigureSettings) -> PaperFigure:
    reserving = [msgspec.structs.replace(AS_IN_THE_PAPER, workers_reserved=count) for count in (0, 3)]
    seeds = _seeds(settings, CONGESTION_SEEDS)
    slow, short = [], []
    for controller, size in SLOW_CONTROLLERS:
        for base in reserving:
            config = tuned(base, controller, batch_size=size)
            slow.append(congest(config, SLOW_SUBSCRIBER, load_per_s=17.5, seeds=seeds))
            settings.report(f"{controller}, slow subscriber")
    for controller, size in SHORT_CONTROLLERS:
        config = tuned(SHORT, controller, batch_size=size)
        short.append(congest(config, SHORT_OF_CAPACITY, load_per_s=55.0, seeds=seeds))
        settings.report(f"{controller}, broker short of capacity")
    aimd, reserved = slow[2], slow[3]
    return PaperFigure(
        tables=(
            _congested("Slow subscriber: 17.5 publications a second arrive, about 13 a second get through", slow),
            _congested(
                "Broker short of capacity: 55 publications a second arrive, it takes 38 transfers a second", short
            ),
        ),
        statements=(
            FigureStatement(
                paper="Under a slow subscriber, auto-tuning with priority for receiving has no losses.",
                here=f"Without reserved workers {aimd.dropped} of {aimd.dropped + aimd.received} are dropped, with "
                f"three reserved {reserved.dropped}.",
                why="All 20 workers are blocked by the broker; priority cannot free one.",
            ),
            FigureStatement(
                paper="(an addition: a broker short of capacity)",
                here=f"`eager` publishes {short[2].published / short[1].published:.2f} times as much as `aimd`, "
                "since it sends larger transfers.",
            ),
        ),
    )


def _by_step(times_s: np.ndarray, values: np.ndarray) -> list[float]:
    starts_s = np.cumsum([0.0, *(step.duration_s for step in TABLE_II)])
    return [float(values[(times_s >= start) & (times_s < end)].mean()) for start, end in pairwise(starts_s)]


def _until() -> list[tuple[float, float]]:
    ends_s = np.cumsum([step.duration_s for step in TABLE_II])
    return [(step.rate_per_s, float(end)) for step, end in zip(TABLE_II, ends_s, strict=True)]


def _settling(responses: dict[str, list[StepResponse]]) -> FigureTable:
    first_s = range(4)
    return FigureTable(
        title=f"Steps of {SHORT_TABLE_II[0].duration_s:g} s, {STEP_SEEDS} seeds: latency in ms in each of the first "
        "seconds, and settled",
        columns=("controller", "load", *(f"{second + 1} s" for second in first_s), "settled", "after", "batch"),
        rows=tuple(
            (
                controller,
                f"{step.rate_per_s:g}",
                *(f"{step.latency_ms[second]:.0f}" for second in first_s),
                f"{step.settled_latency_ms:.0f}",
                f"{step.settling_s} s",
                f"{step.settled_batch_size:.1f}",
            )
            for controller, steps in responses.items()
            for step in steps
        ),
    )


def _congested(title: str, rows: Sequence[Congested]) -> FigureTable:
    return FigureTable(
        title=title,
        columns=("controller", "reserved workers", "received", "dropped", "published", "latency"),
        rows=tuple(
            (
                row.controller,
                str(row.workers_reserved),
                str(row.received),
                str(row.dropped),
                str(row.published),
                f"{row.mean_ms / 1000:.1f} s",
            )
            for row in rows
        ),
    )


def _latencies(name: str, found: Sequence[Latency]) -> FigureLine:
    return FigureLine(
        name=name,
        ys=tuple(each.mean_ms for each in found),
        half_widths=tuple(each.half_width_ms for each in found),
    )


def _range(shares: Sequence[float]) -> str:
    """
    >>> _range([0.33, 0.425])
    '33 to 42 %'
    """
    return f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"


def _seeds(settings: FigureSettings, count: int) -> range:
    return range(settings.seed, settings.seed + count)


def _off(value: float, expected: float) -> str:
    return f"{value / expected - 1.0:+.1%}"


PUBLISHER = Paper(
    "publisher",
    "S. Balasubramanian et al., *Auto-tuned Publisher in a Pub/Sub System: Design and Performance Evaluation*",
    "In virtual time, with the machine that applications run ([publisher](../publisher.md)): 20 workers, a round trip "
    "of 140 ms, 5 ms of work, 150 ms and 1 ms for each publication to read the store, 1 ms to write. `aimd` is the "
    "paper's auto-tuning, `eager` Lavant's default.",
    (
        FigureEntry("8", "latency without tuning", sum(map(len, SIZES.values())), figure_8),
        FigureEntry("9", "latency with tuning", len(PAPER_LOADS_PER_S) * (len(INITIAL) + 1), figure_9),
        FigureEntry("10", "N at a constant load", 2, figure_10),
        FigureEntry("11", "batches under a load in steps", 3, figure_11),
        FigureEntry("table-2", "the load in steps", 1, table_2),
        FigureEntry("12", "latency under a trace", 2 * len(TRACE_SIZES) + 1, figure_12),
        FigureEntry("13", "latency under the trace, 50 times as fast", 2 * len(TRACE_SIZES) + 1, figure_13),
        FigureEntry("14", "N under the trace, 50 times as fast", 1, figure_14),
        FigureEntry("congestion", "Section V-B-3: a slow subscriber", 9, congestion),
    ),
)
