"""Filters for engines: those of neighbouring brokers do not use up the quota of a namespace."""

from __future__ import annotations

from lavant.broker.protocol.subscriptions import Subscribe, SubscriptionState
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.broker.subscriptions.registry import Added, Removed
from lavant.core.errors import QuotaExceeded
from lavant.service.engines.filters import FilterAdmission
from lavant.service.engines.local import LocalEngine

LIMITS = SubscriptionLimits(namespace_attributes_max=3)


def state(number: int, name: str) -> SubscriptionState:
    return SubscriptionState(number, name, "", f"a{number} > 1", name, False, None, 0)


def test_plain_filters_of_neighbours_do_not_count_in_the_quota_of_a_namespace() -> None:
    engine = LocalEngine(1)
    filters = FilterAdmission(engine)
    routes = [state(number, "") for number in range(10)]
    filters.apply([*(Added(each, 1 << 31) for each in routes), Added(state(10, "own"), 1)], {})

    def problem(*attributes: str) -> object:
        request = Subscribe(" and ".join(f"{name} > 1" for name in attributes))
        [prepared] = filters.prepare([request])
        return filters.problem(request, prepared, None, LIMITS)

    assert problem("b", "c") is None
    assert isinstance(problem("b", "c", "d"), QuotaExceeded)
    filters.apply([Removed(each) for each in routes], {})
    assert problem("b", "c") is None
    assert isinstance(problem("b", "c", "d"), QuotaExceeded)
    engine.close()
