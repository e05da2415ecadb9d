"""Mistakes in a net are errors when it is built, and say where they are."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from lavant.core.errors import InvalidValue
from lavant.models.petri.language.colours import (
    Bool,
    Enumeration,
    Int,
    ListOf,
    Product,
    Real,
    RecordOf,
    String,
    Token,
)
from lavant.models.petri.net import IN, OUT, Net, Page
from lavant.models.petri.state_space import explore


def a_net() -> tuple[Net, Page]:
    net = Net("a net")
    integer, real = net.colour(Int("INT")), net.colour(Real("REAL"))
    light = net.colour(Enumeration("Light", ("red", "green")))
    pair = net.colour(Product("Pair", (integer, light)))
    ints = net.colour(ListOf("Ints", integer))
    point = net.colour(RecordOf("Point", (("x", integer), ("y", integer))))
    later = net.colour(Int("Later", timed=True))
    reals, few = net.colour(ListOf("Reals", real)), net.colour(Int("Few", (1, 3)))
    net.variables(n=integer, m=integer, r=real, light=light, ints=ints, point=point, other=ints)
    net.variables(ok=net.colour(Bool("BOOL")))
    net.values(zero=0.0)
    net.function("twice", "2 * k", k=integer)
    page = net.page("Top")
    page.place("A", integer, [1, 2])
    page.place("B", pair)
    page.place("C", ints, [[]])
    page.place("D", point)
    page.place("E", later)
    page.place("F", real)
    page.place("G", reals)
    page.place("H", few)
    return net, page


TRANSITIONS: list[tuple[dict[str, object], str]] = [
    ({"takes": {"A": "n"}, "puts": {"A": "m"}}, "arc to 'A': variable `m` is not bound by an arc"),
    ({"takes": {"A": "n"}, "guard": "m > 1"}, "guard: variable `m` is not bound"),
    ({"takes": {"A": "n"}, "puts": {"A": "k"}}, "arc to 'A': `k` is no variable, value or enumerated colour"),
    ({"takes": {"A": "light"}}, "arc from 'A': variable `light` is of colour set Light, not INT"),
    ({"takes": {"A": "n"}, "puts": {"B": "(n, n)"}}, "arc to 'B': `n` is of colour set INT, not Light"),
    ({"takes": {"A": "n"}, "puts": {"B": "n"}}, "arc to 'B': `n` is of colour set INT, not Pair"),
    ({"takes": {"A": "n"}, "puts": {"C": "[red]"}}, "arc to 'C': `red` is of colour set Light, not INT"),
    ({"takes": {"A": "n"}, "puts": {"D": "Point(x=n)"}}, "the fields of Point are x, y"),
    ({"takes": {"D": "point"}, "puts": {"A": "point.z"}}, "Point has no field `z`"),
    ({"takes": {"A": "n"}, "puts": {"A": "n @+ 1"}}, "colour set INT is not timed"),
    ({"takes": {"A": "n @+ 1"}}, "arc from 'A': `n @+ 1`: only an arc that puts tokens has a delay"),
    ({"takes": {"A": "0`n"}}, "an arc takes a fixed number of tokens"),
    ({"takes": {"A": "n"}, "guard": "n + 1"}, "guard: `n + 1` is of colour set INT, not BOOL"),
    ({"takes": {"A": "n"}, "guard": "n < "}, "guard: `n < ` cannot be read"),
    ({"takes": {"A": "n"}, "guard": "bernoulli(0.5)"}, "a guard depends on tokens only"),
    ({"takes": {"A": "n"}, "guard": "time() > 3"}, "a guard depends on tokens only"),
    ({"takes": {"A": "n"}, "puts": {"A": "discrete(1, 6)"}}, "draw it in the action"),
    ({"takes": {"A": "n"}, "action": "n = 3"}, "action sets `n`, which is bound already"),
    ({"takes": {"A": "n"}, "action": "k = 3"}, "action: `k = 3` sets `k`, which is no variable; declare it"),
    ({"takes": {"A": "n"}, "action": "m"}, "action: `m` is not of the form `variable = expression`"),
    ({"takes": {"A": "n"}, "action": "m = 1; m = 2"}, "action sets `m`, which is bound already"),
    ({"takes": {"A": "n"}, "puts": {"A": "twice(n, n)"}}, "twice takes 1 arguments"),
    ({"takes": {"A": "n"}, "puts": {"A": "thrice(n)"}}, "`thrice` is no function and no record"),
    ({"takes": {"A": "n"}, "puts": {"A": "lambda: 3"}}, "is not part of the language"),
    ({}, "it has no arc, so it could occur for ever"),
    ({"takes": {"A": "n"}, "priority": "high"}, "priority 'high' is no whole number"),
    ({"takes": {"Z": "n"}}, "arc from 'Z': page 'Top' has no place 'Z'; it has A, B, C, D, E, F, G, H"),
    ({"takes": {"C": "ints"}, "puts": {"A": "first(3)"}}, "`3` is no list"),
    ({"takes": {"C": "ints"}, "puts": {"C": "[x for y in ints]"}}, "`x` is no variable"),
    ({"takes": {"F": "n"}}, "arc from 'F': variable `n` is of colour set INT, not REAL"),
    ({"takes": {"C": "ints"}, "puts": {"G": "ints"}}, "arc to 'G': `ints` is of colour set Ints, not Reals"),
    ({"takes": {"F": "time()"}}, "arc from 'F': `time()` depends on chance or on the clock"),
    ({"takes": {"A": "discrete(1, 2)"}}, "arc from 'A': `discrete(1, 2)` depends on chance or on the clock"),
    ({"takes": {"B": "(n, light)"}, "guard": "light < red"}, "guard: `light < red`: Light has no order"),
    ({"takes": {"A": 1}}, "arc from 'A': 1 is no inscription; write it as a text"),
    ({"takes": {"A": "n"}, "guard": True}, "guard: True is no inscription"),
    ({"takes": ["A"]}, "['A'] does not map places to inscriptions"),
    ({"takes": {"A": "n"}, "puts": {"A": "n"}, "delay": "1.0"}, "delay: `1.0` delays nothing"),
    ({"takes": {"A": "n"}, "puts": {"E": "n @+ exponential(0)"}}, "arc to 'E': exponential(0) cannot be drawn"),
    ({"takes": {"A": "n"}, "puts": {"E": "n @+ erlang(0, 1.0)"}}, "arc to 'E': erlang(0, 1) cannot be drawn"),
    ({"takes": {"A": "n"}, "puts": {"E": "n @+ uniform(zero, -1)"}}, "arc to 'E': uniform(0, -1) cannot be drawn"),
    ({"takes": {"A": "n"}, "puts": {"E": "n @+ gamma(0, 1)"}}, "arc to 'E': gamma(0, 1) cannot be drawn"),
    ({"takes": {"A": "n"}, "puts": {"E": "n @+ lognormal(0, -1)"}}, "arc to 'E': lognormal(0, -1) cannot be drawn"),
    ({"takes": {"A": "n"}, "action": "m = discrete(3, 1)"}, "action: discrete(3, 1) cannot be drawn"),
    ({"takes": {"A": "n"}, "action": "ok = bernoulli(2)"}, "action: bernoulli(2) cannot be drawn"),
    ({"takes": {"A": "n"}, "puts": {"H": "4"}}, "arc to 'H': 4 is no value of colour set Few = int with 1..3"),
    ({"takes": {"D": "Point(x=n, x=m)"}}, "arc from 'D': `Point(x=n, x=m)`: field `x` is given twice"),
    ({"takes": {"D": "point"}, "puts": {"D": "replace(point, x=1, x=2)"}}, "field `x` is given twice"),
    ({"takes": {"D": "Point(n, m)"}}, "arc from 'D': `Point(n, m)`: the fields of Point are x, y"),
    ({"takes": {"A": "-1`n"}}, "arc from 'A': `-1`n`: a number of tokens is 0 or more"),
    ({"takes": {"A": "n"}, "puts": {"A": "-1`n"}}, "arc to 'A': `-1`n`: a number of tokens is 0 or more"),
    ({"takes": {"A": "n"}, "puts": {"A": "n - 1`n"}}, "put a computed number in parentheses: (n - 1)`x"),
    ({"takes": {"A": "n"}, "puts": {"E": "n @+ -1"}}, "arc to 'E': the delay `-1` is below 0"),
    ({"takes": {"A": "n"}, "puts": {"E": "n"}, "delay": "-0.5"}, "delay: the delay `-0.5` is below 0"),
    ({"takes": {"A": "n"}, "puts": {"F": "n / zero"}}, "arc to 'F': `n / zero` divides by zero"),
    ({"takes": {"A": "n"}, "guard": "n % 0 == 1"}, "guard: `n % 0` divides by zero"),
    ({"takes": {"A": "n"}, "puts": {"F": "1e999"}}, "arc to 'F': `1e309` is no value of any colour set"),
    ({"takes": {"C": "ints"}, "puts": {"C": "[red for red in ints]"}}, "red is a value of an enumeration"),
    ({"takes": {"A": "n"}, "guard": "not " * 2_000 + "ok"}, "guard: `…` cannot be read: it is nested too deeply"),
    ({"takes": {"A": "n"}, "guard": "n <\n * 2"}, "guard: `n <  * 2` cannot be read"),
    ({"takes": {"A": "n"}, "priority": True}, "priority True is no whole number"),
    ({"takes": {"A": "n"}, "at": "here"}, "'here' is no position; give two numbers"),
]


@pytest.mark.parametrize(("given", "message"), TRANSITIONS)
def test_a_mistake_in_a_transition_names_page_transition_and_arc(given: dict[str, object], message: str) -> None:
    _, page = a_net()
    with pytest.raises(InvalidValue) as error:
        page.transition("T", **given)  # type: ignore[arg-type]
    assert message in str(error.value)
    assert "page 'Top', transition 'T'" in str(error.value)
    assert "T" not in page.transitions


DECLARATIONS: list[tuple[Callable[[Net, Page], object], str]] = [
    (
        lambda net, page: page.place("P", net.scope.colours["INT"], ["red"]),
        "place 'P': 'red' is no value of colour set",
    ),
    (lambda net, page: page.place("A", net.scope.colours["INT"]), "place 'A': the name is taken"),
    (lambda net, page: page.place("P", Int("INT")), "colour set INT is not declared in this net"),
    (lambda net, page: page.place("a b", net.scope.colours["INT"]), "must consist of letters"),
    (lambda net, page: net.colour(Int("INT")), "'INT' is declared already"),
    (lambda net, page: net.colour(Enumeration("X", ("red",))), "'red' is a value of an enumeration already"),
    (lambda net, page: net.colour(ListOf("X", Int("Y"))), "Y is not declared; declare it first"),
    (lambda net, page: net.variables(empty=net.scope.colours["INT"]), "'empty' is reserved"),
    (lambda net, page: net.function("f", "exponential(1.0)"), "a function depends on its arguments only"),
    (lambda net, page: page.place("P", net.scope.colours["INT"], port="sideways"), "port 'sideways' is none of"),
    (lambda net, page: page.place("P", "INT"), "place 'P': 'INT' is no colour set"),  # type: ignore[arg-type]
    (lambda net, page: page.place("P", net.scope.colours["INT"], 5), "5 is no list of tokens"),  # type: ignore[arg-type]
    (lambda net, page: page.place("P", net.colour(String("S")), "abc"), "'abc' is no list of tokens"),
    (lambda net, page: page.place("P", net.scope.colours["INT"], [Token(1, 2.0)]), "INT is not timed"),
    (lambda net, page: page.place("P", net.scope.colours["Later"], [Token(1, -2.0)]), "no time from 0 on"),
    (lambda net, page: net.colour(Enumeration("X", ())), "an enumeration has one value or more"),
    (lambda net, page: net.colour(Product("X", (net.scope.colours["INT"],))), "a product has two parts or more"),
    (lambda net, page: net.colour(ListOf("X", "INT")), "'INT' is no colour set"),  # type: ignore[arg-type]
    (lambda net, page: net.colour(RecordOf("X", ())), "a record has one field or more"),
    (lambda net, page: net.colour(RecordOf("X", 2 * (("x", net.scope.colours["INT"]),))), "it has two fields 'x'"),
    (lambda net, page: net.colour(RecordOf("X", (("in", net.scope.colours["INT"]),))), "'in' is no name for a field"),
    (lambda net, page: net.colour(Int("X", (3, 1))), "(3, 1) are no bounds"),
    (lambda net, page: net.variables(**{"if": net.scope.colours["INT"]}), "'if' is reserved, or no identifier"),
    (lambda net, page: net.values(x=math.inf), "value 'x': inf is no finite number"),
    (lambda net, page: net.values(x=[1]), "value 'x': [1] is no finite number"),  # type: ignore[arg-type]
    (lambda net, page: net.colour(Int), "is no colour set; give one such as Int('INT')"),  # type: ignore[type-var]
    (lambda net, page: net.colour(Int("X", 5)), "colour set 'X': 5 are no bounds"),  # type: ignore[arg-type]
    (lambda net, page: net.colour(Int("X", (1, 2, 3))), "(1, 2, 3) are no bounds"),  # type: ignore[arg-type]
    (lambda net, page: net.colour(Int("X", timed="yes")), "timed is True or False, not 'yes'"),  # type: ignore[arg-type]
    (lambda net, page: net.colour(Enumeration("X", "abc")), "'abc' are no values"),  # type: ignore[arg-type]
    (lambda net, page: net.colour(Product("X", net.scope.colours["INT"])), "are no parts"),  # type: ignore[arg-type]
    (lambda net, page: net.colour(RecordOf("X", {"id": net.scope.colours["INT"]})), "are no fields"),  # type: ignore[arg-type]
    (lambda net, page: net.variables(x="INT"), "variable 'x': 'INT' is no colour set"),  # type: ignore[arg-type]
    (lambda net, page: net.function("f", "k", k=Int("K")), "parameter 'k': colour set K is not declared"),
    (lambda net, page: net.function("f", "k", k="INT"), "parameter 'k': 'INT' is no colour set"),  # type: ignore[arg-type]
    (
        lambda net, page: net.function("f", "red", red=net.scope.colours["INT"]),
        "parameter 'red': the name has",
    ),
    (lambda net, page: net.page(5), "page 5: name 5 must consist of letters"),  # type: ignore[arg-type]
    (lambda net, page: net.page("Top"), "page 'Top': the name is taken"),
    (lambda net, page: page.place(None, net.scope.colours["INT"]), "name None must consist"),  # type: ignore[arg-type]
    (lambda net, page: page.place("P", net.scope.colours["INT"], {1: 2}), "{1: 2} is no list of tokens"),
    (lambda net, page: page.place("P", net.scope.colours["INT"], fusion=""), "fusion set '' is no name"),
    (lambda net, page: page.place("P", net.scope.colours["INT"], at=(1.0, math.nan)), "is no position"),
    (lambda net, page: page.place("P", net.scope.colours["Later"], [Token(1, "x")]), "no time from 0 on"),  # type: ignore[arg-type]
    (lambda net, page: page.substitute("S", "Top", ["A"]), "['A'] does not map ports to places"),  # type: ignore[arg-type]
    (lambda net, page: page.transition(7, takes={"A": "n"}), "name 7 must consist of letters"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("declare", "message"), DECLARATIONS)
def test_a_mistake_in_a_declaration_names_it(declare: Callable[[Net, Page], object], message: str) -> None:
    net, page = a_net()
    with pytest.raises(InvalidValue) as error:
        declare(net, page)
    assert message in str(error.value)


def test_a_port_without_a_socket_is_refused() -> None:
    net, page = a_net()
    below = net.page("Below")
    below.place("P", net.scope.colours["INT"], port=IN)
    page.substitute("S", "Below", {})
    with pytest.raises(InvalidValue, match="substitution transition 'S': port 'P' of page 'Below' has no socket"):
        net.flatten()


def test_a_socket_of_another_colour_set_is_refused() -> None:
    net, page = a_net()
    net.page("Below").place("P", net.scope.colours["Pair"], port=IN)
    page.substitute("S", "Below", {"P": "A"})
    with pytest.raises(InvalidValue, match="port 'P' has colour set Pair, but its socket 'A' has INT"):
        net.flatten()


@pytest.mark.parametrize("how", ["port", "fusion"])
def test_integers_are_no_real_numbers_in_ports_and_fusion_sets(how: str) -> None:
    """A page of integers would get fractions."""
    net, page = a_net()
    if how == "port":
        net.page("Below").place("P", net.scope.colours["INT"], port=IN)
        page.substitute("S", "Below", {"P": "F"})
    else:
        page.place("P", net.scope.colours["REAL"], fusion="both")
        page.place("Q", net.scope.colours["INT"], fusion="both")
    with pytest.raises(InvalidValue, match="REAL"):
        net.flatten()


def test_a_page_cannot_put_through_an_in_port_of_the_page_above() -> None:
    net, page = a_net()
    middle, below = net.page("Middle"), net.page("Below")
    middle.place("P", net.scope.colours["INT"], port=IN)
    below.place("P", net.scope.colours["INT"], port=OUT)
    middle.substitute("T", "Below", {"P": "P"})
    page.substitute("S", "Middle", {"P": "A"})
    with pytest.raises(InvalidValue, match="port 'P' of page 'Below' is an out port, but its socket 'P' is an in port"):
        net.flatten()


def test_a_port_that_does_not_exist_is_refused() -> None:
    net, page = a_net()
    net.page("Below").place("P", net.scope.colours["INT"], port=IN)
    page.substitute("S", "Below", {"P": "A", "Q": "A"})
    with pytest.raises(InvalidValue, match="page 'Below' has no port 'Q'; it has P"):
        net.flatten()


def test_a_transition_that_takes_from_an_out_port_is_refused() -> None:
    net, page = a_net()
    below = net.page("Below")
    below.place("P", net.scope.colours["INT"], port=OUT)
    below.transition("T", takes={"P": "n"})
    page.substitute("S", "Below", {"P": "A"})
    with pytest.raises(InvalidValue, match="page 'Below', transition 'T': takes from 'P', which is an out port"):
        net.flatten()


def test_a_page_that_contains_itself_is_refused() -> None:
    net, page = a_net()
    page.substitute("S", "Top", {})
    with pytest.raises(InvalidValue, match="page 'Top' contains itself: Top > Top"):
        net.flatten()


def test_a_page_that_nothing_uses_is_refused() -> None:
    net, _ = a_net()
    net.page("Alone")
    with pytest.raises(InvalidValue, match="page 'Alone' belongs to no substitution transition"):
        net.flatten()


def test_a_port_on_the_top_page_is_refused() -> None:
    net, page = a_net()
    page.place("P", net.scope.colours["INT"], port=IN)
    with pytest.raises(InvalidValue, match="place 'P': a port on the top page has no socket"):
        net.flatten()


def test_members_of_a_fusion_set_have_one_colour_set() -> None:
    net, page = a_net()
    page.place("P", net.scope.colours["INT"], fusion="both")
    page.place("Q", net.scope.colours["Pair"], fusion="both")
    with pytest.raises(InvalidValue, match="place 'Q': fusion set 'both' has colour set INT, not Pair"):
        net.flatten()


def test_an_inscription_may_have_several_lines_and_comments() -> None:
    net, page = a_net()
    page.place("I", net.colour(String("S")))
    page.transition(
        "T",
        takes={"A": "n  # the number"},
        puts={"A": "n\n    + 1", "I": "'# no ++ comment'"},
        guard="n > 0 and  # positive\n n < 2",
        action="""
            m = n + 1  # first
            ok = m > 1
        """,
    )
    space = explore(net.flatten())
    assert [space.marking(state)["Top'A"] for state in range(space.states)] == ["1`1++1`2", "2`2"]
    assert space.marking(1)["Top'I"] == '1`"# no ++ comment"'
