"""Subscribers and publishers of the demonstration, each with its own connection and thread."""

from __future__ import annotations

import threading
import time
from typing import Any

from lavant import connect
from lavant.broker.filters import parse
from lavant.client.subscriptions.notification import Notification
from lavant.core.publications.attributes import AttributeValue
from lavant.simulation.workloads.stock import StockWorkload

SYMBOLS = 40
BATCHES_PER_S = 20

WANTED = {
    "ann": "symbol = 'AAB'",
    "bob": "symbol in ('AAC', 'AAD', 'AAE') and volume > 100000",
    "cem": "high > 60 and low < 70",
    "dia": "symbol like 'AB%' or volume > 1500000",
}
"""Filters by subscriber."""

Quote = dict[str, AttributeValue]


class DemoSubscriber:
    """Records notifications and their delays."""

    def __init__(self, url: str, name: str, filter: str) -> None:
        self.name, self.filter = name, filter
        self._parsed = parse(filter)
        self.ids: list[str] = []
        self.delays_ms: list[float] = []
        self.latest: Notification | None = None
        self._client = connect(url)
        self._subscription = self._client.subscribe(filter, name=name, handler=self._handle)

    def wants(self, quote: Quote) -> bool:
        """Whether the filter matches the quote (the oracle)."""
        return self._parsed.matches(quote)

    def close(self) -> None:
        self._subscription.close()
        self._client.close()

    def _handle(self, notification: Notification) -> None:
        self.delays_ms.append(1e3 * (time.time() - float(notification.attributes["sent_s"])))
        self.ids.append(notification.id)
        self.latest = notification


class DemoPublisher(threading.Thread):
    """Publishes quotes at a steady rate and records the accepted ones."""

    def __init__(self, url: str, number: int, *, rate: float, seconds: float) -> None:
        super().__init__(daemon=True)
        self._client = connect(url)
        self._number = number
        self._each = max(1, round(rate / BATCHES_PER_S))
        self._rounds = max(1, round(rate * seconds / self._each))
        self._every_s = self._each / rate
        self.accepted: dict[str, Quote] = {}

    def run(self) -> None:
        workload = StockWorkload(symbols=SYMBOLS)
        began = time.monotonic()
        with self._client as client:
            for round_ in range(self._rounds):
                time.sleep(max(0.0, began + round_ * self._every_s - time.monotonic()))
                quotes: list[dict[str, Any]] = workload.publications(
                    self._each, stream=1000 * self._number + round_
                ).to_dicts()
                now_s = time.time()
                ids = client.publish_many([{**quote, "sent_s": now_s} for quote in quotes])
                self.accepted.update(zip(ids, quotes, strict=True))
