"""Short changes to a system file: `arrival_rate.1=4`, `service_rate.*=x1.5`, `response_s=40`.

PARAMETER.NAME=VALUE     of a topic or a job type; NAME * is all of them
PARAMETER=VALUE          of the goal: response_s, percentile, job, budget
VALUE                    a number, or x and a number: so many times what it is
"""

from __future__ import annotations

import copy
import math
from typing import Any

from lavant.core.errors import InvalidValue

OF_A_JOB = ("arrival_rate", "arrival_scv")
OF_A_TOPIC = ("service_rate", "service_scv", "cost", "consumers_min", "consumers_max")
OF_THE_GOAL = ("response_s", "percentile", "job", "budget")
SYMBOLS = {"lambda": "arrival_rate", "ca2": "arrival_scv", "mu": "service_rate", "cs2": "service_scv"}
_WHOLE = ("consumers_min", "consumers_max")
_DEFAULTS = {"arrival_scv": 1.0, "service_scv": 1.0, "cost": 1.0, "consumers_min": 1, "consumers_max": 1000}


def changed(tables: dict[str, Any], change: str) -> dict[str, Any]:
    """The tables with one change.

    >>> changed({"job": [{"name": "1", "arrival_rate": 3.0}]}, "lambda.1=x2")
    {'job': [{'name': '1', 'arrival_rate': 6.0}]}
    """
    left, equals, value = (part.strip() for part in change.partition("="))
    parameter, dot, name = left.partition(".")
    parameter = SYMBOLS.get(parameter, parameter)
    if not equals or not value:
        raise InvalidValue(f"--what-if {change!r} is not PARAMETER.NAME=VALUE, such as arrival_rate.1=4")
    result = copy.deepcopy(tables)
    if parameter in OF_THE_GOAL and not dot:
        _set_goal(result, parameter, value, change)
    elif parameter in OF_A_JOB + OF_A_TOPIC and dot:
        kind = "job" if parameter in OF_A_JOB else "topic"
        for table in _named(result, kind, name, change):
            table[parameter] = _value(table.get(parameter, _DEFAULTS.get(parameter)), parameter, value, change)
    else:
        names = ", ".join(f"{p}.NAME" for p in (*OF_A_JOB, *OF_A_TOPIC))
        raise InvalidValue(f"--what-if {change!r}: there are {names} and {', '.join(OF_THE_GOAL)}")
    return result


def _named(tables: dict[str, Any], kind: str, name: str, change: str) -> list[dict[str, Any]]:
    found = [table for table in tables[kind] if name in ("*", table.get("name"))]
    if not found:
        names = ", ".join(str(table.get("name")) for table in tables[kind])
        raise InvalidValue(f"--what-if {change!r}: there is no {kind} {name!r}; there are {names}")
    return found


def _set_goal(tables: dict[str, Any], parameter: str, value: str, change: str) -> None:
    goal = tables.setdefault("goal", {})
    goal[parameter] = value if parameter == "job" else _value(goal.get(parameter), parameter, value, change)
    if parameter == "budget":
        for other in ("response_s", "percentile", "job"):
            goal.pop(other, None)
    else:
        goal.pop("budget", None)


def _value(present: Any, parameter: str, value: str, change: str) -> float | int:
    factor = value.startswith("x")
    try:
        number = float(value[1:] if factor else value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValue(f"--what-if {change!r}: {value!r} is neither a number nor x and a number, such as x1.5")
    if factor:
        if not isinstance(present, int | float):
            raise InvalidValue(f"--what-if {change!r}: {parameter} is {present!r} now, which cannot be multiplied")
        number *= present
    return round(number) if parameter in _WHOLE else number
