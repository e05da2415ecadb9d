"""What the HTTP interface and webhooks count, for `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lavant.service.observability.openmetrics import Histogram, MetricFamily

SSE, WEBSOCKET, PULL, WEBHOOK = "sse", "websocket", "pull", "webhook"


class Meters:
    """Counts since the server started."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        """Of the HTTP interface, by the status of the answer."""
        self.publish_seconds = Histogram()
        self.accepted = 0
        self.refused = 0
        self.notifications = Counter({SSE: 0, WEBSOCKET: 0, PULL: 0, WEBHOOK: 0})
        """Handed to clients, by way."""
        self.streams = Counter({SSE: 0, WEBSOCKET: 0})
        self.webhook_results = Counter({"success": 0, "failure": 0})
        self.webhook_seconds = Histogram()

    def families(self) -> Iterator[MetricFamily]:
        yield _counter("lavant_http_answers", "Answers of the HTTP interface.", "status", self.answers)
        yield _histogram(
            "lavant_http_publish_seconds", "From a request to publish to its answer.", self.publish_seconds
        )
        yield MetricFamily(
            "lavant_http_publications_accepted", "counter", "Publications accepted.", [({}, self.accepted)]
        )
        yield MetricFamily("lavant_http_publications_refused", "counter", "Publications refused.", [({}, self.refused)])
        yield _counter("lavant_notifications", "Messages handed to clients over HTTP.", "way", self.notifications)
        yield MetricFamily(
            "lavant_streams", "gauge", "Streams that are open.", [({"kind": k}, n) for k, n in self.streams.items()]
        )
        yield _counter("lavant_webhook_attempts", "Requests to webhooks.", "result", self.webhook_results)
        yield _histogram("lavant_webhook_seconds", "How long webhooks took to answer.", self.webhook_seconds)


def _counter(name: str, help: str, label: str, counts: Counter[str]) -> MetricFamily:
    return MetricFamily(name, "counter", help, [({label: value}, count) for value, count in sorted(counts.items())])


def _histogram(name: str, help: str, histogram: Histogram) -> MetricFamily:
    return MetricFamily(name, "histogram", help, [({}, histogram)], unit="seconds")
