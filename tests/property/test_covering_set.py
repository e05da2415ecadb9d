"""The covering graph against comparing everything with everything."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.broker.filters.oracle import filters, predicates, write

from lavant.broker.filters import CoveringChange, CoveringSet, Filter, covers, parse
from lavant.core.ids import SubscriptionId

IDS = st.integers(0, 40).map(SubscriptionId)
FEW_STRINGS = ("", "a", "b", "ab")
RANDOM = filters(predicates(names=("x", "y"), strings=FEW_STRINGS, literals=("a", "b")), leaves_max=3).map(write)

# Few predicates, combined: chains, diamonds and equivalent filters are common.
PARTS = ["x = 1", "x > 0", "x >= 1", "x <= 1", "y = 'a'", "y like 'a%'", "y like '%a'", "exists(x)", "z = true", "true"]
PARTS += ["y >= 'a' and y < 'a\x01' and y not like '%\0%'"]  # means y = 'a', which only a search finds out
COMBINED = st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map(" and ".join)
ALTERNATIVES = st.lists(COMBINED, min_size=1, max_size=2).map(" or ".join)
FILTERS = st.one_of(COMBINED, COMBINED, ALTERNATIVES, RANDOM).map(parse)


class CoveringSetMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.tested = CoveringSet()
        self.known: dict[SubscriptionId, Filter] = {}  # in the order they were added

    @rule(id=IDS, filter=FILTERS)
    def add(self, id: SubscriptionId, filter: Filter) -> None:
        if id in self.known:
            self.remove(id)
        before = self.expected_roots()
        change = self.tested.add(id, filter)
        self.known[id] = filter
        self.check(change, before)

    @rule(id=IDS)
    def remove(self, id: SubscriptionId) -> None:
        if id not in self.known:
            return
        before = self.expected_roots() - {id}
        change = self.tested.remove(id)
        del self.known[id]
        self.check(change, before)

    def check(self, change: CoveringChange, before: set[SubscriptionId]) -> None:
        after = self.expected_roots()
        assert change == CoveringChange(uncovered=tuple(sorted(after - before)), covered=tuple(sorted(before - after)))

    @invariant()
    def the_roots_are_what_nothing_else_covers(self) -> None:
        expected = self.expected_roots()
        assert self.tested.roots() == tuple(sorted(expected)) == tuple(self.tested)
        assert {id for id in self.known if self.tested.is_root(id)} == expected
        assert len(self.tested) == len(self.known)

    @invariant()
    def children_are_the_largest_that_are_covered(self) -> None:
        for id in self.known:
            below = [other for other in self.firsts() if self.strictly_covers(id, other)]
            largest = [each for each in below if not any(self.strictly_covers(other, each) for other in below)]
            assert self.tested.children(id) == tuple(sorted(largest))

    def expected_roots(self) -> set[SubscriptionId]:
        firsts = self.firsts()
        return {id for id in firsts if not any(self.strictly_covers(other, id) for other in firsts)}

    def firsts(self) -> list[SubscriptionId]:
        """Of equivalent filters the one added first; none of those that match nothing."""
        firsts: list[SubscriptionId] = []
        for id, filter in self.known.items():
            same = (covers(self.known[other], filter) and covers(filter, self.known[other]) for other in firsts)
            if filter.conjunctions and not any(same):
                firsts.append(id)
        return firsts

    def strictly_covers(self, outer: SubscriptionId, inner: SubscriptionId) -> bool:
        mine, other = self.known[outer], self.known[inner]
        return bool(mine.conjunctions) and covers(mine, other) and not covers(other, mine)


TestCoveringSet = CoveringSetMachine.TestCase
TestCoveringSet.settings = settings(max_examples=60, stateful_step_count=30)
