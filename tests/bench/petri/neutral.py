"""The paper's net as plain Python expressions, so that any engine can be given the same net."""

from __future__ import annotations

import ast
import re
from typing import Any

from lavant.models.petri.hierarchy import FlatNet, FlatTransition
from lavant.models.petri.language.expressions import Scope
from lavant.models.petri.language.inscriptions import Term
from lavant.models.petri.language.python_source import function_source, python_of


def neutral(flat: FlatNet) -> dict[str, Any]:
    """Functions as source, places with their tokens, and transitions whose arcs are Python expressions.

    What the action of a transition computes is put into the expressions that use it. A pattern `[head, *tail]` becomes
    a variable for the whole list, since not every engine looks into lists.
    """
    functions = [function_source(function, flat.scope) for function in flat.scope.functions.values()]
    return {
        "functions": "\n".join(functions),
        "places": [
            [place.name, repr([token.value for token in place.initial]), place.colour.timed] for place in flat.places
        ],
        "transitions": [_transition(flat, each) for each in flat.transitions],
    }


def _transition(flat: FlatNet, transition: FlatTransition) -> dict[str, Any]:
    scope, given = flat.scope, transition.transition
    computed = {f"v_{name}": f"({python_of(expression, scope)})" for name, expression in given.action}
    patterns = [_pattern(arc.text, scope) for arc in given.arcs if arc.takes is not None]
    guards = [python_of(given.guard, scope)] if given.guard is not None else []
    for at, text in enumerate(patterns):
        if found := re.fullmatch(r"\[(v_\w+), \*(v_\w+)\]", text):
            patterns[at] = f"v_list{at}"
            computed |= {found[1]: f"v_list{at}[0]", found[2]: f"v_list{at}[1:]"}
            guards.append(f"len(v_list{at}) > 0")
    taken = [place for place, _ in (*transition.takes, *transition.reads)]
    puts = [
        [flat.places[place].name, _inlined(python_of(term.token, scope), computed), delay]
        for place, multiset in transition.puts
        for term in multiset
        if isinstance(term, Term)
        for delay in [_inlined(python_of(term.delay, scope), computed) if term.delay is not None else None]
    ]
    return {
        "name": transition.name,
        "guard": _inlined(" and ".join(guards), computed) if guards else "True",
        "takes": [[flat.places[at].name, text] for at, text in zip(taken, patterns, strict=True)],
        "reads": len(transition.reads),
        "puts": puts,
    }


def _pattern(text: str, scope: Scope) -> str:
    """A pattern with variables as `v_…` and enumerated values as strings."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = f"v_{node.id}" if node.id in scope.variables else repr(node.id)
    return ast.unparse(tree)


def _inlined(source: str, computed: dict[str, str]) -> str:
    for name, value in reversed(computed.items()):
        source = re.sub(rf"\b{name}\b", lambda _, value=value: value, source)  # type: ignore[misc]
    return source
