"""The reliable queue, predicted: waiting, utilisation and delivery time of a queue with a visibility timeout.

J. Li, Y. Cui, Y. Ma, "Modeling Message Queueing Services with Reliability Guarantee in Cloud Computing Environment
Using Colored Petri Nets", Section 5. A message is served twice: a sender takes it to the queue (phase 1), a
consumer takes it from there (phase 2). With probability p it is lost on the way to the consumer, and becomes visible
again when its timeout has passed. Symbols, mapped once:

| paper    | here                                      |                                              |
| -------- | ----------------------------------------- | -------------------------------------------- |
| λ        | `arrival_rate_per_s`                      | messages a second                            |
| n₁, n₂   | `senders.count`, `consumers.count`        | threads of each phase                        |
| μ₁, μ₂   | `1 / service.mean_s` of each              | messages that one thread serves in a second  |
| p, q     | `loss`, `1 − loss`                        | probability of a loss                        |
| D_link   | `link_s`                                  | one-way delay of the network                 |
| V        | `visibility_s`                            | visibility timeout                           |

`columns` has the equations, `prediction` all that is predicted of one scenario, `planning` what to choose.
"""

from lavant.models.reliable_queue.columns import QueueColumns, evaluate
from lavant.models.reliable_queue.planning import QueuePlan, TimeoutCost, plan
from lavant.models.reliable_queue.prediction import QueuePrediction, predict
from lavant.models.reliable_queue.scenario import Phase, QueueGoal, QueueScenario, ServiceTime, TimerStart

__all__ = [
    "Phase",
    "QueueColumns",
    "QueueGoal",
    "QueuePlan",
    "QueuePrediction",
    "QueueScenario",
    "ServiceTime",
    "TimeoutCost",
    "TimerStart",
    "evaluate",
    "plan",
    "predict",
]
