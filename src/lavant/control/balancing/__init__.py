"""Balancing: brokers of a federation move subscriptions to where there is room (the balancing thesis, Chapters 3 and
4)."""

from lavant.control.balancing.cluster import ClusterBalancer
from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.edge import EdgeBalancer
from lavant.control.balancing.policies.interface import BalancingPolicy
from lavant.control.balancing.policies.registry import DEFAULT_POLICY, POLICIES, balancing_policy
from lavant.control.balancing.press import PressSample
from lavant.control.balancing.values import BalancingDecision, BalancingStatus, BrokerLoad, LoadReport

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "BalancingConfig",
    "BalancingDecision",
    "BalancingPolicy",
    "BalancingStatus",
    "BrokerLoad",
    "ClusterBalancer",
    "EdgeBalancer",
    "LoadReport",
    "PressSample",
    "balancing_policy",
]
