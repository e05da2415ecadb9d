"""Balancing policies by name."""

from __future__ import annotations

from lavant.control.balancing.policies.even_counts import EvenCountsPolicy
from lavant.control.balancing.policies.interface import BalancingPolicy
from lavant.control.balancing.policies.shares import SharesPolicy
from lavant.control.balancing.policies.thesis import ThesisPolicy
from lavant.core.errors import InvalidValue

POLICIES: dict[str, BalancingPolicy] = {
    policy.name: policy for policy in (SharesPolicy(), ThesisPolicy(), EvenCountsPolicy())
}
DEFAULT_POLICY = SharesPolicy.name


def balancing_policy(name: str = DEFAULT_POLICY) -> BalancingPolicy:
    if name not in POLICIES:
        raise InvalidValue(f"there is no balancing policy {name!r}; choose one of {', '.join(sorted(POLICIES))}")
    return POLICIES[name]
