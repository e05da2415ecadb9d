"""Nets, written down: pages with places, transitions and arcs. Mistakes are errors that say where, when they are made.

net = Net("a counter")
INT = net.colour(Int("INT"))
net.variables(n=INT)
page = net.page("Top")
page.place("Counter", INT, [0])
page.transition("Count", takes={"Counter": "n"}, puts={"Counter": "n + 1"}, guard="n < 10")
flat = net.flatten()
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from lavant.core.errors import InvalidValue
from lavant.models.petri.language.colours import ColourSet, Enumeration, Token, is_name
from lavant.models.petri.language.expressions import (
    BOOL,
    BUILT_IN,
    Expression,
    Function,
    Scope,
    parse,
    parse_action,
    text_of,
    typed,
)
from lavant.models.petri.language.inscriptions import (
    Multiset,
    TokenPattern,
    expressions_in,
    marking_expressions,
    parse_putting,
    parse_taking,
    typed_delay,
)

if TYPE_CHECKING:
    from lavant.models.petri.hierarchy import FlatNet

C = TypeVar("C", bound=ColourSet)

P_HIGH, P_NORMAL, P_LOW = 100, 1_000, 10_000
"""Priorities, as in CPN Tools: of the transitions that are enabled, those with the least number go first."""

IN, OUT, IN_OUT = "in", "out", "in/out"
"""Kinds of ports, seen from the page that has them."""

_RESERVED = {*BUILT_IN, "empty", "each", "first", "rest", "len", "any", "all", "replace", "_"} - {"gamma", "lognormal"}
"""Names of the language, but for functions that came later: a net may have a value or a function of such a name."""


class Place(msgspec.Struct, frozen=True):
    """A place of a page. A port stands for a place of the page above, a member of a fusion set for all others."""

    name: str
    colour: ColourSet
    initial: tuple[Token, ...] = ()
    port: str | None = None
    fusion: str | None = None
    at: tuple[float, float] | None = None


class Arc(msgspec.Struct, frozen=True):
    """An arc with its inscription. An arc that only reads leaves the tokens where they are."""

    place: str
    text: str
    takes: tuple[TokenPattern, ...] | None = None
    puts: Multiset | None = None
    reads: bool = False


class Transition(msgspec.Struct, frozen=True):
    name: str
    arcs: tuple[Arc, ...]
    guard: Expression | None
    guard_text: str
    action: tuple[tuple[str, Expression], ...]
    """Variables that are drawn or computed when the transition occurs."""
    action_text: str
    delay: Expression | None
    delay_text: str
    priority: int
    free: tuple[str, ...]
    """Variables that no arc binds; every value of their colour set is a binding."""
    at: tuple[float, float] | None = None


class Substitution(msgspec.Struct, frozen=True):
    """A transition that stands for a page; `sockets` says which place here each port of that page is."""

    name: str
    page: str
    sockets: dict[str, str]
    at: tuple[float, float] | None = None


class Page:
    """One page of a net. Make it with `Net.page`."""

    def __init__(self, net: Net, name: str) -> None:
        self.net, self.name = net, name
        self.places: dict[str, Place] = {}
        self.transitions: dict[str, Transition] = {}
        self.substitutions: dict[str, Substitution] = {}

    def place(
        self,
        name: str,
        colour: ColourSet,
        initial: Iterable[Any] = (),
        *,
        port: str | None = None,
        fusion: str | None = None,
        at: tuple[float, float] | None = None,
    ) -> Place:
        """Add a place with its colour set and its initial tokens: values, or a `Token` that can be taken later."""
        with self._blame(f"place {name!r}"):
            self._check_new(name, self.places)
            self.net._check_declared(colour)
            if port not in (None, IN, OUT, IN_OUT):
                raise InvalidValue(f"port {port!r} is none of {IN!r}, {OUT!r}, {IN_OUT!r}")
            if fusion is not None and not is_name(fusion):
                raise InvalidValue(f"fusion set {fusion!r} is no name")
            if port is not None and fusion is not None:
                raise InvalidValue("a port cannot be a member of a fusion set, too")
            if isinstance(initial, str | Mapping) or not isinstance(initial, Iterable):
                raise InvalidValue(f"the initial marking {initial!r} is no list of tokens")
            tokens = tuple(_initial(colour, each) for each in initial)
            if port is not None and tokens:
                raise InvalidValue("a port takes its tokens from its socket; put the initial marking there")
            self.places[name] = Place(name, colour, tokens, port, fusion, _position(at))
        return self.places[name]

    def transition(
        self,
        name: str,
        *,
        takes: Mapping[str, str] | None = None,
        reads: Mapping[str, str] | None = None,
        puts: Mapping[str, str] | None = None,
        guard: str = "",
        action: str = "",
        delay: str = "",
        priority: int = P_NORMAL,
        at: tuple[float, float] | None = None,
    ) -> Transition:
        """Add a transition.

        `takes`, `reads` and `puts` map places to inscriptions, `action` is one or more of `variable = expression`,
        separated by semicolons, and `delay` is added to the time stamps of all tokens it puts.
        """
        with self._blame(f"transition {name!r}"):
            self._check_new(name, self.transitions, self.substitutions)
            for each in (takes, reads, puts):
                if each is not None and not isinstance(each, Mapping):
                    raise InvalidValue(f"{each!r} does not map places to inscriptions")
            arcs = tuple(self._arcs(takes or {}, reads or {}, puts or {}))
            if not arcs:
                raise InvalidValue("it has no arc, so it could occur for ever; give it a place to take from")
            if not isinstance(priority, int) or isinstance(priority, bool):
                raise InvalidValue(f"priority {priority!r} is no whole number; take P_HIGH, P_NORMAL, P_LOW or another")
            scope = self.net.scope
            with self._blame("guard"):
                guard_ = typed(parse(guard), scope, BOOL) if guard else None
                if guard_ is not None and (guard_.is_random or "time" in guard_.calls):
                    raise InvalidValue(f"`{guard}` depends on chance or on the clock; a guard depends on tokens only")
            with self._blame("action"):
                action_ = tuple(self._action(action))
            with self._blame("delay"):
                delay_ = typed_delay(parse(delay), scope) if delay else None
                if delay_ is not None and not any(arc.puts and self.places[arc.place].colour.timed for arc in arcs):
                    raise InvalidValue(f"`{delay}` delays nothing, since no arc puts tokens of a timed colour set")
            found = Transition(
                name,
                arcs,
                guard_,
                guard,
                action_,
                action,
                delay_,
                delay,
                priority,
                self._free(arcs, guard_, action_, delay_),
                _position(at),
            )
            self.transitions[name] = found
        return found

    def substitute(
        self, name: str, page: str, sockets: Mapping[str, str], *, at: tuple[float, float] | None = None
    ) -> Substitution:
        """Add a transition that stands for the page of that name; `sockets` maps its ports to places of this page."""
        with self._blame(f"substitution transition {name!r}"):
            self._check_new(name, self.transitions, self.substitutions)
            if not isinstance(sockets, Mapping):
                raise InvalidValue(f"{sockets!r} does not map ports to places")
            for place in sockets.values():
                self._find(place)
            self.substitutions[name] = Substitution(name, page, dict(sockets), _position(at))
        return self.substitutions[name]

    def _arcs(self, takes: Mapping[str, str], reads: Mapping[str, str], puts: Mapping[str, str]) -> Iterator[Arc]:
        scope = self.net.scope
        for place, text in takes.items():
            with self._blame(f"arc from {place!r}"):
                yield Arc(place, text, takes=parse_taking(text, scope, self._find(place).colour))
        for place, text in reads.items():
            with self._blame(f"arc from and to {place!r}"):
                yield Arc(place, text, takes=parse_taking(text, scope, self._find(place).colour), reads=True)
        for place, text in puts.items():
            with self._blame(f"arc to {place!r}"):
                arc = Arc(place, text, puts=parse_putting(text, scope, self._find(place).colour))
                assert arc.puts is not None
                for each in marking_expressions(arc.puts):
                    if each.is_random:
                        raise InvalidValue(f"`{text}` draws a random token; draw it in the action, to a variable")
                yield arc

    def _action(self, text: str) -> Iterator[tuple[str, Expression]]:
        scope = self.net.scope
        for name, value in parse_action(text):
            if name not in scope.variables:
                raise InvalidValue(f"`{name} = {text_of(value)}` sets `{name}`, which is no variable; declare it")
            yield name, typed(value, scope, scope.variables[name])

    def _free(
        self,
        arcs: tuple[Arc, ...],
        guard: Expression | None,
        action: tuple[tuple[str, Expression], ...],
        delay: Expression | None,
    ) -> tuple[str, ...]:
        """Variables that no arc and no action binds. Those of an infinite colour set are mistakes."""
        bound = {name for arc in arcs for pattern in arc.takes or () for name in pattern.binds()}
        drawn: set[str] = set()
        used: dict[str, str] = {}
        for arc in arcs:
            for pattern in arc.takes or ():
                used.update((n, f"arc from {arc.place!r}") for s in pattern.steps if s.equal for n in s.equal.names)
        used.update((name, "guard") for name in (guard.names if guard else ()))
        for name, expression in action:
            used.update((each, "action") for each in expression.names - drawn)
            if name in bound | set(used) | drawn:
                raise InvalidValue(f"action sets `{name}`, which is bound already")
            drawn.add(name)
        used.update((name, "delay") for name in (delay.names if delay else frozenset()) - drawn)
        for arc in arcs:
            names = {name for each in expressions_in(arc.puts or ()) for name in each.names}
            used.update((name, f"arc to {arc.place!r}") for name in names - drawn)
        free = tuple(sorted(set(used) - bound))
        for name in free:
            if self.net.scope.variables[name].values() is None:
                colour = self.net.scope.variables[name]
                raise InvalidValue(
                    f"{used[name]}: variable `{name}` is not bound by an arc that takes or reads, "
                    f"and its colour set {colour.name} has too many values to try"
                )
        return free

    def _find(self, place: str) -> Place:
        if place not in self.places:
            raise InvalidValue(f"page {self.name!r} has no place {place!r}; it has {', '.join(self.places) or 'none'}")
        return self.places[place]

    def _check_new(self, name: str, *taken: Mapping[str, Any]) -> None:
        _check_label(name)
        if any(name in each for each in taken):
            raise InvalidValue(f"the name is taken on page {self.name!r}")

    @contextmanager
    def _blame(self, what: str) -> Iterator[None]:
        with _blame(
            what if what.split(maxsplit=1)[0] in ("arc", "guard", "action", "delay") else f"page {self.name!r}, {what}"
        ):
            yield


class Net:
    """A coloured Petri net: declarations and pages. The first page is the top one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scope = Scope()
        self.pages: dict[str, Page] = {}

    def colour(self, colour: C) -> C:
        """Declare a colour set; those of which it consists are declared before."""
        if not isinstance(colour, ColourSet):
            raise InvalidValue(f"{colour!r} is no colour set; give one such as Int('INT')")
        with _blame(f"colour set {colour.name!r}"):
            self._check_new(colour.name)
            if not isinstance(colour.timed, bool):
                raise InvalidValue(f"timed is True or False, not {colour.timed!r}")
            if (mistake := colour.mistake()) is not None:
                raise InvalidValue(mistake)
            for part in colour.parts():
                if not isinstance(part, ColourSet):
                    raise InvalidValue(f"{part!r} is no colour set")
                if self.scope.colours.get(part.name) is not part:
                    raise InvalidValue(f"{part.name} is not declared; declare it first")
            if isinstance(colour, Enumeration):
                for value in colour.names:
                    self._check_new(value)
                    if colour.names.count(value) > 1:
                        raise InvalidValue(f"{value} is named twice")
            self.scope.colours[colour.name] = colour
        return colour

    def variables(self, **colours: ColourSet) -> None:
        """Declare variables of inscriptions with their colour sets."""
        for name, colour in colours.items():
            with _blame(f"variable {name!r}"):
                self._check_new(name)
                self._check_declared(colour)
                self.scope.variables[name] = colour

    def values(self, **values: int | float | bool | str) -> None:
        """Declare constants."""
        for name, value in values.items():
            with _blame(f"value {name!r}"):
                self._check_new(name)
                if not isinstance(value, int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
                    raise InvalidValue(f"{value!r} is no finite number, truth value or text")
                self.scope.values[name] = value

    def function(self, name: str, text: str, **parameters: ColourSet) -> None:
        """Declare a function of the parameters, which may shadow variables."""
        with _blame(f"function {name!r}"):
            self._check_new(name)
            for parameter, colour in parameters.items():
                with _blame(f"parameter {parameter!r}"):
                    if parameter in _RESERVED or self.scope.enumerated(parameter) is not None:
                        raise InvalidValue("the name has a meaning already; choose another one")
                    self._check_declared(colour)
            inner = Scope(self.scope.colours, parameters, self.scope.values, self.scope.functions)
            body = typed(parse(text), inner)
            if body.is_random or "time" in body.calls:
                raise InvalidValue(
                    f"`{text}` depends on chance or on the clock; a function depends on its arguments only"
                )
            self.scope.functions[name] = Function(name, parameters, text, body)

    def page(self, name: str) -> Page:
        with _blame(f"page {name!r}"):
            _check_label(name)
            if name in self.pages:
                raise InvalidValue("the name is taken")
            self.pages[name] = Page(self, name)
        return self.pages[name]

    def flatten(self) -> FlatNet:
        """The net without hierarchy, for the simulator and the state space. Checks ports, sockets and fusion sets."""
        from lavant.models.petri.hierarchy import flatten  # noqa: PLC0415

        return flatten(self)

    def _check_declared(self, colour: ColourSet) -> None:
        if not isinstance(colour, ColourSet):
            raise InvalidValue(f"{colour!r} is no colour set; give one that Net.colour returned")
        if self.scope.colours.get(colour.name) is not colour:
            raise InvalidValue(f"colour set {colour.name} is not declared in this net; declare it with Net.colour")

    def _check_new(self, name: str) -> None:
        scope = self.scope
        if not is_name(name) or name in _RESERVED:
            raise InvalidValue(f"{name!r} is reserved, or no identifier")
        for kind in (scope.colours, scope.variables, scope.values, scope.functions):
            if name in kind:
                raise InvalidValue(f"{name!r} is declared already")
        if scope.enumerated(name) is not None:
            raise InvalidValue(f"{name!r} is a value of an enumeration already")


def _check_label(name: str) -> None:
    """Refuse a name for a page, a place or a transition."""
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidValue(f"name {name!r} must consist of letters, digits and underscores, and begin with a letter")


def _position(at: tuple[float, float] | None) -> tuple[float, float] | None:
    if at is None:
        return None
    numbers = [each for each in at if isinstance(each, int | float)] if isinstance(at, tuple | list) else []
    if len(numbers) != 2 or not all(map(math.isfinite, numbers)):
        raise InvalidValue(f"{at!r} is no position; give two numbers, x and y")
    return float(numbers[0]), float(numbers[1])


def _initial(colour: ColourSet, given: Any) -> Token:
    token = given if isinstance(given, Token) else Token(given)
    if token.time is not None:
        if not colour.timed:
            raise InvalidValue(f"{given!r} has a time stamp, and colour set {colour.name} is not timed")
        if not isinstance(token.time, int | float) or not 0 <= token.time < math.inf:
            raise InvalidValue(f"{given!r} has a time stamp that is no time from 0 on")
    return Token(colour.token(token.value), token.time or None)


def conjuncts(guard: Expression) -> list[Expression]:
    """The parts of a guard that must all hold."""
    nodes = (
        guard.node.values if isinstance(guard.node, ast.BoolOp) and isinstance(guard.node.op, ast.And) else [guard.node]
    )
    return [Expression(node, BOOL, guard.types, _names(node, guard), guard.calls, guard.widened) for node in nodes]


def _names(node: ast.AST, whole: Expression) -> frozenset[str]:
    return frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name)) & whole.names


@contextmanager
def _blame(what: str) -> Iterator[None]:
    """Put the place of a mistake before its message."""
    try:
        yield
    except InvalidValue as error:
        raise InvalidValue(f"{what}: {error}") from None
