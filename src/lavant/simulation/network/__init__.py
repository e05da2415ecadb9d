"""Open queueing networks in virtual time, at millions of events a second: what models are validated against."""

from lavant.simulation.network.curves import Curve, constant, steps
from lavant.simulation.network.draws import Family
from lavant.simulation.network.simulation import Counters, Finished, NetworkSimulation
from lavant.simulation.network.steady import Estimate, SteadyState, simulate

__all__ = [
    "Counters",
    "Curve",
    "Estimate",
    "Family",
    "Finished",
    "NetworkSimulation",
    "SteadyState",
    "constant",
    "simulate",
    "steps",
]
