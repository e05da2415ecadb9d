"""What tasks measured, on its way to the manager."""

from __future__ import annotations

from lavant.pipeline.cluster.probes import Probe, ProbeBuffer


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
