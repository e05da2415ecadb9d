"""What a server tells about itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from tests.unit.service.wiring import Wiring, in_loop

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, Receive, Send, SendEntry
from lavant.service.delivery.registry import Deliveries
from lavant.service.observability import metrics as module
from lavant.service.observability.counters import Meters
from lavant.service.observability.metrics import FRESH_S_MAX, SLICE_S, Metrics
from lavant.service.observability.openmetrics import MetricFamily

LABEL = r"[a-z]+=\"[^\"]*\""
SAMPLE = re.compile(rf"(?P<name>[a-z_]+)(?:\{{{LABEL}(?:,{LABEL})*\}})? [0-9.]+")
SUFFIXES = {"counter": {"_total"}, "gauge": {""}, "histogram": {"_bucket", "_count", "_sum"}}


@in_loop
async def test_figures_of_queues_and_server_are_there() -> None:
    wiring = Wiring()
    wiring.queues.handle(CreateQueue("orders", QueueConfig()), wiring.queues.now_ms)
    wiring.queues.handle(Send("orders", [SendEntry(b"1234"), SendEntry(b"5678")]), wiring.queues.now_ms)
    wiring.queues.handle(Receive("orders"), wiring.queues.now_ms + 2000)
    lines = (await Metrics(wiring.queues, wiring.store, wiring.service).text()).decode().splitlines()
    for line in (
        'lavant_queue_visible{queue="orders"} 1',
        'lavant_queue_in_flight{queue="orders"} 1',
        'lavant_queue_bytes{queue="orders"} 8',
        'lavant_queue_oldest_age_seconds{queue="orders"} 2.0',
        'lavant_queue_sent_total{queue="orders"} 2',
        'lavant_namespace_queues{namespace=""} 1',
        'lavant_namespace_visible{namespace=""} 1',
        'lavant_namespace_in_flight{namespace=""} 1',
        'lavant_namespace_bytes{namespace=""} 8',
        "lavant_queues 1",
        "lavant_queues_omitted 0",
        "lavant_stored_bytes 8",
        "lavant_journal_records_total 1",
        "lavant_storage_full 0",
        "lavant_kernels_loaded 1",
    ):
        assert line in lines


@in_loop
async def test_every_sample_belongs_to_the_family_above_it_and_names_its_unit() -> None:
    wiring = Wiring()
    for queue in ("a", "b"):
        wiring.queues.handle(CreateQueue(queue, QueueConfig()), 0)
    meters, deliveries = Meters(), Deliveries(wiring.service)
    meters.answers["200"] += 1
    meters.publish_seconds.add(0.003)
    text = await Metrics(wiring.queues, wiring.store, wiring.service, [meters.families, deliveries.families]).text()
    *lines, last = text.decode().splitlines()
    assert last == "# EOF"
    families: list[str] = []
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            families.append(name)
            samples = {name + suffix for suffix in SUFFIXES[kind]}
        elif line.startswith("# UNIT "):
            assert name.endswith(f"_{line.split(' ')[3]}")
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match["name"] in samples
    assert len(families) == len(set(families)) > 10
    assert 'lavant_http_publish_seconds_bucket{le="0.0025"} 0' in lines
    assert 'lavant_http_publish_seconds_bucket{le="0.005"} 1' in lines
    assert "lavant_http_publish_seconds_count 1" in lines


def with_queues(count: int, namespaces: int = 1) -> Wiring:
    """Queue n holds n % 7 messages."""
    wiring = Wiring()
    for number in range(count):
        name = f"n{number % namespaces}/q{number}" if number % namespaces else f"q{number}"
        wiring.queues.handle(CreateQueue(name, QueueConfig()), 0)
        if number % 7:
            wiring.queues.handle(Send(name, [SendEntry(b"x")] * (number % 7)), 0)
    return wiring


def values(text: bytes, name: str) -> dict[str, float]:
    """By the value of the only label."""
    found = re.findall(rf'^{name}\{{[a-z]+="([^"]*)"\}} (\S+)$', text.decode(), re.MULTILINE)
    return {label: float(value) for label, value in found}


@in_loop
async def test_of_too_many_queues_those_with_the_most_messages_are_shown_and_all_are_in_the_sums() -> None:
    wiring = with_queues(60, namespaces=3)
    text = await Metrics(wiring.queues, wiring.store, wiring.service, queues_max=10).text()
    shown = values(text, "lavant_queue_visible")
    assert len(shown) == 10
    assert sorted(shown.values()) == sorted(number % 7 for number in range(60))[-10:]
    assert b"\nlavant_queues 60\n" in text
    assert b"\nlavant_queues_omitted 50\n" in text
    assert values(text, "lavant_namespace_queues") == {"": 20, "n1": 20, "n2": 20}
    held = values(text, "lavant_namespace_visible")
    assert held == {
        namespace: sum(number % 7 for number in range(60) if number % 3 == remainder)
        for remainder, namespace in enumerate(("", "n1", "n2"))
    }
    few = await Metrics(wiring.queues, wiring.store, wiring.service, queues_max=2).text()
    assert len(values(few, "lavant_namespace_queues")) == 2
    assert b"\nlavant_namespaces_omitted 1\n" in few
    none = await Metrics(wiring.queues, wiring.store, wiring.service, queues_max=0).text()
    assert not values(none, "lavant_queue_visible")


class Ticking:
    """A clock on which each look takes a while: as if so much was done between two looks."""

    def __init__(self, tick_s: float) -> None:
        self.now_s = 0.0
        self.tick_s = tick_s

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


@in_loop
async def test_the_loop_goes_on_while_a_text_is_made() -> None:
    wiring = with_queues(1000)
    clock = Ticking(SLICE_S)
    metrics = Metrics(wiring.queues, wiring.store, wiring.service, clock=clock)
    turns, asked = 0, asyncio.ensure_future(metrics.text())
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 1000 / module._AT_ONCE * 12  # one for each part of each family


@in_loop
async def test_many_who_ask_get_one_text_while_it_is_fresh_and_one_who_leaves_disturbs_nobody() -> None:
    wiring = with_queues(1000)
    clock = Ticking(SLICE_S)
    metrics = Metrics(wiring.queues, wiring.store, wiring.service, clock=clock)
    asked = [asyncio.ensure_future(metrics.text()) for _ in range(4)]
    await asyncio.sleep(0)
    asked[0].cancel()
    texts = await asyncio.gather(*asked[1:])
    assert metrics.renderings == 1
    assert len({id(text) for text in texts}) == 1
    clock.tick_s = 0.0
    assert await metrics.text() is texts[0]
    clock.now_s += FRESH_S_MAX
    assert await metrics.text() is not texts[0]
    assert metrics.renderings == 2


@in_loop
async def test_what_is_made_quickly_is_made_anew_soon() -> None:
    wiring = with_queues(1)
    clock = Ticking(0.0)
    metrics = Metrics(wiring.queues, wiring.store, wiring.service, clock=clock)
    first = await metrics.text()
    await wiring.create("another")
    assert await metrics.text() != first


@in_loop
async def test_a_mistake_of_one_family_is_not_remembered() -> None:
    wiring = with_queues(1)
    deliveries = Deliveries(wiring.service)
    is_broken = True

    def families() -> Iterator[MetricFamily]:
        if is_broken:
            raise RuntimeError("a mistake")
        return deliveries.families()

    metrics = Metrics(wiring.queues, wiring.store, wiring.service, [families])
    with pytest.raises(RuntimeError):
        await metrics.text()
    is_broken = False
    assert b"lavant_notifications" in await metrics.text()
