"""Runs a net in an engine of others: `python others.py ENGINE SECONDS < net.json` prints steps a second.

Runs in an environment of its own, without Lavant.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

Step = Callable[[], bool]


def variables_in(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"\bv_\w+", text)))


def names(net: dict[str, Any]) -> dict[str, Any]:
    """What expressions use: functions, chance and the clock, which stands still where an engine has none."""
    found: dict[str, Any] = {"now": 0.0, "_uniform": random.random, "_exponential": lambda: random.expovariate(1.0)}
    exec(net["functions"], found)
    return found


def snakes_step(net: dict[str, Any]) -> Step:
    """SNAKES has no time: a random enabled transition occurs, but no message is produced while another one can."""
    from snakes.nets import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        Expression,
        PetriNet,
        Place,
        Test,
        Transition,
        Tuple,
        Value,
        Variable,
    )

    def arc(text: str) -> Any:
        if re.fullmatch(r"v_\w+", text):
            return Variable(text)
        if text.startswith("(") and text != "()":
            return Tuple([arc(part.strip()) for part in text[1:-1].split(",")])
        return Value(eval(text))

    made = PetriNet("net")
    made.globals.declare(net["functions"])
    made.globals["now"] = 0.0
    for name, tokens, _ in net["places"]:
        made.add_place(Place(name, eval(tokens)))
    for each in net["transitions"]:
        made.add_transition(Transition(each["name"], Expression(each["guard"])))
        for at, (place, text) in enumerate(each["takes"]):
            is_read = at >= len(each["takes"]) - each["reads"]
            made.add_input(place, each["name"], Test(arc(text)) if is_read else arc(text))
        for place, text, _ in each["puts"]:
            made.add_output(place, each["name"], Expression(text))
    last = [each for each in made.transition() if each.name.endswith("Produce")]
    first = [each for each in made.transition() if each not in last]

    def step() -> bool:
        random.shuffle(first)
        for transition in first + last:
            modes = transition.modes()
            if modes:
                transition.fire(random.choice(modes))
                return True
        return False

    return step


def simpn_step(net: dict[str, Any]) -> Step:
    from simpn.simulator import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        SimProblem,
        SimToken,
    )

    known = names(net)
    problem = SimProblem(debugging=False)
    places = {}
    for name, tokens, _ in net["places"]:
        places[name] = problem.add_var(re.sub(r"\W", "_", name))
        for token in eval(tokens):
            places[name].put(token)
    for each in net["transitions"]:
        inputs = [place for place, _ in each["takes"]]
        pattern = "".join(f"{text if not text.startswith(chr(39)) else '_'}, " for _, text in each["takes"])
        pattern = pattern.replace("'thread'", "_").replace("(), ", "_, ")
        back = [f"SimToken(_given[{at}])" for at in range(len(inputs) - each["reads"], len(inputs))]
        puts = [f"SimToken({text}, delay={delay if delay is not None else 0})" for _, text, delay in each["puts"]]
        source = (
            f"def behave(*_given):\n    {pattern} = _given\n    return [{', '.join(puts + back)}]\n"
            f"def guard(*_given):\n    {pattern} = _given\n    return {each['guard']}\n"
        )
        scope = {**known, "SimToken": SimToken}
        exec(source, scope)
        outputs = [place for place, _, _ in each["puts"]] + inputs[len(inputs) - each["reads"] :]
        problem.add_event(
            [places[place] for place in inputs],
            [places[place] for place in outputs],
            scope["behave"],
            name=re.sub(r"\W", "_", each["name"]),
            guard=scope["guard"] if each["guard"] != "True" else None,
        )

    def step() -> bool:
        bindings = problem.bindings()
        if bindings:
            problem.fire(problem.binding_priority(bindings))
        return bool(bindings)

    return step


def cpnpy_step(net: dict[str, Any]) -> Step:
    """cpnpy tries all tokens for all variables, of whatever place, so a guard must endure tokens of any kind."""
    from cpnpy.cpn.cpn_imp import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        CPN,
        Arc,
        EvaluationContext,
        Marking,
        Place,
        Transition,
    )

    made, marking, context = CPN(), Marking(), EvaluationContext()
    context.env.update(names(net))
    places = {}
    for name, tokens, timed in net["places"]:
        places[name] = Place(name, SimpleNamespace(timed=timed))
        made.add_place(places[name])
        marking.set_tokens(name, eval(tokens))
    for number, each in enumerate(net["transitions"]):
        bound = variables_in(" ".join(text for _, text in each["takes"]))
        source = (
            f"def guard{number}({', '.join(bound)}):\n    try:\n        return {each['guard']}\n"
            "    except (TypeError, IndexError):\n        return False\n"
        )
        exec(source, context.env)
        guard = f"guard{number}({', '.join(bound)})" if each["guard"] != "True" else None
        transition = Transition(each["name"], guard=guard, variables=bound)
        made.add_transition(transition)
        for at, (place, text) in enumerate(each["takes"]):
            made.add_arc(Arc(places[place], transition, text))
            if at >= len(each["takes"]) - each["reads"]:
                made.add_arc(Arc(transition, places[place], text))
        for place, text, delay in each["puts"]:
            made.add_arc(Arc(transition, places[place], text if delay is None else f"{text} @+ {delay}"))
    order = list(made.transitions)

    def step() -> bool:
        while True:
            random.shuffle(order)
            for transition in order:
                binding = made._find_binding(transition, marking, context)
                if binding is not None:
                    made.fire_transition(transition, marking, context, binding)
                    return True
            before = marking.global_clock
            made.advance_global_clock(marking)
            if marking.global_clock == before:
                return False

    return step


ENGINES: dict[str, Callable[[dict[str, Any]], Step]] = {
    "snakes": snakes_step,
    "simpn": simpn_step,
    "cpnpy": cpnpy_step,
}


def main() -> None:
    random.seed(1)
    step = ENGINES[sys.argv[1]](json.load(sys.stdin))
    seconds = float(sys.argv[2])
    repeat(step, seconds / 3)  # until messages are everywhere on their way
    print(json.dumps(repeat(step, seconds)))


def repeat(step: Step, seconds: float) -> float:
    """Steps a second of this process's time."""
    steps, start_s = 0, time.process_time()
    while time.process_time() - start_s < seconds:
        assert step()
        steps += 1
    return steps / (time.process_time() - start_s)


if __name__ == "__main__":
    main()
