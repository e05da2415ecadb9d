"""Creates the empty slices of a layout."""

from __future__ import annotations

from lavant.broker.slices.access import AccessSlice
from lavant.broker.slices.exit import ExitSlice
from lavant.broker.slices.layout import ACCESS, EXIT, MATCH, SliceLayout, operator_of
from lavant.broker.slices.machine import SliceMachine
from lavant.broker.slices.match import MatchSlice
from lavant.core.errors import InvalidValue
from lavant.core.ids import SliceId

OPERATORS: dict[str, type[SliceMachine]] = {ACCESS: AccessSlice, MATCH: MatchSlice, EXIT: ExitSlice}


def make_slice(id: SliceId, layout: SliceLayout) -> SliceMachine:
    operator = OPERATORS.get(operator_of(id))
    if operator is None:
        raise InvalidValue(f"slice {id!r} is of no known operator; there are {', '.join(OPERATORS)}")
    return operator(id, layout)


def make_slices(layout: SliceLayout) -> dict[SliceId, SliceMachine]:
    """All slices, in the direction in which publications flow."""
    return {id: make_slice(id, layout) for id in layout.slices}
