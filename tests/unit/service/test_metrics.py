"""What a server tells about itself."""

from __future__ import annotations

import re

from tests.unit.service.wiring import Wiring, in_loop

from lavant.broker.queues.commands import CreateQueue, Entry, Receive, Send
from lavant.broker.queues.config import QueueConfig
from lavant.service.meters import Meters
from lavant.service.metrics import Metrics

LABEL = r"[a-z]+=\"[^\"]*\""
SAMPLE = re.compile(rf"(?P<name>[a-z_]+)(?:\{{{LABEL}(?:,{LABEL})*\}})? [0-9.]+")
SUFFIXES = {"counter": {"_total"}, "gauge": {""}, "histogram": {"_bucket", "_count", "_sum"}}


@in_loop
async def test_figures_of_queues_and_server_are_there() -> None:
    wiring = Wiring()
    wiring.queues.handle(CreateQueue("orders", QueueConfig()), wiring.queues.now_ms)
    wiring.queues.handle(Send("orders", [Entry(b"1234"), Entry(b"5678")]), wiring.queues.now_ms)
    wiring.queues.handle(Receive("orders"), wiring.queues.now_ms + 2000)
    lines = Metrics(wiring.queues, wiring.store, wiring.service).text().splitlines()
    for line in (
        'lavant_queue_visible{queue="orders"} 1',
        'lavant_queue_in_flight{queue="orders"} 1',
        'lavant_queue_bytes{queue="orders"} 8',
        'lavant_queue_oldest_age_seconds{queue="orders"} 2.0',
        'lavant_queue_sent_total{queue="orders"} 2',
        "lavant_stored_bytes 8",
        "lavant_journal_records_total 1",
        "lavant_storage_full 0",
    ):
        assert line in lines


@in_loop
async def test_every_sample_belongs_to_the_family_above_it_and_names_its_unit() -> None:
    wiring = Wiring()
    for queue in ("a", "b"):
        wiring.queues.handle(CreateQueue(queue, QueueConfig()), 0)
    meters = Meters()
    meters.answers["200"] += 1
    meters.publish_seconds.add(0.003)
    *lines, last = Metrics(wiring.queues, wiring.store, wiring.service, [meters.families]).text().splitlines()
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
