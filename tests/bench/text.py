"""Filters of text: matching in batches and one by one, and subscribing from texts.

By processor time of one core, but for one event, for which that clock is too coarse.
"""

from __future__ import annotations

import numpy as np
from tests.bench.timing import latency_us, least_processor_time

from lavant.broker.matching import PlainMatcher
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.simulation.workloads.text import TextWorkload

COLUMNS = ("text, half with `like`, 100,000 filters", "measured", "goal")
BATCH = 1000
ROUNDS = 10


def measure_text() -> list[list[str]]:
    workload = TextWorkload()
    matcher = PlainMatcher()
    matcher.add(np.arange(workload.subscriptions), encode_filters(workload.filters()))
    events = workload.publications(BATCH)
    matches = len(matcher.match(events).ids) / BATCH
    batch_s = least_processor_time(lambda: matcher.match(events), ROUNDS)
    ones = [events.slice(place, 1) for place in range(BATCH)]
    for one in ones:
        matcher.match(one)
    median_us, _ = latency_us(lambda place: matcher.match(ones[place]), BATCH)
    others = [TextWorkload(seed=seed).filters() for seed in (2, 3, 4)]  # no text is known from a round before
    subscribing_us = 1e6 * least_processor_time(lambda: _subscribe(others.pop()), len(others)) / workload.subscriptions
    return [
        ["matches of an event", f"{matches:,.0f}", ""],
        [f"events per second of processor time, batches of {BATCH:,}", f"{BATCH / batch_s:,.0f}", "30,000"],
        [f"one event, median of {BATCH:,} by the clock, µs", f"{median_us:,.0f}", "150"],
        ["subscribing from texts, µs of processor time a filter", f"{subscribing_us:.1f}", "15"],
    ]


def _subscribe(texts: list[str]) -> None:
    PlainMatcher().add(np.arange(len(texts)), encode_filters(texts))
