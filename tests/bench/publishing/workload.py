"""What is published, and what is wanted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from lavant.simulation.workloads.stock import SHARES, StockWorkload

QUOTES = 5000
TOPICS = 8
TOPIC_BYTES = 200


def quotes() -> list[dict[str, Any]]:
    return StockWorkload().publications(QUOTES, stream=3).to_dicts()


def stock_filters(count: int) -> Iterator[str]:
    """As texts, by the templates and probabilities of `StockWorkload`."""
    chance = random.Random(1)
    samples = StockWorkload().publications(4000, stream=99).to_dicts()
    for _ in range(count):
        quote = chance.choice(samples)
        symbol = f"class = 'STOCK' and symbol = '{quote['symbol']}'"
        templates = (
            f"{symbol} and high > {quote['high']}",
            f"{symbol} and low < {quote['low']}",
            f"{symbol} and volume > {quote['volume']}",
            symbol,
            f"class = 'STOCK' and volume > {quote['volume']}",
            "class = 'STOCK'",
        )
        yield chance.choices(templates, SHARES)[0]


def topic_message(number: int) -> dict[str, Any]:
    return {"topic": f"T{number % TOPICS}", "text": "x" * TOPIC_BYTES}
