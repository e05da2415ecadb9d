"""The limits between which delivery times were checked against simulations, and what of a scenario is beyond them.

Out of order, exponential times are no approximation, so they have no limits. `docs/queue-models.md` has the errors on
both sides of the limits, and `tests/models/in_order_fit.py` measures them.
"""

from __future__ import annotations

from lavant.models.reliable_queue.prediction import QueuePrediction
from lavant.models.reliable_queue.scenario import DeliveryOrder, QueueScenario, ServiceFamily

CHECKED = {
    "arrival scv": (0.2, 2.0),
    "service_scv": (0.0, 2.5),
    "loss": (0.0, 0.12),
    "utilisation": (0.3, 0.9),
    "count": (1.0, 50.0),
}
"""From, and up to, in order. A low utilisation is hard only there, if arrivals come in bursts."""
OUT_OF_ORDER = {"utilisation": (0.0, 0.9), "count": (1.0, 500.0)}
"""What is wider out of order."""
BOTH_BUSY, NEAR_ONE = 0.65, (0.7, 1.3)
"""Both phases may be busier than this only if all variabilities are near 1: busy senders shape what consumers get."""
ERROR_BEYOND = {DeliveryOrder.IN_ORDER: 0.2, DeliveryOrder.OUT_OF_ORDER: 0.13}
"""The largest that was found, about."""

DUPLICATES, BUSY_WITH_DUPLICATES = 0.1, 0.65
"""Where more messages come twice, and consumers are busier, waits are overestimated by up to half: a message that waits
to be repeated leaves the queue when its first attempt is acknowledged."""


def repeats_too_often(found: QueuePrediction) -> bool:
    """Whether more messages come twice than the prediction can tell the wait of."""
    return found.duplicates > DUPLICATES and found.consumers.utilisation > BUSY_WITH_DUPLICATES


def order_matters(scenario: QueueScenario) -> bool:
    """Whether older messages can be late, so that others wait for them."""
    return scenario.order is DeliveryOrder.IN_ORDER and scenario.senders is not None


def checked(scenario: QueueScenario) -> dict[str, tuple[float, float]]:
    """The limits for a scenario."""
    if not order_matters(scenario):
        return CHECKED | OUT_OF_ORDER
    return CHECKED if scenario.arrival_scv > 1 else CHECKED | {"utilisation": (0.0, CHECKED["utilisation"][1])}


def described(scenario: QueueScenario) -> str:
    """All limits, in words."""
    named = [f"{name} {least:g} to {most:g}" for name, (least, most) in checked(scenario).items()]
    if scenario.senders is None:
        return ", ".join(named)
    near = f"{NEAR_ONE[0]:g} to {NEAR_ONE[1]:g}"
    return f"{', '.join(named)} (of both phases above {BOTH_BUSY:g} only if each scv is {near})"


def beyond(scenario: QueueScenario, found: QueuePrediction) -> list[str]:
    """What of the scenario, or of what was predicted for it, is beyond the limits."""
    phases = [phase for phase in (scenario.senders, scenario.consumers) if phase is not None]
    busy = [phase.utilisation for phase in (found.senders, found.consumers) if phase is not None]
    if not order_matters(scenario) and _is_exponential(scenario):
        return []
    figures: dict[str, list[float]] = {
        "arrival scv": [scenario.arrival_scv],
        "service_scv": [phase.service.scv for phase in phases],
        "loss": [scenario.loss],
        "utilisation": busy,
        "count": [phase.count for phase in phases],
    }
    named: dict[str, None] = {}  # in order, and each once
    for name, (least, most) in checked(scenario).items():
        named |= {f"{name} {figure:.4g}": None for figure in figures[name] if not least <= figure <= most}
    scvs = [*figures["arrival scv"], *figures["service_scv"]]
    if len(busy) > 1 and min(busy) > BOTH_BUSY and not all(NEAR_ONE[0] <= each <= NEAR_ONE[1] for each in scvs):
        shown = ", ".join(f"{each:.3g}" for each in scvs)
        named[f"utilisations of {' and '.join(f'{each:.3g}' for each in busy)} and scvs of {shown}"] = None
    return list(named)


def _is_exponential(scenario: QueueScenario) -> bool:
    services = [phase.service for phase in (scenario.senders, scenario.consumers) if phase is not None]
    return scenario.arrival_scv == 1 and all(
        service.scv == 1 and service.family is not ServiceFamily.LOGNORMAL for service in services
    )
