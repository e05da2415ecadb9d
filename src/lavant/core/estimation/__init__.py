"""From telemetry to the parameters of models: rates, variabilities, failures, percentiles, a window at a time.

`Estimator` is the embedded implementation, a machine; `lavant.pipeline.jobs.telemetry` is the one on Spark. Both
reduce the rows of a window to the same integers (`WindowSums`), and both call `estimate` on them, so they give the same
figures to the last bit, in whatever order rows come. `SlidingWindow` keeps the same sums for a control loop.
"""

from __future__ import annotations

from lavant.core.estimation.config import EstimationConfig
from lavant.core.estimation.estimates import ESTIMATE_SCHEMA, WindowEstimate, estimate, estimate_batch
from lavant.core.estimation.estimator import Estimator, ObservedRows
from lavant.core.estimation.sliding_window import SlidingWindow
from lavant.core.estimation.sums import WindowSums

__all__ = [
    "ESTIMATE_SCHEMA",
    "EstimationConfig",
    "Estimator",
    "ObservedRows",
    "SlidingWindow",
    "WindowEstimate",
    "WindowSums",
    "estimate",
    "estimate_batch",
]
