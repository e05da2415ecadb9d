"""The covering subscription set, by example; `tests/property/test_covering_set.py` has the rest."""

from __future__ import annotations

import pytest

from lavant.broker.filters import CoveringChange, CoveringSet, Filter, parse
from lavant.broker.filters.covering import covering_set as module
from lavant.core.errors import DuplicateSubscription, UnknownSubscription
from lavant.core.ids import SubscriptionId


def number(id: int) -> SubscriptionId:
    return SubscriptionId(id)


def filled(*texts: str) -> CoveringSet:
    subscriptions = CoveringSet()
    for id, text in enumerate(texts, start=1):
        subscriptions.add(number(id), parse(text))
    return subscriptions


THESIS = (
    "[class,eq,'STOCK']",
    "[class,eq,'STOCK'],[symbol,eq,'YHOO']",
    "[class,eq,'STOCK'],[volume,>,1000]",
    "[class,eq,'SPORTS']",
    "[class,eq,'SPORTS'],[type,eq,'RACING']",
)


def test_five_subscriptions_have_a_covering_set_of_two() -> None:
    """The example of section 2.1.2 of Cheung and Jacobsen."""
    subscriptions = filled(*THESIS)
    assert subscriptions.roots() == tuple(subscriptions) == (1, 4)
    assert subscriptions.children(number(1)) == (2, 3)
    assert subscriptions.children(number(4)) == (5,)
    assert subscriptions.children(number(2)) == ()
    assert len(subscriptions) == 5


def test_the_order_of_adding_does_not_matter() -> None:
    assert filled(*reversed(THESIS)).roots() == (2, 5)


def test_a_wider_subscription_relieves_those_it_covers() -> None:
    subscriptions = filled(*THESIS[1:3])
    assert subscriptions.add(number(9), parse(THESIS[0])) == CoveringChange(
        uncovered=(number(9),), covered=(number(1), number(2))
    )


def test_removing_a_root_uncovers_its_children() -> None:
    subscriptions = filled(*THESIS)
    assert subscriptions.remove(number(1)) == CoveringChange(uncovered=(number(2), number(3)))
    assert subscriptions.roots() == (2, 3, 4)


def test_removing_a_covered_subscription_changes_nothing() -> None:
    assert filled(*THESIS).remove(number(2)) == CoveringChange()


def test_a_child_of_two_stays_covered_by_the_other() -> None:
    subscriptions = filled("a = 1", "b = 1", "a = 1 and b = 1")
    assert subscriptions.children(number(1)) == subscriptions.children(number(2)) == (3,)
    assert subscriptions.remove(number(1)) == CoveringChange()
    assert subscriptions.remove(number(2)) == CoveringChange(uncovered=(number(3),))


def test_one_in_between_takes_over_the_children_and_gives_them_back() -> None:
    subscriptions = filled("x > 0", "x > 9")
    assert subscriptions.add(number(3), parse("x > 5")) == CoveringChange()
    assert subscriptions.children(number(1)) == (3,)
    assert subscriptions.children(number(3)) == (2,)
    subscriptions.remove(number(3))
    assert subscriptions.children(number(1)) == (2,)


def test_of_equivalent_subscriptions_the_first_stands_for_all() -> None:
    subscriptions = CoveringSet()
    same = ("x like 'a%'", "x like 'a%' and x like '%a%'", "x like 'a%'")
    for id, text in zip((7, 3, 5), same, strict=True):
        subscriptions.add(number(id), parse(text))
    assert subscriptions.roots() == (7,)
    assert subscriptions.equivalents(number(5)) == (7, 3, 5)
    assert subscriptions.filter(number(3)) == parse(same[1])
    assert subscriptions.remove(number(7)) == CoveringChange(uncovered=(number(3),))
    assert subscriptions.remove(number(5)) == CoveringChange()
    assert subscriptions.roots() == (3,)
    assert subscriptions.remove(number(3)) == CoveringChange()
    assert subscriptions.roots() == ()


def test_what_matches_nothing_is_never_forwarded() -> None:
    subscriptions = filled("x = 1", "false")
    assert subscriptions.roots() == (1,)
    assert subscriptions.remove(number(1)) == CoveringChange()
    assert subscriptions.roots() == ()
    assert not subscriptions.is_root(number(2))
    assert subscriptions.remove(number(2)) == CoveringChange()


def test_numbers_and_booleans_are_told_apart() -> None:
    assert filled("x = 1", "x = true", "x = 0", "x = false").roots() == (1, 2, 3, 4)


def test_an_id_is_taken_once() -> None:
    subscriptions = filled("x = 1")
    with pytest.raises(DuplicateSubscription, match="subscription 1 is in the set already; remove it first"):
        subscriptions.add(number(1), parse("x = 2"))
    with pytest.raises(UnknownSubscription, match="subscription 2 is not in the set"):
        subscriptions.remove(number(2))
    assert number(1) in subscriptions
    assert number(2) not in subscriptions


def test_filters_that_fix_other_values_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    subscriptions = CoveringSet()
    for id in range(200):
        subscriptions.add(number(id), parse(f"class = 'STOCK' and symbol = 'S{id}' and volume > 10"))
    compared: list[Filter] = []
    for name in ("covers", "intersects"):
        original = getattr(module, name)

        def counted(*filters: Filter, original: object = original) -> bool:
            compared.append(filters[0])
            return bool(original(*filters))  # type: ignore[operator]

        monkeypatch.setattr(module, name, counted)
    subscriptions.add(number(1000), parse("class = 'STOCK' and symbol = 'S7' and volume > 20"))
    assert subscriptions.children(number(7)) == (1000,)
    assert len(compared) <= 3


def test_a_value_that_only_one_alternative_fixes_rules_nothing_out() -> None:
    assert filled("x = 1 or y = 1", "x = 2 and y = 1").roots() == (1,)
    assert filled("x = 2 and y = 1", "x = 1 or y = 1").roots() == (2,)
