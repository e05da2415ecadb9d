"""Figures 12 to 14 of the publisher paper: latency and batch sizes under the trace of a lookup service."""

from __future__ import annotations

from random import Random

import numpy as np

from lavant.simulation.figures import (
    FigureChart,
    FigureLine,
    FigureSettings,
    FigureStatement,
    FigureTable,
    PaperFigure,
)
from lavant.simulation.publisher.batches import batch_sizes, binned, run_publisher
from lavant.simulation.publisher.load import lookup_trace

TRACE_SIZES = (1, 10, 50)
SPEEDUP = 50.0


def figure_12(settings: FigureSettings) -> PaperFigure:
    return _trace_latencies(settings, 1.0)


def figure_13(settings: FigureSettings) -> PaperFigure:
    return _trace_latencies(settings, SPEEDUP)


def _trace_latencies(settings: FigureSettings, speedup: float) -> PaperFigure:
    steps = lookup_trace(Random(settings.seed), speedup=speedup)
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    found: dict[tuple[str, int], np.ndarray] = {}
    for controller, sizes in (("fixed", TRACE_SIZES), ("aimd", TRACE_SIZES), ("eager", (1,))):
        for size in sizes:
            run = run_publisher(controller, steps, settings.seed, batch_size=size)
            found[controller, size] = np.quantile([taken.latency_us / 1000 for taken in run.taken], shares)
            settings.report(f"{controller}, N = {size}")

    def line(name: str, controller: str, place: int) -> FigureLine:
        sizes = [size if controller != "eager" else 1 for size in TRACE_SIZES]
        return FigureLine(name=name, ys=tuple(float(found[controller, size][place]) for size in sizes))

    off = [found["fixed", size][2] for size in TRACE_SIZES]
    on = [found["aimd", size][2] for size in TRACE_SIZES]
    is_slow = speedup == 1.0
    requests = sum(step.rate_per_s * step.duration_s for step in steps)
    length_s = sum(step.duration_s for step in steps)
    return PaperFigure(
        charts=(
            FigureChart(
                title="Latency under the trace" if is_slow else f"Latency under the trace, {speedup:g} times as fast",
                x_label="N, with tuning the initial N",
                y_label="latency (ms)",
                xs=tuple(map(float, TRACE_SIZES)),
                lines=(
                    line("fixed, median", "fixed", 2),
                    line("fixed, p95", "fixed", 4),
                    line("aimd, median", "aimd", 2),
                    line("aimd, p95", "aimd", 4),
                    line("eager, median", "eager", 2),
                ),
                y_max=None if is_slow else 2000.0,
            ),
        ),
        tables=(
            FigureTable(
                title="Latency in ms",
                columns=("controller and N", "p5", "p25", "median", "p75", "p95"),
                rows=tuple(
                    (
                        f"{controller} {size}" if controller != "eager" else "eager",
                        *(f"{value:.0f}" for value in values),
                    )
                    for (controller, size), values in found.items()
                ),
            ),
        ),
        statements=(
            FigureStatement(
                paper="Without tuning, N = 1 is best and N = 10 and 50 take longer."
                if is_slow
                else "Without tuning, the response time is very high with N = 1.",
                here=f"Medians with N = 1, 10, 50: {off[0]:.0f}, {off[1]:.0f}, {off[2]:.0f} ms.",
                why="T, the longest wait for N messages, is 200 ms, so large N cost at most that."
                if is_slow
                else "N = 1 does not keep up with the load: its latency is that of a backlog.",
            ),
            FigureStatement(
                paper="With tuning, the performance is the same whatever the initial N.",
                here=f"Medians with tuning: {on[0]:.0f}, {on[1]:.0f}, {on[2]:.0f} ms.",
            ),
            FigureStatement(
                paper="The trace of a lookup service.",
                here=f"A drawn one of six hours, {requests:.0f} requests, "
                f"{requests / length_s:.3g} a second on average.",
                why="The trace is not public, and its rate is not printed.",
            ),
        ),
    )


def figure_14(settings: FigureSettings) -> PaperFigure:
    steps = lookup_trace(Random(settings.seed), speedup=SPEEDUP)
    length_s = sum(step.duration_s for step in steps)
    run = run_publisher("aimd", steps, settings.seed)
    settings.report("aimd")
    times_s, sizes = batch_sizes(run)
    rates = np.array([step.rate_per_s for step in steps])
    width_s = 6.0
    sizes_binned = binned(times_s, sizes, width_s, length_s)
    each = int(width_s / steps[0].duration_s)
    load = rates[: len(sizes_binned) * each].reshape(-1, each).mean(axis=1)
    correlation = float(np.corrcoef([0.0 if y is None else y for y in sizes_binned], load)[0, 1])
    xs = tuple(width_s * number for number in range(len(sizes_binned)))
    return PaperFigure(
        charts=(
            FigureChart(
                title=f"N under the trace, {SPEEDUP:g} times as fast",
                x_label="time (s)",
                y_label="publications; requests a second",
                xs=xs,
                lines=(FigureLine(name="batch", ys=sizes_binned), FigureLine(name="load", ys=tuple(map(float, load)))),
            ),
        ),
        statements=(
            FigureStatement(
                paper="N correlates well with the changes in the load.",
                here=f"The correlation over periods of {width_s:g} s is {correlation:.2f}.",
            ),
        ),
    )
