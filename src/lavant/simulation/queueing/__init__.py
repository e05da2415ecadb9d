"""Open queueing networks in virtual time, at millions of events a second, to validate models."""

from lavant.simulation.queueing.curves import Curve, constant, steps
from lavant.simulation.queueing.draws import DistributionFamily
from lavant.simulation.queueing.simulation import JobFinished, NetworkSimulation, SimulationCounters
from lavant.simulation.queueing.steady import Estimate, SteadyState, simulate

__all__ = [
    "Curve",
    "DistributionFamily",
    "Estimate",
    "JobFinished",
    "NetworkSimulation",
    "SimulationCounters",
    "SteadyState",
    "constant",
    "simulate",
    "steps",
]
