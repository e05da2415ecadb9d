"""What tasks measured, handed to the manager as small files."""

from __future__ import annotations

from pathlib import Path

from lavant.pipeline.cluster.probes import Probe, take_probes, write_probes


def probe(host: int, slice: int, cpu_s: float = 0.0) -> Probe:
    return Probe(host=host, slice=slice, cpu_s=cpu_s)


def test_a_probe_sums_up_what_it_is_told_but_the_memory_is_the_latest() -> None:
    measured = probe(1, 2)
    measured.add(cpu_s=0.5, publications=10, matches=3, memory_bytes=100)
    measured.add(cpu_s=0.25, publications=5, matches=0, memory_bytes=80)
    assert measured == Probe(host=1, slice=2, cpu_s=0.75, publications=15, matches=3, memory_bytes=80)


def test_probes_are_taken_once_oldest_batch_first(tmp_path: Path) -> None:
    for batch, host in [(100, 0), (9, 1), (9, 0), (20, 0)]:
        write_probes(str(tmp_path), batch, [probe(host, batch), probe(host, batch + 1)])
    taken = take_probes(tmp_path)
    assert [(each.slice, each.host) for each in taken] == [
        *[(9, 0), (10, 0), (9, 1), (10, 1)],
        *[(20, 0), (21, 0), (100, 0), (101, 0)],
    ]
    assert take_probes(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_repeated_task_replaces_its_own_probes(tmp_path: Path) -> None:
    write_probes(str(tmp_path), 7, [probe(0, 1, cpu_s=1.0)])
    write_probes(str(tmp_path), 7, [probe(0, 1, cpu_s=2.0)])
    assert take_probes(tmp_path) == [probe(0, 1, cpu_s=2.0)]


def test_a_task_without_slices_writes_nothing(tmp_path: Path) -> None:
    write_probes(str(tmp_path), 7, [])
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_task_left_half_written_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000007-0000.4711").write_bytes(b'[{"host":')
    write_probes(str(tmp_path), 8, [probe(0, 1)])
    assert take_probes(tmp_path) == [probe(0, 1)]


def test_a_manager_without_tasks_yet_takes_nothing(tmp_path: Path) -> None:
    assert take_probes(tmp_path / "probes") == []


def test_probes_of_another_store_do_not_count(tmp_path: Path) -> None:
    for host, store in enumerate(("mine", "other", "")):
        write_probes(str(tmp_path), 7, [Probe(host=host, slice=1, store=store)])
    assert [each.store for each in take_probes(tmp_path, "mine")] == ["mine", ""]
    assert take_probes(tmp_path) == []
