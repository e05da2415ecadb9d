"""Estimates the parameters of models from telemetry: rates, variabilities, failures and percentiles, window by window.

`Estimator` is the embedded implementation; `lavant.pipeline.jobs.telemetry` is the one on Spark. Both reduce the rows
of a window to the same integers (`WindowSums`) and call `estimate` on them, so they give the same figures to the last
bit, in any order of the rows. `SlidingWindow` keeps the same sums for a control loop.
"""

from __future__ import annotations

from lavant.core.estimation.estimates import ESTIMATE_SCHEMA, EstimationConfig, WindowEstimate, estimate, estimate_batch
from lavant.core.estimation.estimator import Estimator, ObservedRows
from lavant.core.estimation.history import TelemetryHistory, read_history
from lavant.core.estimation.sliding_window import SlidingWindow
from lavant.core.estimation.sums import WindowSums

__all__ = [
    "ESTIMATE_SCHEMA",
    "EstimationConfig",
    "Estimator",
    "ObservedRows",
    "SlidingWindow",
    "TelemetryHistory",
    "WindowEstimate",
    "WindowSums",
    "estimate",
    "estimate_batch",
    "read_history",
]
