"""Indexes are joined when nothing has changed for a while, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

from lavant.service.engines.local import IndexMaintenance, TakeEffect

WAIT_S = 30.0


class Joins:
    """Counts what was joined, and what took effect."""

    def __init__(self) -> None:
        self.begun = Event()
        self.may_end = Event()
        self.joined = self.in_effect = 0

    def __call__(self) -> Iterator[TakeEffect]:
        self.begun.set()
        assert self.may_end.wait(WAIT_S)
        self.joined += 1
        yield self.take_effect

    def take_effect(self) -> None:
        self.in_effect += 1


def test_what_was_joined_takes_effect_when_the_engine_says_so() -> None:
    joins = Joins()
    keeper = IndexMaintenance(joins, quiet_s=0.01)
    keeper.changed()
    assert joins.begun.wait(WAIT_S)
    keeper.take_effect()
    assert joins.in_effect == 0
    joins.may_end.set()
    keeper.close()
    assert (joins.joined, joins.in_effect) == (1, 0)
    keeper.take_effect()
    keeper.take_effect()
    assert joins.in_effect == 1


def test_a_change_while_it_works_is_looked_after_next() -> None:
    joins = Joins()
    keeper = IndexMaintenance(joins, quiet_s=0.01)
    keeper.changed()
    assert joins.begun.wait(WAIT_S)
    joins.begun.clear()
    keeper.changed()
    joins.may_end.set()
    assert joins.begun.wait(WAIT_S)
    keeper.close()
    assert joins.joined == 2


def test_it_ends_at_once_whatever_it_waits_for() -> None:
    joins = Joins()
    keeper = IndexMaintenance(joins, quiet_s=1e6)
    keeper.changed()
    keeper.close()
    assert not joins.begun.is_set()
    IndexMaintenance(joins).close()
