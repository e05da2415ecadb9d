"""Samples of live publications: the bits are those that trying every filter gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lavant.broker.filters import Filter
from lavant.broker.matching.interface import Matches
from lavant.broker.subscriptions.parsing import ENCRYPTED, PLAIN, ParsedPublication
from lavant.broker.subscriptions.routing import FanOutBatch, QueueRoutes
from lavant.control.balancing import PressSample
from lavant.service.federation.balancing.press_sampler import PressSampler, covering_text

LINK = 1 << 31
FILTERS = ["x > 3", "x <= 3", "x = 5", "x between 2 and 6", "true", "y = 1"]


def publication(content: Any, scheme: str = PLAIN) -> ParsedPublication:
    return ParsedPublication("id", scheme, content, b"12345678")


def fan_out(filters: dict[int, str], contents: list[dict[str, Any]]) -> FanOutBatch:
    """The matches of filters by queue, as an engine gives them."""
    routes = QueueRoutes()
    for number, serial in enumerate(filters):
        routes.add(number, serial)
    found = [
        [number for number, text in enumerate(filters.values()) if Filter.parse(text).matches(each)]
        for each in contents
    ]
    ids = np.array([number for each in found for number in each], np.uint32)
    [batch] = routes.fan_out(Matches(np.cumsum([0, *map(len, found)]), ids), 1 << 30)
    return batch


def bits(sample: PressSample, vector: Any) -> list[bool]:
    unpacked = np.unpackbits(np.ascontiguousarray(vector).view(np.uint8), bitorder="little")
    return [bool(bit) for bit in unpacked[: sample.publications]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(FILTERS), max_size=6),
    st.permutations(range(20)),
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), max_size=6),
    st.lists(st.sampled_from(FILTERS), max_size=3),
    st.integers(0, 12),
)
def test_bits_say_which_filters_match(
    own: list[str], serials: list[int], batches: list[list[int]], covering: list[str], wanted: int
) -> None:
    queues = serials[: len(own)]
    sampler = PressSampler(
        "s",
        [f"n{row}" for row in range(len(own))],
        queues,
        {"B2": [covering_text("", each) for each in covering]},
        wanted,
    )
    filters = {**dict(zip(queues, own, strict=True)), LINK: "true", 77: "x > 0"}
    for batch in batches:
        contents = [{"x": x} for x in batch]
        sampler.see("", [publication(each) for each in contents], fan_out(filters, contents))
    seen = [{"x": x} for batch in batches for x in batch][:wanted]
    sample = sampler.sample(5.0)
    assert sampler.is_complete == (len(seen) == wanted)
    assert sample.publications == len(seen)
    assert sample.publication_bytes == (8 if seen else 0)
    for row, text in enumerate(own):
        assert bits(sample, sample.vectors[row]) == [Filter.parse(text).matches(each) for each in seen]
    covered = [any(Filter.parse(text).matches(each) for text in covering) for each in seen]
    assert bits(sample, sample.peers["B2"]) == covered


def test_covering_sets_are_compared_within_a_namespace() -> None:
    sampler = PressSampler("s", [], [], {"B2": [covering_text("a", "x = 1")], "B3": [covering_text("b", "true")]}, 9)
    for namespace in ("", "a", "b"):
        sampler.see(namespace, [publication({"x": 1})], FanOutBatch.nothing(1))
    sample = sampler.sample(1.0)
    assert bits(sample, sample.peers["B2"]) == [False, True, False]
    assert bits(sample, sample.peers["B3"]) == [False, False, True]


def test_what_cannot_be_compared_counts_as_not_covered() -> None:
    sampler = PressSampler("s", [], [], {"B2": [covering_text("", "x >")], "B3": [covering_text("", "true")]}, 9)
    sampler.see("", [publication([0.5, 0.5], ENCRYPTED)], FanOutBatch.nothing(1))
    sampler.see("", [publication({"x": 1})], FanOutBatch.nothing(1))
    sample = sampler.sample(1.0)
    assert bits(sample, sample.peers["B2"]) == [False, False]
    assert bits(sample, sample.peers["B3"]) == [False, True]
