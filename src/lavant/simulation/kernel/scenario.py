"""Scenarios: how a world is built from a seed and options, and options set by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

import msgspec

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.world import World


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`build(world, options)` makes hosts, work, faults and invariants; `options` is the type of its second argument, a
    frozen msgspec struct in which every field has a default.
    """

    name: str
    summary: str
    build: Callable[[World, Any], None]
    options: type[msgspec.Struct]
    minutes: float = 5.0
    """Of work and faults in virtual time, by default."""
    calm_s: float = 30.0
    """After that, for everything to finish."""


class Option(msgspec.Struct, frozen=True):
    """One setting of a scenario."""

    name: str
    type: str
    default: Any

    def __str__(self) -> str:
        return f"{self.name}={_written(self.default)} ({self.type})"


def options_of(scenario: Scenario) -> list[Option]:
    """All settings, by name."""
    hints = get_type_hints(scenario.options)
    defaults = scenario.options()
    return [
        Option(name, getattr(hints[name], "__name__", str(hints[name])), getattr(defaults, name))
        for name in sorted(scenario.options.__struct_fields__)
    ]


def parse_options(scenario: Scenario, settings: Iterable[str]) -> msgspec.Struct:
    """The scenario's options with some set as `name=value`."""
    known = [option.name for option in options_of(scenario)]
    values: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise InvalidValue(f"setting {setting!r} is not NAME=VALUE, such as {known[0] if known else 'clients'}=1")
        if name not in known:
            raise InvalidValue(f"scenario {scenario.name} has no option {name!r}; it has {', '.join(known)}")
        values[name] = value
        _convert(scenario, {name: value})  # alone, so that an error is about this one
    return _convert(scenario, values)


def _convert(scenario: Scenario, values: dict[str, str]) -> msgspec.Struct:
    try:
        return msgspec.convert(values, scenario.options, strict=False)
    except msgspec.ValidationError as error:
        shown = ", ".join(f"{name}={value}" for name, value in values.items())
        raise InvalidValue(f"scenario {scenario.name} cannot have {shown}: {error}") from None


def settings_of(scenario: Scenario, options: msgspec.Struct) -> list[str]:
    """The options that differ from their defaults, as `name=value`."""
    return [
        f"{option.name}={_written(value)}"
        for option in options_of(scenario)
        if (value := getattr(options, option.name)) != option.default
    ]


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
