"""Counters of the HTTP interface, for `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lavant.service.observability.openmetrics import Histogram, MetricFamily


class Meters:
    """Counts since the server started."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        """Answers of the HTTP interface by status."""
        self.publish_seconds = Histogram()
        self.accepted = 0
        self.refused = 0

    def families(self) -> Iterator[MetricFamily]:
        yield counter_family("lavant_http_answers", "Answers of the HTTP interface.", "status", self.answers)
        yield histogram_family(
            "lavant_http_publish_seconds", "From a request to publish to its answer.", self.publish_seconds
        )
        yield MetricFamily(
            "lavant_http_publications_accepted", "counter", "Publications accepted.", [({}, self.accepted)]
        )
        yield MetricFamily("lavant_http_publications_refused", "counter", "Publications refused.", [({}, self.refused)])


def counter_family(name: str, help: str, label: str, counts: Counter[str]) -> MetricFamily:
    return MetricFamily(name, "counter", help, [({label: value}, count) for value, count in sorted(counts.items())])


def histogram_family(name: str, help: str, histogram: Histogram) -> MetricFamily:
    return MetricFamily(name, "histogram", help, [({}, histogram)], unit="seconds")
