"""Policies by name, and `static`. A policy is a pure function of a `LoadView`; only the `Enforcer` has state."""

from __future__ import annotations

from typing import Protocol

from lavant.control.placement.policies.forecast import ForecastPolicy
from lavant.control.placement.policies.threshold import ThresholdPolicy
from lavant.control.placement.values import PlacementPlan
from lavant.control.placement.view import LoadView
from lavant.core.errors import InvalidValue


class StaticPolicy:
    """Never moves anything: the baseline, and the choice for a cluster of fixed size."""

    name = "static"

    def decide(self, view: LoadView) -> PlacementPlan | None:
        return None


class Policy(Protocol):
    """Returns None if there is nothing to do, and a plan without changes for a problem it cannot solve."""

    @property
    def name(self) -> str: ...

    def decide(self, view: LoadView) -> PlacementPlan | None: ...


POLICIES: dict[str, Policy] = {policy.name: policy for policy in (ForecastPolicy(), ThresholdPolicy(), StaticPolicy())}


def policy_named(name: str) -> Policy:
    if name not in POLICIES:
        raise InvalidValue(f"there is no placement policy {name!r}; choose one of {', '.join(sorted(POLICIES))}")
    return POLICIES[name]
