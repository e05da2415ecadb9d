"""The kernel as a whole: a scenario that holds, mistakes that the search finds, and runs that repeat byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from lavant.simulation.kernel import Effect, RunOutcome, Scenario, SimulatedDisk, Trace, run
from lavant.simulation.kernel.faults.kinds import KINDS
from lavant.simulation.scenarios import counter
from lavant.simulation.scenarios.counter import (
    LOG_BYTES,
    RECORD,
    Counted,
    CounterOptions,
    CounterSession,
    Increment,
    Server,
)
from lavant.simulation.scenarios.registry import scenarios

SEEDS = range(1, 21)
SEARCHED = range(1, 400)


# ── servers with a mistake ────────────────────────────────────────────────────────────────────────────────────────────


class Hasty(Server):
    """Answers when a group is being written, and not when it is durable."""

    def _write(self, now_ms: int) -> list[Effect]:
        effects = super()._write(now_ms)
        return [*effects, *(self._answers(self._writing) if effects else [])]


class Forgetful(Server):
    """Does not recognise an increment that comes again."""

    def _increment(self, source: str, increment: Increment) -> list[Effect]:
        self._apply(Counted(increment, self.count + 1))
        self._staged.append((source, self.last[increment.session]))
        return []


class Premature(Server):
    """Recognises it, and answers although it may still be lost."""

    def _increment(self, source: str, increment: Increment) -> list[Effect]:
        known = self.last.get(increment.session)
        if known is not None and known.increment == increment:
            return self._answers([(source, known)])
        return super()._increment(source, increment)


class Trusting(Server):
    """Takes for durable what it finds after its process died."""

    def _recover(self) -> None:
        disk = self._disk
        self._disk = _WithoutSync(disk)  # type: ignore[assignment]
        super()._recover()
        self._disk = disk


class _WithoutSync:
    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self.names, self.read, self.remove = disk.names, disk.read, disk.remove

    def sync(self, name: str) -> None:
        pass


class Unchecked(Server):
    """Reads records without looking at their checksums, so a torn one counts."""

    def _recover(self) -> None:
        for name in self._disk.names():
            content = self._disk.read(name)
            if len(content) < LOG_BYTES:
                self._disk.remove(name)
                continue
            self._file, self._position = int(name.removeprefix("log-")), 0
            for position in range(0, len(content) - RECORD.size + 1, RECORD.size):
                self._chain, number, client, start, count = RECORD.unpack_from(content, position)
                if number == 0:
                    break
                self._apply(Counted(Increment(CounterSession(client, start), number), count))
                self._position += RECORD.size
            self._disk.sync(name)


class Silent(Server):
    """Never answers an increment that it knows already, so a lost answer stays lost."""

    def _increment(self, source: str, increment: Increment) -> list[Effect]:
        known = self.last.get(increment.session)
        return [] if known is not None and known.increment == increment else super()._increment(source, increment)


def with_server(make_server: Callable[[SimulatedDisk], Server]) -> Scenario:
    return Scenario(
        name="counter",
        summary="…",
        options=CounterOptions,
        build=partial(counter.build, make_server=make_server),
        minutes=2.0,
    )


def first_violation(scenario: Scenario) -> RunOutcome:
    """The first seed that fails; a failure of this test means that the search finds nothing."""
    return next(outcome for seed in SEARCHED if (outcome := run(scenario, seed)).violation is not None)


# ── what the search finds ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_server_without_mistakes_holds_whatever_happens() -> None:
    figures: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = run(counter.SCENARIO, seed, minutes=2)
        assert outcome.violation is None, outcome.report()
        figures.update(outcome.figures)
    # And much did happen.
    rates = CounterOptions()
    struck = [name for name, _ in KINDS if getattr(rates, f"{name}_per_min") > 0]
    assert [name for name in struck if not figures[f"fault {name.replace('_', ' ')}"]] == []
    wanted = ("power losses", "kills", "sectors lost", "packets dropped", "packets duplicated", "packets held back")
    assert [name for name in wanted if not figures[name]] == []
    assert figures["increments confirmed"] > 10_000


@pytest.mark.parametrize("server", [Hasty, Forgetful, Premature, Trusting, Unchecked, Silent])
def test_the_search_finds_a_mistake_and_its_seed_repeats_it(server: type[Server]) -> None:
    scenario = with_server(server)
    found = first_violation(scenario)
    trace = Trace()
    again = run(scenario, found.seed, trace=trace)
    assert found.violation is not None
    assert again.violation == found.violation
    assert (again.events, again.figures) == (found.events, found.figures)
    assert trace.last(1)[0].endswith(f"VIOLATED {found.violation.invariant}: {found.violation.what}")
    assert f"lavant sim replay counter --seed {found.seed} --minutes 2" in found.report()


def test_faults_that_are_switched_off_do_not_happen() -> None:
    links = CounterOptions(swarm=False, loss=0.0, duplication=0.0, reordering=0.0)
    quiet = msgspec.structs.replace(links, **{f"{name}_per_min": 0.0 for name, _ in KINDS})
    outcome = run(counter.SCENARIO, 1, minutes=1, options=quiet)
    assert outcome.violation is None
    assert set(outcome.figures) == {"disk syncs", "disk writes", "increments confirmed", "packets sent"}


# ── repetition ────────────────────────────────────────────────────────────────────────────────────────────────────────

SCRIPT = """
import sys
from lavant.simulation.kernel import Trace, parse_options, run
from lavant.simulation.scenarios.registry import scenario_named

scenario = scenario_named("counter")
for seed in (5, 6, 7):
    with open(f"{sys.argv[1]}-{seed}", "w", encoding="utf-8") as file:
        options = parse_options(scenario, ["swarm=false", "power_losses_per_min=10", "flipped_bits_per_min=0"])
        outcome = run(scenario, seed, minutes=1, options=options, trace=Trace(file))
    print(outcome.digest, outcome.events, outcome.figures)
"""


def test_traces_are_byte_identical_in_processes_that_hash_differently(tmp_path: Path) -> None:
    printed = []
    for hash_seed in (1, 2):
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / f"trace-{hash_seed}")]
        printed.append(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert printed[0] == printed[1]
    for seed in (5, 6, 7):
        one, other = ((tmp_path / f"trace-{hash_seed}-{seed}").read_bytes() for hash_seed in (1, 2))
        assert one == other
        assert one.count(b"\n") > 1_000
        assert b"loses power" in one


def test_another_seed_is_another_run() -> None:
    digests = {run(counter.SCENARIO, seed, minutes=0.2, trace=Trace()).digest for seed in range(10)}
    assert len(digests) == 10


def test_a_trace_tells_who_did_what_when() -> None:
    file = StringIO()
    run(counter.SCENARIO, 3, minutes=0.2, trace=Trace(file))
    lines = file.getvalue().splitlines()
    assert lines[0] == "0.000000 server boots 1"
    times = [float(line.split(" ", 1)[0]) for line in lines]
    assert times == sorted(times)


# ── the registry ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_scenarios_are_found_by_their_files() -> None:
    assert scenarios()["counter"] is counter.SCENARIO
    assert list(scenarios()) == sorted(scenarios())


@pytest.mark.parametrize("name", list(scenarios()))
def test_every_scenario_runs_with_its_defaults(name: str) -> None:
    outcome = run(scenarios()[name], 1, minutes=0.1)
    assert outcome.violation is None, outcome.report()
    assert outcome.events > 0
