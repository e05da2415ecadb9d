"""`lavant sim`: what it prints, and how it exits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lavant import cli
from lavant.simulation.kernel import FaultOptions, Scenario, World
from lavant.simulation.scenarios import registry


class Options(FaultOptions, frozen=True, kw_only=True):
    bad_seed: int = 3
    is_error: bool = False


def build(world: World, options: Options) -> None:
    for number in range(100):
        world.at(number * 1_000, world.stage.say, f"event {number}")
    world.at(1_000, world.count, "things")
    if world.seed == options.bad_seed:
        world.at(99_500, int, *(["x"] if options.is_error else []))
        world.at(99_500, world.violated, "all is well", f"seed {world.seed} is bad")


SMALL = Scenario(name="small", summary="small things happen", build=build, options=Options, minutes=0.5)


class Result:
    def __init__(self, code: object, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


class Lavant:
    """Runs the command line in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: str) -> Result:
        self._monkeypatch.setattr(sys, "argv", ["lavant", "sim", *words])
        with pytest.raises(SystemExit) as stop:
            cli.app()
        out, err = self._capsys.readouterr()
        return Result(0 if stop.value.code is None else stop.value.code, out, err)


@pytest.fixture
def lavant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lavant:
    monkeypatch.setattr(registry, "scenarios", lambda: {"small": SMALL})
    return Lavant(monkeypatch, capsys)


def test_list_shows_scenarios_with_their_options(lavant: Lavant) -> None:
    result = lavant("list")
    assert result.code == 0
    assert "small  (0.5 minutes)\n  small things happen\n    bad_seed=3 (int)\n" in result.out


def test_run_stops_at_the_first_seed_that_fails_and_says_how_to_repeat_it(lavant: Lavant) -> None:
    result = lavant("run", "small", "--seeds", "1..10")
    assert result.code == 1
    assert result.out == (
        "  things 3\n"
        "seed 3 violates 'all is well' at 0.099500 s of virtual time, after 103 events:\n  seed 3 is bad\n"
        "repeat it with\n  lavant sim replay small --seed 3 --minutes 0.5\n"
    )


def test_the_command_that_was_printed_repeats_it(lavant: Lavant) -> None:
    words = ["--minutes", "0.25", "--set", "bad_seed=7", "--set", "swarm=false"]
    first = lavant("run", "small", "--seed", "7", *words)
    command = first.out.splitlines()[-1].split()
    assert command[:2] == ["lavant", "sim"]
    again = lavant(*command[2:])
    assert again.code == 1
    assert "seed 7 violates 'all is well' at 0.099500 s" in again.out
    assert again.out.splitlines()[-2].strip() == " ".join(command)


def test_run_over_seeds_that_hold_says_how_much_that_was(lavant: Lavant) -> None:
    result = lavant("run", "small", "--seeds", "4..8", "--minutes", "2")
    assert result.code == 0
    assert "things 5" in result.out
    assert "5 seeds hold (4 to 8): 10 min of virtual time, 510 events in " in result.out


def test_run_of_one_seed_with_a_trace(lavant: Lavant, tmp_path: Path) -> None:
    result = lavant("run", "small", "--seed", "1", "--trace", str(tmp_path / "trace"))
    assert result.code == 0
    lines = (tmp_path / "trace").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["0.000000 event 0", "0.001000 event 1"]
    assert f"trace {tmp_path / 'trace'}, digest " in result.out


def test_a_trace_of_many_seeds_is_that_of_the_one_that_failed(lavant: Lavant, tmp_path: Path) -> None:
    lavant("run", "small", "--seeds", "1..10", "--trace", str(tmp_path / "trace"))
    assert (tmp_path / "trace").read_text(encoding="utf-8").endswith("VIOLATED all is well: seed 3 is bad\n")


def test_without_seeds_a_hundred_are_run(lavant: Lavant) -> None:
    assert "100 seeds hold (1 to 100)" in lavant("run", "small", "--set", "bad_seed=0").out


def test_replay_shows_the_last_lines_before_the_violation(lavant: Lavant) -> None:
    result = lavant("replay", "small", "--seed", "3", "--lines", "3")
    assert result.code == 1
    assert result.out.splitlines()[:4] == [
        "0.098000 event 98",
        "0.099000 event 99",
        "0.099500 VIOLATED all is well: seed 3 is bad",
        "seed 3 violates 'all is well' at 0.099500 s of virtual time, after 103 events:",
    ]
    assert "101 lines of trace, digest " in result.out


def test_replay_shows_everything_if_asked(lavant: Lavant) -> None:
    result = lavant("replay", "small", "--seed", "3", "--verbose")
    assert result.out.splitlines()[0] == "0.000000 event 0"
    assert result.out.count("event 99") == 1


def test_replay_of_a_seed_that_holds(lavant: Lavant) -> None:
    result = lavant("replay", "small", "--seed", "4")
    assert result.code == 0
    assert "seed 4 holds: 0.5 min of virtual time, 102 events\n" in result.out


def test_replay_shows_where_an_error_came_from(lavant: Lavant) -> None:
    result = lavant("replay", "small", "--seed", "3", "--set", "is_error=true")
    assert result.code == 1
    assert "seed 3 violates 'no machine fails'" in result.out
    assert "Traceback" in result.out
    assert "ValueError: invalid literal for int() with base 10: 'x'" in result.out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["run", "large"], "there is no scenario 'large'; there are: small"),
        (["replay", "large", "--seed", "1"], "there is no scenario 'large'; there are: small"),
        (["run", "small", "--set", "size=1"], "scenario small has no option 'size'; it has bad_seed, "),
        (["run", "small", "--set", "bad_seed=x"], "scenario small cannot have bad_seed=x: Expected `int`"),
        (["run", "small", "--seeds", "5"], "--seeds '5' is not A..B with A ≤ B, such as 1..100"),
        (["run", "small", "--seeds", "5..4"], "--seeds '5..4' is not A..B with A ≤ B, such as 1..100"),
        (["run", "small", "--seeds", "1..x"], "--seeds '1..x' is not A..B with A ≤ B, such as 1..100"),
        (["run", "small", "--seed", "1", "--seeds", "1..2"], "give --seed or --seeds, not both; got 1 and '1..2'"),
        (["run", "small", "--minutes", "0"], "a run must last more than 0 and at most 525600 virtual minutes, got 0"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(lavant: Lavant, words: list[str], problem: str) -> None:
    result = lavant(*words)
    assert result.code == 2
    assert result.err.startswith(f"lavant: {problem}")
    assert result.out == ""


def test_a_trace_that_cannot_be_written_is_a_mistake(lavant: Lavant, tmp_path: Path) -> None:
    result = lavant("run", "small", "--trace", str(tmp_path / "none" / "trace"))
    assert result.code == 2
    assert "No such file or directory" in result.err


def test_a_search_that_is_stopped_says_how_far_it_got(lavant: Lavant, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(world: World, options: Options) -> None:
        if world.seed == 3:
            raise KeyboardInterrupt

    scenario = Scenario(name="small", summary="…", build=stop, options=Options)
    monkeypatch.setattr(registry, "scenarios", lambda: {"small": scenario})
    result = lavant("run", "small")
    assert result.code == 130
    assert "stopped after 2 of 100 seeds; none of them violates anything" in result.err
