"""The registry of scenarios: every module in this package that defines `SCENARIO`."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

import lavant.simulation.scenarios
from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.scenario import Scenario


@cache
def scenarios() -> dict[str, Scenario]:
    """All scenarios by name, in the order of their names."""
    package = lavant.simulation.scenarios
    modules = [import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    found = [module.SCENARIO for module in modules if hasattr(module, "SCENARIO")]
    assert len({scenario.name for scenario in found}) == len(found), "two scenarios have the same name"
    return {scenario.name: scenario for scenario in sorted(found, key=lambda scenario: scenario.name)}


def scenario_named(name: str) -> Scenario:
    there = scenarios()
    if name not in there:
        raise InvalidValue(f"there is no scenario {name!r}; there are: {', '.join(there)}")
    return there[name]
