"""Inscriptions exported to CPN Tools pass the type checker of a Standard ML, with CPN ML's functions declared."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.integration.components import do_without

from lavant.models.petri.cpn_tools import cpn_file
from lavant.models.petri.language.colours import (
    Bool,
    ColourSet,
    Enumeration,
    Int,
    ListOf,
    Product,
    Real,
    RecordOf,
    String,
    Token,
    Unit,
)
from lavant.models.petri.net import Net
from lavant.models.petri.nets.reliable_queue import ReliableQueue, reliable_queue

PRELUDE = """
infix 3 +++; infix 4 ++; infix 4 @+; infix 5 ^^; infix 6 `;
fun a ^^ b = a @ b; fun a ++ b = a @ b; fun n ` x = List.tabulate (n, fn _ => x);
datatype 'a stamped = Stamped of 'a * real; fun a @+ (d: real) = map (fn x => Stamped (x, d)) a;
fun (a: 'a stamped list) +++ (b: 'a stamped list) = a @ b;
val empty = []; fun mem xs x = List.exists (fn y => x = y) xs;
fun exponential (r: real) = 1.0 / r; fun bernoulli (p: real) = 1; fun time () = 0.0;
fun uniform (a: real, b: real) = a + b; fun erlang (n: int, r: real) = r; fun discrete (a: int, b: int) = a;
fun gamma (l: real, k: real) = k / l; fun normal (n: real, v: real) = n;
"""
TYPES = {Unit: "unit", Bool: "bool", Int: "int", Real: "real", String: "string"}


def types(colour: ColourSet) -> Iterator[str]:
    """The type of a colour set, and the functions that CPN ML gives to records."""
    if isinstance(colour, Enumeration):
        yield f"datatype {colour.name} = {' | '.join(colour.names)};"
    elif isinstance(colour, ListOf):
        yield f"type {colour.name} = {colour.of.name} list;"
    elif isinstance(colour, Product):
        yield f"type {colour.name} = {' * '.join(part.name for part in colour.of)};"
    elif isinstance(colour, RecordOf):
        names = [name for name, _ in colour.fields]
        yield f"type {colour.name} = {{{', '.join(f'{name}: {part.name}' for name, part in colour.fields)}}};"
        yield f"structure {colour.name} = struct"
        for field in names:
            values = ", ".join(f"{name} = {'v' if name == field else f'#{name} r'}" for name in names)
            yield f"fun set_{field} (r: {colour.name}) v = {{{values}}} : {colour.name};"
        yield "end;"
    else:
        yield f"type {colour.name} = {TYPES[type(colour)]};"


def program(net: Net, least: int = 40) -> str:
    """Every declaration and inscription of the file, each as a function of all variables."""
    root = ElementTree.fromstring(cpn_file(net).encode("iso-8859-1"))
    lines = [PRELUDE, *(line for colour in net.scope.colours.values() for line in types(colour))]
    lines += [each.findtext("layout", "") for each in root.iter("ml")]
    variables = ", ".join(f"{name}: {colour.name}" for name, colour in net.scope.variables.items())
    colours = {place.attrib["id"]: place.findtext("type/text") for place in root.iter("place")}
    checked: list[tuple[str, str]] = []
    for arc in root.iter("arc"):
        end, text = arc.find("placeend"), arc.findtext("annot/text")
        if end is not None and text:
            colour = colours[end.attrib["idref"]]
            if "`" not in text:
                text, plus, delay = text.partition("@+")
                text = f"[{text}]{plus}{delay}"  # CPN ML takes one token for a multiset
            checked.append((text, f"{colour} stamped list" if "@+" in text else f"{colour} list"))
    for transition in root.iter("trans"):
        guard, code = transition.findtext("cond/text"), transition.findtext("code/text")
        checked += [(guard[1:-1], "bool")] if guard else []
        lines += [f"fun code ({variables}) = {code.partition('action')[2]}"] if code else []
        later = transition.findtext("time/text")
        checked += [(later[2:], "real")] if later else []
    lines += [f"fun check ({variables}) = ({text}) : {colour};" for text, colour in checked]
    assert len(checked) > least
    return "\n".join(lines)


def everything() -> Net:
    """Each kind of expression, and an integer wherever a real number may be wanted."""
    net = Net("everything")
    integer, real, text = net.colour(Int("INT")), net.colour(Real("REAL")), net.colour(String("STRING"))
    boolean, light = net.colour(Bool("BOOL")), net.colour(Enumeration("Light", ("red", "green")))
    pair = net.colour(Product("Pair", (integer, real)))
    point = net.colour(RecordOf("Point", (("x", integer), ("t", real))))
    ints, points = net.colour(ListOf("Ints", integer)), net.colour(ListOf("Points", point))
    later = net.colour(Int("Later", timed=True))
    net.variables(n=integer, m=integer, r=real, s=text, ok=boolean, light=light, p=pair, q=point)
    net.variables(items=ints, points=points, later=later)
    net.values(two=2, rate=1e-9, word='a "b"', yes=True)
    net.function("half", "x / 2", x=real)
    net.function("late", "[each for each in given if each.t > n and each.x != n]", given=points, n=integer)
    page = net.page("Top")
    kinds: dict[str, ColourSet] = {"I": integer, "R": real, "S": text, "B": boolean, "L": light, "P": pair}
    for name, colour in (kinds | {"Q": point, "Is": ints, "Qs": points, "T": later}).items():
        page.place(name, colour)
    page.place("Start", later, [1, Token(2, 3.0)])
    page.transition(
        "Compute",
        takes={"I": "n", "S": "s", "P": "(m, r)", "Q": "Point(x=m, t=r)", "Is": "[1, *items]", "Qs": "points"},
        reads={"L": "light", "B": "True"},
        guard="n < r and s <= word and light == red and (n in items or not any(each.x == n for each in points))",
        action="q = Point(x=n, t=n); later = discrete(1, two); ok = bernoulli(1)",
        puts={
            "I": "n // 2 + m % 3 ++ 2`(-n)",
            "R": "n if ok else r ++ half(len(items)) ++ 1 + real(n)",
            "S": "s + word",
            "P": "(n, m)",
            "Q": "Point(x=n, t=n) ++ Point(x=first(items), t=rate)",
            "Is": "rest(items) + [n, *items] if ok else []",
            "Qs": "late(points, n)",
            "T": "n @+ uniform(n, 5) ++ later @+ erlang(two, 3) ++ n @+ gamma(1, two) ++ each(items)",
        },
        delay="n",
    )
    page.transition("Draw", takes={"T": "2`n"}, puts={"T": "(n @+ exponential(n)) if n == 1 else empty"}, delay="0")
    page.transition("Spread", takes={"Start": "n", "Is": "items"}, puts={"I": "each(items) ++ n", "Start": "n @+ 1"})
    page.transition(
        "Change", takes={"Q": "q"}, puts={"Q": "replace(q, t=q.x)", "I": "q.x", "T": "1 @+ lognormal(0, 2)"}
    )
    return net


@pytest.mark.external
@pytest.mark.parametrize("name", ["out-of-order", "in-order", "everything"])
def test_exported_inscriptions_pass_the_type_checker_of_standard_ml(name: str, tmp_path: Path) -> None:
    if shutil.which("poly") is None:
        do_without("there is no Poly/ML on the PATH; run tools/polyml")
    if name == "everything":
        text = program(everything(), least=20)
    else:
        text = program(reliable_queue(ReliableQueue(order=name, messages=5, timeouts=3)))
    for file, more, code in (("right", "", 0), ("wrong", '\nval wrong = 1 ^ "a";', 1)):
        (tmp_path / f"{file}.sml").write_text(text + more)
        found = subprocess.run(
            ["poly", "--script", str(tmp_path / f"{file}.sml")], capture_output=True, text=True, check=False
        )
        assert found.returncode == code, found.stdout + found.stderr
