"""Placement of slices on hosts: when to add and release hosts, and which slices move where (the enforcer of
e-StreamHub).
"""

from lavant.control.placement.config import Band, ForecastConfig, HostCapacity, PlacementConfig, Rules
from lavant.control.placement.enforcer import Enforcer
from lavant.control.placement.policies.registry import POLICIES, Policy, policy_named
from lavant.control.placement.values import HostProbe, Move, Placement, PlacementPlan, Probes, SliceProbe
from lavant.control.placement.view import LoadView, SliceLoad
from lavant.core.ids import HostId, SliceId

__all__ = [
    "POLICIES",
    "Band",
    "Enforcer",
    "ForecastConfig",
    "HostCapacity",
    "HostId",
    "HostProbe",
    "LoadView",
    "Move",
    "Placement",
    "PlacementConfig",
    "PlacementPlan",
    "Policy",
    "Probes",
    "Rules",
    "SliceId",
    "SliceLoad",
    "SliceProbe",
    "policy_named",
]
