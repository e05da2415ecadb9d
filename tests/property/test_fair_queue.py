"""A fair queue: nothing lost, nobody starves, order kept, and nobody gets far ahead of anybody who waits."""

from __future__ import annotations

from collections import defaultdict, deque

from hypothesis import given, settings
from hypothesis import strategies as st

from lavant.core.fair_queue import FairQueue

TENANTS = "abcd"
COST_MAX = 8
COSTS = st.integers(1, COST_MAX)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(TENANTS), st.integers(1, 4)),
        st.tuples(st.just("serve"), st.just(""), COSTS),
        st.tuples(st.just("serve"), st.just(""), COSTS),
        st.tuples(st.just("return"), st.just(""), COSTS),
        st.tuples(st.just("hold"), st.sampled_from(TENANTS), st.just(0)),
        st.tuples(st.just("release"), st.sampled_from(TENANTS), st.just(0)),
    ),
    max_size=120,
)


class Checked:
    """A fair queue beside plain lines. Notes what was served while pairs of tenants both waited."""

    def __init__(self) -> None:
        self.queue: FairQueue[int] = FairQueue()
        self.lines: dict[str, deque[int]] = defaultdict(deque)
        self.held: set[str] = set()
        self.numbers = 0
        self.served: dict[tuple[str, str], int] = {}
        """Of pairs of tenants that have waited ever since: what the first got."""

    def waiting(self) -> list[str]:
        return [tenant for tenant in TENANTS if self.lines[tenant] and tenant not in self.held]

    def add(self, tenant: str, count: int) -> None:
        for _ in range(count):
            self.numbers += 1
            self.queue.add(tenant, self.numbers)
            self.lines[tenant].append(self.numbers)

    def serve(self, cost: int) -> str | None:
        waiting = self.waiting()
        found = self.queue.next()
        assert (found is not None) == bool(waiting), "work conserving"
        if found is None:
            return None
        tenant, item = found
        assert tenant in waiting
        assert item == self.lines[tenant].popleft(), "the order of a tenant's items"
        self.queue.charge(tenant, cost)
        for other in waiting:
            self.served[tenant, other] = self.served.get((tenant, other), 0) + cost
            self.served.setdefault((other, tenant), 0)
        return tenant

    def give_back(self, cost: int) -> None:
        """What is taken, charged, and cannot be done is the first of its tenant again."""
        before = {tenant: list(line) for tenant, line in self.lines.items()}
        tenant = self.serve(cost)
        if tenant is not None:
            self.queue.put_back(tenant, before[tenant][0])
            self.lines[tenant].appendleft(before[tenant][0])

    def check(self) -> None:
        assert len(self.queue) == sum(map(len, self.lines.values()))
        for tenant in TENANTS:
            assert self.queue.waiting(tenant) == len(self.lines[tenant])
        waiting = set(self.waiting())
        self.served = {pair: cost for pair, cost in self.served.items() if waiting.issuperset(pair)}
        for one, other in self.served:
            lag = self.served[one, other] - self.served[other, one]
            assert abs(lag) <= 2 * COST_MAX, f"{one} got {lag} more than {other}, and both waited all the time"


@given(STEPS)
def test_a_fair_queue_keeps_its_promises_whatever_happens(steps: list[tuple[str, str, int]]) -> None:
    checked = Checked()
    for what, tenant, amount in steps:
        if what == "add":
            checked.add(tenant, amount)
        elif what == "serve":
            checked.serve(amount)
        elif what == "return":
            checked.give_back(amount)
        elif what == "hold":
            checked.held.add(tenant)
            checked.queue.hold(tenant)
        else:
            checked.held.discard(tenant)
            checked.queue.release(tenant)
        checked.check()
    for tenant in TENANTS:
        checked.held.discard(tenant)
        checked.queue.release(tenant)
    while checked.serve(1) is not None:
        checked.check()
    assert not checked.queue._backlogs, "nothing is remembered of tenants that want nothing"
    assert not checked.queue._heap


@given(st.integers(1, 300), st.lists(COSTS, min_size=1, max_size=20), st.integers(0, 20))
@settings(max_examples=50)
def test_a_backlog_of_any_length_costs_a_newcomer_one_item(backlog: int, costs: list[int], before: int) -> None:
    checked = Checked()
    checked.add("a", backlog)
    for place in range(min(before, backlog)):
        checked.serve(costs[place % len(costs)])
    checked.add("b", 1)
    served = [checked.serve(costs[0]) for _ in range(2)]
    assert "b" in served


def test_many_tenants_with_backlogs_are_served_in_turn() -> None:
    queue: FairQueue[int] = FairQueue()
    for tenant in map(str, range(100)):
        for item in range(3):
            queue.add(tenant, item)
    served = []
    while (found := queue.next()) is not None:
        served.append(found)
        queue.charge(found[0], 1)
    assert [item for _, item in served] == [0] * 100 + [1] * 100 + [2] * 100


def test_who_costs_more_is_served_less_often() -> None:
    queue: FairQueue[int] = FairQueue()
    costs = {"large": 10.0, "small": 1.0}
    for tenant in costs:
        for item in range(1000):
            queue.add(tenant, item)
    served: dict[str, int] = defaultdict(int)
    for _ in range(550):
        found = queue.next()
        assert found is not None
        served[found[0]] += 1
        queue.charge(found[0], costs[found[0]])
    assert served["small"] == 10 * served["large"] == 500


def test_an_item_that_cost_nothing_still_moves_its_tenant_on() -> None:
    queue: FairQueue[int] = FairQueue()
    for tenant in ("a", "b"):
        for item in range(3):
            queue.add(tenant, item)
    served = []
    while (found := queue.next()) is not None:
        served.append(found[0])
        queue.charge(found[0], 0.0)
    assert served == ["a", "b"] * 3
