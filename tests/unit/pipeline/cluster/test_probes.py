"""What tasks measured, on its way to the manager."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.pipeline.cluster.probes import Probe, ProbeBuffer, ProbeSampler


def probe(host: int, slice: int, cpu_s: float = 0.0) -> Probe:
    return Probe(host=host, slice=slice, cpu_s=cpu_s)


def test_a_probe_sums_up_what_it_is_told_but_the_memory_is_the_largest() -> None:
    measured = probe(1, 2)
    measured.add(cpu_s=0.5, publications=10, matches=3, memory_bytes=100)
    measured.add(cpu_s=0.25, publications=5, matches=0, memory_bytes=80)
    assert measured == Probe(host=1, slice=2, cpu_s=0.75, publications=15, matches=3, memory_bytes=100)


def test_probes_are_taken_once_in_the_order_of_the_batches() -> None:
    buffer = ProbeBuffer()
    assert buffer.take() == []
    buffer.put([probe(0, 9), probe(1, 9)])
    buffer.put([probe(0, 10)])
    assert [(each.host, each.slice) for each in buffer.take()] == [(0, 9), (1, 9), (0, 10)]
    assert buffer.take() == []


def test_probes_of_another_store_do_not_count() -> None:
    buffer = ProbeBuffer()
    buffer.put(Probe(host=0, slice=1, store=store) for store in ("mine", "other", ""))
    assert [each.store for each in buffer.take("mine")] == ["mine", ""]
    assert buffer.take() == []


def test_a_batch_under_way_is_awaited_until_a_batch_has_been_measured() -> None:
    buffer = ProbeBuffer()
    assert not buffer.is_awaiting()
    buffer.begin()
    assert buffer.is_awaiting()
    with buffer.batch():  # the next one overlaps with it
        buffer.put([probe(0, 9)])
        buffer.end()
        assert not buffer.is_awaiting()  # the first one's probes are there
        buffer.take()
        assert buffer.is_awaiting()
    assert not buffer.is_awaiting()


def test_a_failed_batch_is_not_awaited_for_ever() -> None:
    buffer = ProbeBuffer()
    with pytest.raises(OSError, match="lost"), buffer.batch():
        raise OSError("an executor was lost")
    assert not buffer.is_awaiting()


@given(
    batches=st.lists(st.tuples(st.integers(0, 400), st.integers(50, 5000)), min_size=1, max_size=20),
    tick_ms=st.integers(50, 2000),
)
def test_a_busy_host_never_looks_idle_however_long_batches_are(batches: list[tuple[int, int]], tick_ms: int) -> None:
    """Batches with short pauses, each with half of a core; ticks at any distance."""
    buffer = ProbeBuffer()
    sampler = ProbeSampler(buffer, 500)
    now_ms, next_tick_ms = 0, 0
    shares, spans = [], []

    def tick_until(end_ms: int) -> None:
        nonlocal next_tick_ms
        while next_tick_ms < end_ms:
            sample = sampler.sample("", next_tick_ms)
            if sample is not None:
                shares.append(sum(each.cpu_s for each in sample[0]) / sample[1])
                spans.append(sample[1])
            next_tick_ms += tick_ms

    for pause_ms, batch_ms in batches:
        now_ms += pause_ms
        tick_until(now_ms)
        buffer.begin()
        now_ms += batch_ms
        tick_until(now_ms)
        buffer.put([probe(0, 0, cpu_s=batch_ms / 2000)])
        buffer.end()
    tick_until(now_ms + 1)
    assert all(share > 0 for share in shares)
    assert all(span >= 0.5 for span in spans)


def test_a_host_without_work_is_idle() -> None:
    sampler = ProbeSampler(ProbeBuffer(), 500)
    assert [sampler.sample("", now_ms) for now_ms in (0, 400, 600, 900)] == [None, None, ([], 0.6), None]


def test_a_clock_that_goes_back_starts_anew() -> None:
    buffer = ProbeBuffer()
    sampler = ProbeSampler(buffer, 500)
    assert sampler.sample("", 10_000) is None
    buffer.put([probe(0, 1)])
    assert sampler.sample("", 4000) is None
    assert sampler.sample("", 5000) == ([], 1.0)
