"""Calls every kernel of the models with each combination of argument types in use."""

from __future__ import annotations

from lavant.core.kernels.warmup import KernelSet
from lavant.models.delay import delay_probability
from lavant.models.evaluation import Model
from lavant.models.network import ModelJobType, Network, Topic


def _call_all() -> None:
    job = ModelJobType.along(["A"], name="1", arrival_rate_per_s=2.0)
    network = Network(topics=(Topic(name="A", service_rate_per_s=1.0),), jobs=(job,))
    Model(network).evaluate([[3]])
    delay_probability(2.0, 3, 1.0, 1.0)


MODEL_KERNELS = KernelSet(_call_all, kinds=7)
