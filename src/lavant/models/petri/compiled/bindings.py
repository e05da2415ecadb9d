"""The search for a binding: in which order arcs are matched, what is tested when, and which arcs need a loop."""

from __future__ import annotations

import msgspec

from lavant.core.errors import InvalidValue
from lavant.models.petri.hierarchy import FlatTransition
from lavant.models.petri.language.expressions import Expression, Scope
from lavant.models.petri.language.inscriptions import TokenPattern
from lavant.models.petri.language.python_source import python_of
from lavant.models.petri.net import conjuncts


class Source:
    """Lines of Python with their indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def open(self, line: str) -> None:
        self.add(line)
        self.depth += 1

    def close(self, depth: int = 1) -> None:
        self.depth -= depth

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


class ArcPlan(msgspec.Struct):
    """One pattern of one arc, and what is done with a token that might match: `x{number}` in the source."""

    number: int
    place: int
    pattern: TokenPattern
    is_read: bool
    binds: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """Variables with the source of their values."""
    tests: list[str] = msgspec.field(default_factory=list)
    """Conditions on this token and those before it."""
    is_searched: bool = False
    """Whether some tokens may not do, so that the others must be tried, too."""


class BindingPlan(msgspec.Struct):
    """Arcs in the order in which they are matched, and free variables, each with the tests that follow it."""

    tests: list[str]
    """Parts of the guard that need no token at all."""
    arcs: list[ArcPlan] = msgspec.field(default_factory=list)
    first: list[tuple[str, list[str]]] = msgspec.field(default_factory=list)
    """Free variables that stand in the pattern of an arc, and must have a value before."""
    free: list[tuple[str, list[str]]] = msgspec.field(default_factory=list)


def plan_bindings(flat: FlatTransition, scope: Scope) -> BindingPlan:
    waiting = [(place, pattern, False) for place, pattern in flat.takes]
    waiting += [(place, pattern, True) for place, pattern in flat.reads]
    guards = conjuncts(flat.transition.guard) if flat.transition.guard is not None else []
    planning = _Planning(scope, guards)
    plan = BindingPlan(planning.due())
    used = {name for _, pattern, _ in waiting for step in pattern.steps if step.equal for name in step.equal.names}
    for name in flat.transition.free:
        if name in used:
            plan.first.append((name, planning.free(name)))
    while waiting:
        at = next((at for at, each in enumerate(waiting) if planning.is_ready(each[1])), None)
        if at is None:
            raise InvalidValue(f"transition {flat.name}: the patterns of its arcs depend on each other in a circle")
        place, pattern, is_read = waiting.pop(at)
        plan.arcs.append(planning.arc(len(plan.arcs), place, pattern, is_read))
    plan.free = [(name, planning.free(name)) for name in flat.transition.free if name not in used]
    _mark_searched(plan.arcs, planning)
    return plan


class _Planning:
    def __init__(self, scope: Scope, guards: list[Expression]) -> None:
        self.scope, self.guards = scope, guards
        self.bound: set[str] = set()
        self.owners: dict[str, int] = {}
        self.needed: set[int] = set()
        """Arcs on whose variables something is tested."""

    def is_ready(self, pattern: TokenPattern) -> bool:
        own = set(pattern.binds())
        return all(step.equal.names <= self.bound | own for step in pattern.steps if step.equal is not None)

    def arc(self, number: int, place: int, pattern: TokenPattern, is_read: bool) -> ArcPlan:
        plan = ArcPlan(number, place, pattern, is_read)
        token = f"x{number}"
        for step in pattern.steps:
            if step.length is not None:
                least, more = step.length
                plan.tests.append(f"len({token}{step.path}) {'>=' if more else '=='} {least}")
            elif step.bind is not None and step.bind in self.bound:
                plan.tests.append(f"{token}{step.path} == v_{step.bind}")
                self._need({step.bind})
            elif step.bind is not None:
                self.bound.add(step.bind)
                self.owners[step.bind] = number
                plan.binds.append((step.bind, f"{token}{step.path}"))
        for step in pattern.steps:
            if step.equal is not None:
                plan.tests.append(f"{token}{step.path} == {python_of(step.equal, self.scope)}")
                self._need(set(step.equal.names))
        if plan.tests or pattern.count > 1:
            self.needed.add(number)
        plan.tests += self.due()
        return plan

    def free(self, name: str) -> list[str]:
        self.bound.add(name)
        return self.due()

    def due(self) -> list[str]:
        """Parts of the guard whose variables are all bound now."""
        ready = [each for each in self.guards if each.names <= self.bound]
        self.guards = [each for each in self.guards if not each.names <= self.bound]
        for each in ready:
            self._need(set(each.names))
        return [python_of(each, self.scope) for each in ready]

    def _need(self, names: set[str]) -> None:
        self.needed.update(self.owners[name] for name in names if name in self.owners)


def enough(arc: ArcPlan, plan: BindingPlan, tokens: str) -> list[str]:
    """A test that a place has enough of a token for this arc and those before it; none if it has anyway."""
    others = [each for each in plan.arcs[: arc.number] if each.place == arc.place]
    if not others and arc.pattern.count == 1:
        return []
    taken = "".join(f" + {each.pattern.count} * (x{each.number} == x{arc.number})" for each in others)
    return [f"{tokens}.count(x{arc.number}) >= {arc.pattern.count}{taken}"]


def _mark_searched(arcs: list[ArcPlan], planning: _Planning) -> None:
    places = [arc.place for arc in arcs]
    for arc in arcs:
        arc.is_searched = arc.number in planning.needed or places.count(arc.place) > 1
