"""Inscriptions exported to CPN Tools pass the type checker of a Standard ML, with CPN ML's functions declared."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

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
    Unit,
)
from lavant.models.petri.net import Net
from lavant.models.petri.nets.reliable_queue import ReliableQueue, reliable_queue

PRELUDE = """
infix 3 @+; infix 4 ++; infix 5 ^^; infix 6 `;
fun a ^^ b = a @ b; fun a ++ b = a @ b; fun n ` x = List.tabulate (n, fn _ => x); fun a @+ (d: real) = a;
val empty = []; fun mem xs x = List.exists (fn y => x = y) xs;
fun exponential (r: real) = 1.0 / r; fun bernoulli (p: real) = 1; fun time () = 0.0;
"""
TYPES = {Unit: "unit", Bool: "bool", Int: "int", Real: "real"}


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


def program(net: Net) -> str:
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
            is_multiset = "`" in text
            checked.append((text, f"{colour} list" if is_multiset else f"{colour}"))
    for transition in root.iter("trans"):
        guard, code = transition.findtext("cond/text"), transition.findtext("code/text")
        checked += [(guard[1:-1], "bool")] if guard else []
        lines += [f"fun code ({variables}) = {code.partition('action')[2]}"] if code else []
    lines += [f"fun check ({variables}) = ({text}) : {colour};" for text, colour in checked]
    assert len(checked) > 40
    return "\n".join(lines)


@pytest.mark.external
@pytest.mark.parametrize("order", ["out-of-order", "in-order"])
def test_exported_inscriptions_pass_the_type_checker_of_standard_ml(order: str, tmp_path: Path) -> None:
    if shutil.which("poly") is None:
        reason = "there is no Poly/ML on the PATH; install polyml"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    net = reliable_queue(ReliableQueue(order=order, messages=5, timeouts=3))
    for name, text, code in (("right", "", 0), ("wrong", '\nval wrong = 1 ^ "a";', 1)):
        (tmp_path / f"{name}.sml").write_text(program(net) + text)
        found = subprocess.run(
            ["poly", "--script", str(tmp_path / f"{name}.sml")], capture_output=True, text=True, check=False
        )
        assert found.returncode == code, found.stdout + found.stderr
