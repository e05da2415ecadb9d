"""Monitors: what a simulation observes without changing the net, and when it stops."""

from __future__ import annotations

import msgspec

from lavant.core.errors import InvalidValue
from lavant.models.petri.hierarchy import FlatNet
from lavant.models.petri.language.colours import Bool, Int, Real
from lavant.models.petri.language.expressions import BOOL, Expression, Scope, typed


class DataCollection(msgspec.Struct, frozen=True):
    """Data collection: the value of an expression each time a transition occurs, `when` a condition holds."""

    name: str
    transition: str
    value: str
    when: str | None = None


class Occurrences(msgspec.Struct, frozen=True):
    """Count: how often a transition occurs."""

    name: str
    transition: str


class Size(msgspec.Struct, frozen=True):
    """Marking size: tokens of a place over time, or the sum of an expression of `token`, such as `len(token)`."""

    name: str
    place: str
    of: str | None = None


class Breakpoint(msgspec.Struct, frozen=True):
    """Stop after a transition has occurred, `when` a condition holds."""

    name: str
    transition: str
    when: str | None = None


Monitor = DataCollection | Occurrences | Size | Breakpoint


def check_monitors(monitors: tuple[Monitor, ...], flat: FlatNet) -> None:
    """Refuse monitors of places, transitions or variables that do not exist."""
    for monitor in monitors:
        if not isinstance(monitor, Monitor) or not isinstance(monitor.name, str):
            raise InvalidValue(f"{monitor!r} is no monitor with a name; give one such as Size('waiting', 'Queue')")
    names = [monitor.name for monitor in monitors]
    for monitor in monitors:
        try:
            if names.count(monitor.name) > 1:
                raise InvalidValue("the name is taken")
            if isinstance(monitor, Size):
                at = flat.place(monitor.place)
                if monitor.of is not None and flat.places[at].colour.timed:
                    raise InvalidValue(f"{monitor.place} is timed; only the number of its tokens can be measured")
            else:
                flat.transition(monitor.transition)
            if isinstance(monitor, DataCollection | Size):
                observed(monitor, flat)
            if isinstance(monitor, DataCollection | Breakpoint):
                observed(monitor, flat, condition=True)
        except InvalidValue as error:
            raise InvalidValue(f"monitor {monitor.name!r}: {error}") from None


def observed(monitor: DataCollection | Size | Breakpoint, flat: FlatNet, *, condition: bool = False) -> Expression:
    """The expression of a monitor, checked."""
    if isinstance(monitor, Size):
        colour = flat.places[flat.place(monitor.place)].colour
        variables, text = {"token": colour}, "1" if monitor.of is None else monitor.of
    else:
        transition = flat.transitions[flat.transition(monitor.transition)]
        bound = {name for _, pattern in (*transition.takes, *transition.reads) for name in pattern.binds()}
        bound |= {name for name, _ in transition.transition.action} | set(transition.transition.free)
        variables = {name: colour for name, colour in flat.scope.variables.items() if name in bound}
        text = ("True" if monitor.when is None else monitor.when) if condition else getattr(monitor, "value", "True")
    scope = Scope(flat.scope.colours, variables, flat.scope.values, flat.scope.functions)
    found = typed(text, scope, BOOL if condition else None)
    if found.is_random or not isinstance(found.colour, Int | Real | Bool):
        raise InvalidValue(f"`{text}` is no number that the net determines")
    return found
