"""Options are set by name, mistakes in them are explained, and an outcome says how to repeat it."""

from __future__ import annotations

import msgspec
import pytest

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.faults.swarm import FaultOptions
from lavant.simulation.kernel.run import run
from lavant.simulation.kernel.scenario import Scenario, options_of, parse_options, settings_of
from lavant.simulation.kernel.trace import Trace
from lavant.simulation.kernel.world import World


class Options(FaultOptions, frozen=True, kw_only=True):
    clients: int = 3
    label: str = "plain"


def build(world: World, options: Options) -> None:
    world.at(1_000, world.count, "clients", options.clients)
    if options.label == "wrong":
        world.at(2_500_000, world.violated, "right", f"it is {options.label}")


SCENARIO = Scenario(name="small", summary="…", build=build, options=Options, minutes=0.5)


def test_options_are_read_by_their_types() -> None:
    options = parse_options(SCENARIO, ["clients=7", "kills_per_min=0.5", "swarm=false", "label=a=b"])
    assert options == Options(clients=7, kills_per_min=0.5, swarm=False, label="a=b")


def test_what_was_set_can_be_written_and_read_again() -> None:
    settings = ["clients=7", "kills_per_min=0.1", "label=x y", "swarm=false"]
    assert settings_of(SCENARIO, parse_options(SCENARIO, settings)) == settings
    assert settings_of(SCENARIO, Options()) == []


def test_options_are_listed_with_type_and_default() -> None:
    assert [str(option) for option in options_of(SCENARIO)][:2] == [
        "clients=3 (int)",
        "clock_drifts_per_min=1.0 (float)",
    ]
    assert str(options_of(SCENARIO)[-1]) == "swarm=true (bool)"


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("client=1", "scenario small has no option 'client'; it has clients, clock_drifts_per_min, "),
        ("clients", "setting 'clients' is not NAME=VALUE, such as clients=1"),
        ("clients=x", "scenario small cannot have clients=x: Expected `int`"),
        ("kills_per_min=-1", "cannot have kills_per_min=-1: kills_per_min must lie in 0 to 60000, got -1"),
    ],
)
def test_a_mistake_is_explained(setting: str, problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        parse_options(SCENARIO, ["label=fine", setting])


def test_a_run_that_holds_counts_and_has_a_digest_if_traced() -> None:
    outcome = run(SCENARIO, 4, options=Options(clients=5), trace=Trace())
    assert (outcome.violation, outcome.figures, outcome.minutes) == (None, {"clients": 5}, 0.5)
    assert outcome.digest is not None
    assert outcome.report() == "seed 4 holds: 0.5 min of virtual time, 2 events"
    assert run(SCENARIO, 4).digest is None


def test_a_run_that_fails_says_what_when_and_how_to_repeat_it() -> None:
    outcome = run(SCENARIO, 4, minutes=2, options=Options(label="wrong"))
    assert outcome.report() == (
        "seed 4 violates 'right' at 2.500000 s of virtual time, after 2 events:\n  it is wrong\n"
        "repeat it with\n  lavant sim replay small --seed 4 --minutes 2 --set label=wrong"
    )


def test_the_command_has_the_exact_minutes_and_quotes_what_a_shell_would_split() -> None:
    outcome = run(SCENARIO, 4, minutes=0.1234567891, options=Options(label="a b"))
    assert outcome.command == "lavant sim replay small --seed 4 --minutes 0.1234567891 --set 'label=a b'"


@pytest.mark.parametrize("minutes", [0.0, -1.0, 1e9, float("nan")])
def test_minutes_that_make_no_sense_are_refused(minutes: float) -> None:
    with pytest.raises(InvalidValue, match="a run must last more than 0 and at most 525600 virtual minutes"):
        run(SCENARIO, 1, minutes=minutes)


def test_a_scenario_without_options_can_be_run() -> None:
    class Nothing(msgspec.Struct, frozen=True):
        pass

    bare = Scenario(name="bare", summary="…", build=lambda world, options: None, options=Nothing, minutes=0.1)
    assert run(bare, 1).violation is None
    with pytest.raises(InvalidValue, match="has no option 'a'"):
        parse_options(bare, ["a=1"])
