"""Counts and times of the stages of a publication, for `/metrics`.

access ──► match ──► exit ──► queue ──► consumer
  n         n, s      n        s         s, and from queue to end: response

Queues count their messages themselves.
"""

from __future__ import annotations

from lavant.service.observability.openmetrics import Histogram, MetricFamily

COUNTED = {
    "access": "publications",
    "match": "publications",
    "exit": "notifications",
}
TIMED = {
    "match": "of a batch",
    "queue": "from sent to received",
    "consumer": "from received to acknowledged",
    "response": "from sent to acknowledged",
}
BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)


class Stages:
    """Written by one thread and read by others: figures may be some milliseconds apart."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTED, 0)
        self.times = {stage: Histogram(BOUNDS_S) for stage in TIMED}

    def families(self) -> list[MetricFamily]:
        return [
            MetricFamily(
                "lavant_stage",
                "counter",
                "; ".join(f"{stage}: {what}" for stage, what in COUNTED.items()),
                [({"stage": stage}, count) for stage, count in self.counts.items()],
            ),
            MetricFamily(
                "lavant_stage_seconds",
                "histogram",
                "; ".join(f"{stage}: {what}" for stage, what in TIMED.items()),
                [({"stage": stage}, histogram) for stage, histogram in self.times.items()],
                unit="seconds",
            ),
        ]
