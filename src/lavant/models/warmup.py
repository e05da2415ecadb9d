"""Calls every kernel of the models with each combination of argument types in use."""

from __future__ import annotations

from lavant.core.kernels.warmup import KernelSet
from lavant.models.delay import delay_probability
from lavant.models.evaluation import Model
from lavant.models.network import ModelJobType, Network, Topic
from lavant.models.reliable_queue import Phase, QueueScenario, ServiceTime, predict
from lavant.models.reliable_queue.scenario import DeliveryOrder


def _call_all() -> None:
    job = ModelJobType.along(["A"], name="1", arrival_rate_per_s=2.0)
    network = Network(topics=(Topic(name="A", service_rate_per_s=1.0),), jobs=(job,))
    Model(network).evaluate([[3]])
    delay_probability(2.0, 3, 1.0, 1.0)
    phase = Phase(count=3, service=ServiceTime(mean_s=1.0))
    predict(
        QueueScenario(arrival_rate_per_s=1.0, senders=phase, consumers=phase, loss=0.1, order=DeliveryOrder.IN_ORDER)
    )


MODEL_KERNELS = KernelSet("models", _call_all, kinds=11)
