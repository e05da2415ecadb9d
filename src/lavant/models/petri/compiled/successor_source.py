"""The source that lists all bindings of a transition in a marking, and the markings to which they lead.

One function per transition. It takes the markings of the places that the transition touches, as sorted tuples of
tokens, and returns pairs of a binding and their new markings. Time is left out: a token can be taken at once, delays
are ignored, and `time()` is 0.
"""

from __future__ import annotations

import ast

from lavant.core.errors import InvalidValue
from lavant.models.petri.compiled.bindings import ArcPlan, BindingPlan, Source, enough, plan_bindings
from lavant.models.petri.hierarchy import FlatNet, FlatTransition
from lavant.models.petri.language.expressions import Expression
from lavant.models.petri.language.inscriptions import Choice, Multiset, marking_expressions
from lavant.models.petri.language.python_source import function_source, python_of

ENUMERABLE = ("bernoulli", "discrete")


def places_of(flat: FlatTransition) -> list[int]:
    """Places that a transition touches, in order."""
    return sorted({place for place, _ in (*flat.takes, *flat.reads, *flat.puts)})


def variables_of(flat: FlatTransition, plan: BindingPlan) -> list[str]:
    bound = {name for arc in plan.arcs for name, _ in arc.binds}
    return sorted(bound | set(flat.transition.free) | {name for name, _ in drawn_without_time(flat)})


def drawn_without_time(flat: FlatTransition) -> list[tuple[str, Expression]]:
    """The variables of the action, but for random ones that only delays depend on."""
    action = flat.transition.action
    needed = {name for _, multiset in flat.puts for each in marking_expressions(multiset) for name in each.names}
    for name, expression in reversed(action):
        if name in needed:
            needed |= expression.names
    kept: list[tuple[str, Expression]] = []
    left_out: set[str] = set()
    for name, expression in action:
        if name not in needed and (_is_innumerable(expression) or expression.names & left_out):
            left_out.add(name)
        else:
            kept.append((name, expression))
    return kept


def _is_innumerable(expression: Expression) -> bool:
    """Whether a random value has too many values to try, or is no draw alone."""
    call = expression.node
    is_alone = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ENUMERABLE
    return expression.is_random and not is_alone


def successor_source(flat: FlatNet) -> tuple[str, list[list[str]]]:
    """The source, and the variables of each transition in the order of its bindings."""
    out, names = Source(), []
    out.add("now = 0.0")
    for function in flat.scope.functions.values():
        for line in function_source(function, flat.scope).splitlines():
            out.add(line)
    for bit, transition in enumerate(flat.transitions):
        plan = plan_bindings(transition, flat.scope)
        names.append(variables_of(transition, plan))
        _Successors(flat, transition, plan, names[-1], out).write(bit)
    return out.text(), names


class _Successors:
    def __init__(
        self, flat: FlatNet, transition: FlatTransition, plan: BindingPlan, names: list[str], out: Source
    ) -> None:
        self.flat, self.transition, self.plan, self.names, self.out = flat, transition, plan, names, out
        self.places = places_of(transition)

    def write(self, bit: int) -> None:
        out = self.out
        out.open(f"def e{bit}({', '.join(f'm{at}' for at in self.places)}):")
        out.add("found = {}")
        depth = out.depth
        for test in self.plan.tests:
            out.open(f"if {test}:")
        self._free(self.plan.first)
        for arc in self.plan.arcs:
            self._match(arc)
        self._free(self.plan.free)
        for name, expression in drawn_without_time(self.transition):
            self._draw(name, expression)
        self._occur()
        out.depth = depth
        out.add("return list(found)")
        out.close()

    def _free(self, variables: list[tuple[str, list[str]]]) -> None:
        for name, tests in variables:
            self.out.open(f"for v_{name} in {tuple(self.flat.scope.variables[name].values() or ())!r}:")
            for test in tests:
                self.out.open(f"if {test}:")

    def _match(self, arc: ArcPlan) -> None:
        out, name, token = self.out, f"m{arc.place}", f"x{arc.number}"
        out.open(f"for {token} in {name}:")
        tests = enough(arc, self.plan, name)
        lengths = [test for test in arc.tests if test.startswith("len(")]
        if tests or lengths:
            out.open(f"if {' and '.join(tests + lengths)}:")
        for variable, source in arc.binds:
            out.add(f"v_{variable} = {source}")
        rest = [test for test in arc.tests if test not in lengths]
        if rest:
            out.open(f"if {' and '.join(rest)}:")

    def _draw(self, name: str, expression: Expression) -> None:
        """A random variable takes each of its values."""
        source, call = python_of(expression, self.flat.scope), expression.node
        if not expression.is_random:
            self.out.add(f"v_{name} = {source}")
            return
        if _is_innumerable(expression):
            raise InvalidValue(
                f"transition {self.transition.name}, action: `{name} = {ast.unparse(expression.node)}` has too many "
                f"values for a state space; only {' and '.join(ENUMERABLE)}, alone, can be enumerated"
            )
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        kind = call.func.id
        parts = [
            Expression(each, expression.colour, expression.types, expression.names, frozenset()) for each in call.args
        ]
        arguments = ", ".join(python_of(each, self.flat.scope) for each in parts)
        self.out.open(f"for v_{name} in _{kind}({arguments}):")

    def _occur(self) -> None:
        out = self.out
        changed = sorted({at for at, _ in (*self.transition.takes, *self.transition.puts)})
        for at in changed:
            out.add(f"q{at} = list(m{at})")
        for arc in self.plan.arcs:
            if not arc.is_read:
                for _ in range(arc.pattern.count):
                    out.add(f"q{arc.place}.remove(x{arc.number})")
        for at, multiset in self.transition.puts:
            self._put(at, multiset)
        binding = "".join(f"v_{name}, " for name in self.names)
        after = "".join(f"tuple(sorted(q{at})), " if at in changed else f"m{at}, " for at in self.places)
        out.add(f"found[({binding}), ({after})] = None")

    def _put(self, at: int, multiset: Multiset) -> None:
        out, scope = self.out, self.flat.scope
        for each in multiset:
            if isinstance(each, Choice):
                out.open(f"if {python_of(each.test, scope)}:")
                self._put(at, each.then)
                out.add("pass")
                out.close()
                out.open("else:")
                self._put(at, each.otherwise)
                out.add("pass")
                out.close()
            elif each.is_each:
                out.add(f"q{at}.extend([_check({at}, y) for y in {python_of(each.token, scope)}])")
            elif each.count is not None:
                token = f"_check({at}, {python_of(each.token, scope)})"
                out.add(f"q{at}.extend([{token}] * _count({python_of(each.count, scope)}))")
            else:
                out.add(f"q{at}.append(_check({at}, {python_of(each.token, scope)}))")
