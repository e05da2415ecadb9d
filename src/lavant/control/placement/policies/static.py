"""The `static` policy: never moves anything. The baseline, and the choice for a cluster of fixed size."""

from __future__ import annotations

from lavant.control.placement.values import PlacementPlan
from lavant.control.placement.view import LoadView


class StaticPolicy:
    name = "static"

    def decide(self, view: LoadView) -> PlacementPlan | None:
        return None
