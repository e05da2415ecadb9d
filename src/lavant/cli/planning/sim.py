"""`lavant sim`: simulate whole systems in virtual time, search seeds for violations, and replay them."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from lavant.cli.common import AsJson, print_json, progress_console
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.simulation.kernel import RunOutcome, Trace

EXIT_VIOLATED = 1
EXIT_INTERRUPTED = 130
SEEDS_DEFAULT = "1..100"
FIGURES_PER_LINE = 4

sim = typer.Typer(help="Simulate whole systems in virtual time, with faults drawn from a seed.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="SCENARIO", help="a name from `lavant sim list`")]
Minutes = Annotated[float | None, typer.Option(help="virtual minutes; by default those of the scenario")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="set an option of the scenario; repeatable")
]
TraceFile = Annotated[Path | None, typer.Option("--trace", help="file for the trace, one event per line")]


@sim.command("list")
def list_(as_json: AsJson = False) -> None:
    """List scenarios with their options and defaults."""
    from lavant.simulation.kernel import options_of  # noqa: PLC0415
    from lavant.simulation.scenarios.registry import scenarios  # noqa: PLC0415

    if as_json:
        found = scenarios().values()
        print_json([{"name": each.name, "minutes": each.minutes, "summary": each.summary} for each in found])
        return
    for scenario in scenarios().values():
        print(f"{scenario.name}  ({scenario.minutes:g} minutes)\n  {scenario.summary}")
        for option in options_of(scenario):
            print(f"    {option}")


@sim.command("run")
def run_(
    scenario: Name,
    seed: Annotated[int | None, typer.Option(min=0, help="run this seed only")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help=f"range of seeds; {SEEDS_DEFAULT} by default")
    ] = None,
    minutes: Minutes = None,
    set_: Settings = None,
    trace: TraceFile = None,
    as_json: AsJson = False,
) -> None:
    """Search for a violation: run seed after seed, stop at the first violation, and print how to replay it.

    Exit code 1 if there is a violation. The trace file holds the seed that ran last.
    """
    wanted = _seeds(seed, seeds)
    run = _runner(scenario, minutes, set_)
    start_s = time.monotonic()
    totals: Counter[str] = Counter()
    done = events = 0
    with _bar(scenario, len(wanted)) as report:
        try:
            for number in wanted:
                with _trace(trace) as lines:
                    outcome = run(number, trace=lines)
                done, events = done + 1, events + outcome.events
                totals.update(outcome.figures)
                report(done, events)
                if outcome.violation is not None:
                    break
        except KeyboardInterrupt:
            typer.echo(f"stopped after {done} of {len(wanted)} seeds; none of them violates anything", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if as_json:
        print_json({**_as_dict(outcome), "seeds": done, "events": events, "figures": dict(sorted(totals.items()))})
        raise typer.Exit(0 if outcome.violation is None else EXIT_VIOLATED)
    _print_totals(totals)
    if outcome.violation is not None:
        print(outcome.report())
        raise typer.Exit(EXIT_VIOLATED)
    seconds = time.monotonic() - start_s
    summary = f"seed {wanted[0]} holds" if done == 1 else f"{done} seeds hold ({wanted[0]} to {wanted[-1]})"
    print(f"{summary}: {outcome.minutes * done:g} min of virtual time, {events:,} events in {seconds:.1f} s")
    if outcome.digest is not None and done == 1:
        print(f"trace {trace}, digest {outcome.digest}")


@sim.command("replay")
def replay(
    scenario: Name,
    seed: Annotated[int, typer.Option(min=0, help="seed to replay")],
    minutes: Minutes = None,
    set_: Settings = None,
    trace: TraceFile = None,
    lines: Annotated[int, typer.Option(min=0, max=1_000, help="last lines of the trace to show")] = 40,
    verbose: Annotated[bool, typer.Option("--verbose", help="show the whole trace")] = False,
    as_json: AsJson = False,
) -> None:
    """Replay one seed and show the last events before the violation. Exit code 1 if there is one."""
    run = _runner(scenario, minutes, set_)
    with _trace(trace, also=sys.stdout if verbose and not as_json else None, always=True) as record:
        assert record is not None
        outcome = run(seed, trace=record)
    if as_json:
        print_json({**_as_dict(outcome), "trace": list(record.last(lines))})
        raise typer.Exit(0 if outcome.violation is None else EXIT_VIOLATED)
    if not verbose:
        for line in record.last(lines):
            print(line)
    if outcome.violation is not None and outcome.violation.traceback:
        print(outcome.violation.traceback, end="")
    print(f"{outcome.report()}\n{record.lines:,} lines of trace, digest {outcome.digest}")
    raise typer.Exit(0 if outcome.violation is None else EXIT_VIOLATED)


def _as_dict(outcome: RunOutcome) -> dict[str, Any]:
    violation = None if outcome.violation is None else outcome.report()
    return {"seed": outcome.seed, "minutes": outcome.minutes, "violation": violation, "digest": outcome.digest}


def _runner(name: str, minutes: float | None, settings: list[str] | None) -> Callable[..., RunOutcome]:
    """`run` for this scenario, with its options checked."""
    from lavant.simulation.kernel import parse_options, require_minutes, run  # noqa: PLC0415
    from lavant.simulation.scenarios.registry import scenario_named  # noqa: PLC0415

    scenario = scenario_named(name)
    if minutes is not None:
        require_minutes(minutes)
    options = parse_options(scenario, () if settings is None else settings)
    return partial(run, scenario, minutes=minutes, options=options)


def _seeds(seed: int | None, seeds: str | None) -> range:
    if seed is not None and seeds is not None:
        raise InvalidValue(f"give --seed or --seeds, not both; got {seed} and {seeds!r}")
    if seed is not None:
        return range(seed, seed + 1)
    text = SEEDS_DEFAULT if seeds is None else seeds
    first, dots, last = text.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise InvalidValue(f"--seeds {text!r} is not A..B with A ≤ B, such as {SEEDS_DEFAULT}")
    return range(int(first), int(last) + 1)


@contextlib.contextmanager
def _trace(path: Path | None, *, also: TextIO | None = None, always: bool = False) -> Iterator[Trace | None]:
    """A trace into the file and `also`; None without either, unless `always`."""
    from lavant.simulation.kernel import Trace  # noqa: PLC0415

    with contextlib.ExitStack() as closing:
        files = [] if also is None else [also]
        if path is not None:
            try:
                files.append(closing.enter_context(path.open("w", encoding="utf-8")))
            except OSError as error:
                raise InvalidValue(f"cannot write the trace to {path}: {error.strerror}") from None
        yield Trace(*files) if files or always else None


@contextlib.contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Progress over seeds on the terminal; standard output stays for the result."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    events = TextColumn("{task.fields[events]:,} events")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), events, TimeRemainingColumn())
    with Progress(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task(name, total=total, events=0)
        yield lambda done, count: bar.update(task, completed=done, events=count)


def _print_totals(totals: Counter[str]) -> None:
    """Print event counts, so that a run in which nothing happened is not taken for a proof."""
    figures = [f"{name} {count:,}" for name, count in sorted(totals.items())]
    for first in range(0, len(figures), FIGURES_PER_LINE):
        print("  " + " · ".join(figures[first : first + FIGURES_PER_LINE]))
