"""`lavant petri`: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.core.errors import LavantError

OWN = """
from lavant.models.petri.language.colours import Int, Unit
from lavant.models.petri.net import Net

def net():
    made = Net("own")
    integer, unit = made.colour(Int("INT")), made.colour(Unit("UNIT"))
    made.variables(n=integer)
    page = made.page("Top")
    page.place("A", unit, [()])
    page.place("B", unit)
    page.place("C", integer, [1])
    page.transition("Grow", takes={"A": "()"}, puts={"A": "()", "B": "()"})
    page.transition("Never", takes={"C": "n"}, guard="n > 5")
    return made
"""

TWICE = """
from lavant.models.petri.language.colours import Int
from lavant.models.petri.net import IN, Net

def net():
    made = Net("twice")
    integer = made.colour(Int("INT"))
    made.variables(n=integer)
    top, low = made.page("Top"), made.page("Low")
    low.place("P", integer, port=IN)
    low.place("Done", integer)
    low.transition("T", takes={"P": "n"}, puts={"Done": "n + 1"})
    low.transition("Last", takes={"Done": "n"}, guard="n > 9")
    for name, value in (("A", 3), ("B", 7)):
        top.place(name, integer, [value])
        top.substitute(f"S{name}", "Low", {"P": name})
    return made
"""


def lavant(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(commands, ["petri", *map(str, arguments)])
    if isinstance(result.exception, LavantError):
        return result.exception.exit_code, str(result.exception)
    return result.exit_code, result.output


def test_show_draws_every_page_with_its_marking(tmp_path: Path) -> None:
    code, text = lavant("show", "reliable-queue", "--out", tmp_path / "pages", "--steps", 300)
    assert code == 0
    assert len(text.split()) == 6
    assert 'class="count"' in (tmp_path / "pages" / "Broker.svg").read_text()


def test_show_draws_every_instance_of_a_page_with_its_own_marking(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(TWICE)
    code, text = lavant("show", tmp_path / "twice.py", "--out", tmp_path / "pages", "--steps", 2)
    assert code == 0
    assert [Path(each).name for each in text.split()] == ["Top.svg", "Low.svg", "Low-2.svg"]
    first, second = ((tmp_path / "pages" / name).read_text() for name in ("Low.svg", "Low-2.svg"))
    assert "1`8" in second
    assert "1`8" not in first
    assert len(lavant("show", tmp_path / "twice.py", "--out", tmp_path / "pages")[1].split()) == 2


def test_show_lists_parameters_pages_and_marking() -> None:
    _, text = lavant("show", "reliable-queue", "--set", "sender_threads=3")
    assert "sender_threads = 3" in text
    assert "page Send_Proc: 13 places, transitions: Produce, Locate_Queue" in text
    assert "Send_Proc'Thread: 3`thread" in text


def test_run_prints_every_monitor_with_its_interval() -> None:
    code, text = lavant("run", "reliable-queue", "--seconds", 60, "--warm-up", 5, "--replications", 3)
    assert code == 0
    assert "Msg_Delivery_Latency" in text
    assert text.count("±") == 11


def test_a_monitor_that_observes_nothing_has_no_figures(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    own = OWN.replace('Unit("UNIT")', 'Unit("UNIT", timed=True)').replace('"A": "()", "B"', '"A": "() @+ 1", "B"')
    path.write_text(
        f"{own}\n\nfrom lavant.models.petri.monitors import DataCollection, Occurrences\n\n\ndef monitors():\n"
        "    return [DataCollection('seen', 'Never', 'n'), Occurrences('grown', 'Grow')]\n"
    )
    code, text = lavant("run", path, "--seconds", 100)
    assert code == 0
    assert "nan" not in text
    assert "nothing was observed: seen" in text
    found = json.loads(lavant("run", path, "--seconds", 100, "--json")[1])["monitors"]
    assert found["seen"] == {"mean": None, "half_width": None, "p95": None}
    assert found["grown"]["mean"] == pytest.approx(1.0)


def test_check_tells_of_a_dead_transition_and_of_a_place_without_bound_within_its_bound_of_states(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    code, text = lavant("check", tmp_path / "own.py", "--states", 100)
    assert code == 1
    assert "not all: the search ended at its bound of 100 states" in text
    assert "dead transition within 100 states: Top'Never occurs in no state" in text
    assert "unbounded place: Top'B; the end of this path can be repeated for ever" in text


def test_check_of_a_broken_net_prints_the_trace_and_ends_with_1() -> None:
    code, text = lavant("check", "reliable-queue", "--set", "broken=loses", "--set", "timeouts=0")
    assert code == 1
    assert "VIOLATED: no message is lost" in text
    assert "7. Broker'Get_Msg" in text


def test_check_as_json_has_all_that_the_text_has() -> None:
    small = ("--set", "timeouts=0", "--set", "messages=1")
    code, text = lavant("check", "reliable-queue", *small, "--json")
    found = json.loads(text)
    assert (code, found["is_complete"], found["perhaps_unbounded"]) == (0, True, [])
    _, text = lavant("check", "reliable-queue", *small)
    assert f"strongly connected components: {found['components']}" in text
    assert f"home markings: {found['home_markings']}" in text
    assert found["bounds"]["Cloud_Queue'Queue"]["longest_list"] == 1


def test_check_of_the_net_itself_holds() -> None:
    code, text = lavant("check", "reliable-queue", "--set", "timeouts=1")
    assert code == 0
    assert "all of them" in text
    assert "holds: no message is lost" in text


def test_export_writes_a_file_of_cpn_tools(tmp_path: Path) -> None:
    code, _ = lavant("export", "reliable-queue", tmp_path / "queue.cpn")
    assert code == 0
    assert "<workspaceElements>" in (tmp_path / "queue.cpn").read_text(encoding="iso-8859-1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nothing"), "no net 'nothing'; there are reliable-queue, or give a Python file"),
        (("show", "nothing.py"), "no file nothing.py"),
        (("show", "reliable-queue", "--set", "speed=1"), "--set speed: reliable-queue has no such parameter; it has"),
        (("show", "reliable-queue", "--set", "order"), "--set order is not of the form NAME=VALUE"),
        (("show", "reliable-queue", "--set", "nodes=many"), "--set nodes=many: Expected `int`, got `str`"),
        (("run", "reliable-queue", "--set", "reliability=2"), "reliability must be above 0 and at most 1, got 2.0"),
        (("run", "reliable-queue", "--set", "timeout_s=inf"), "timeout_s must be positive, and finite, got inf"),
        (("run", "reliable-queue", "--seconds", "10"), "the warm-up of 50 s must end before the run does, at 10 s"),
        (("export", "reliable-queue", "queue.xml"), "queue.xml does not end in .cpn"),
        (("export", "reliable-queue", "/nowhere/queue.cpn"), "cannot write /nowhere/queue.cpn: No such file"),
        (("show", "reliable-queue", "--out", "/dev/null/here"), "cannot create /dev/null/here: Not a directory"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    code, text = lavant(*arguments)
    assert code != 0
    assert message in text
    assert "\n" not in text.strip()


def test_a_mistake_in_a_file_names_file_page_and_arc(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(OWN.replace('"n > 5"', '"n > k"'))
    code, text = lavant("check", tmp_path / "wrong.py")
    assert code != 0
    assert text.startswith(f"{tmp_path / 'wrong.py'}: page 'Top', transition 'Never': guard: `k` is no variable")


@pytest.mark.parametrize(
    ("monitors", "message"),
    [
        ("1 / 0", "wrong.py cannot be loaded: ZeroDivisionError: division by zero"),
        ("[Size('s', 'Nowhere')]", "wrong.py: monitor 's': place 'Nowhere' does not exist; there are Top'A"),
        ("[Size(5, 'A')]", "wrong.py: Size(name=5, place='A', of=None) is no monitor with a name"),
        ("[5]", "wrong.py: 5 is no monitor with a name; give one such as Size("),
        ("[DataCollection('d', 'Grow', 5)]", "wrong.py: monitor 'd': 5 is no inscription"),
    ],
)
def test_a_mistake_in_the_monitors_of_a_file_is_one_line(monitors: str, message: str, tmp_path: Path) -> None:
    own = OWN + "\n\nfrom lavant.models.petri.monitors import DataCollection, Size\n"
    (tmp_path / "wrong.py").write_text(f"{own}\n\ndef monitors():\n    return {monitors}\n")
    code, text = lavant("check", tmp_path / "wrong.py")
    assert code != 0
    assert message in text
    assert "\n" not in text.strip()


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("def invariants():\n    return [5]", "5 is no invariant; give Invariant("),
        ("def invariants():\n    return [Invariant('i', 'A', bool)]", "is no invariant; give Invariant("),
        ("def invariants():\n    return [Invariant('i', ('Z',), bool)]", "invariant 'i': place 'Z' does not exist"),
        ("def histories():\n    return [5]", "5 is no path property; give PathProperty("),
        ("def histories():\n    return [PathProperty('p', 0, {'Z': max}, bool)]", "path property 'p': transition 'Z'"),
        (
            "def histories():\n    return [PathProperty('p', 0, {'Grow': max}, bool)]",
            "'p' cannot be followed: TypeError",
        ),
    ],
)
def test_a_mistake_in_the_properties_of_a_file_is_one_line(properties: str, message: str, tmp_path: Path) -> None:
    own = f"{OWN}\n\nfrom lavant.models.petri.state_space import Invariant, PathProperty\n"
    (tmp_path / "wrong.py").write_text(f"{own}\n\n{properties}\n")
    code, text = lavant("check", tmp_path / "wrong.py")
    assert code != 0
    assert message in text
    assert "\n" not in text.strip()


def test_a_file_has_the_parameters_of_its_function(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        OWN.replace("def net():", "def net(first: int = 0, bound: float = 2.5):").replace("[1]", "[first]")
        + "\n\nfrom lavant.models.petri.state_space import Invariant\n\n\n"
        + "def invariants(first):\n    return [Invariant('not less', ('C',), lambda held: held[0] >= first)]\n"
    )
    code, text = lavant("show", path, "--set", "first=3")
    assert code == 0
    assert "  first = 3\n  bound = 2.5\n" in text
    assert "Top'C: 1`3" in text
    assert "holds within 5 states: not less" in lavant("check", path, "--set", "first=3", "--states", "5")[1]
    for setting, message in (("first=x", "--set first=x: give a whole number"), ("z=1", "it has first, bound")):
        code, text = lavant("show", path, "--set", setting)
        assert code != 0
        assert message in text


def test_help_does_not_load_numpy() -> None:
    script = "import sys, lavant.cli.planning.petri; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
