"""What `lavant doctor` makes of the figures of a server."""

from __future__ import annotations

import pytest

from lavant.cli.reports.doctor import _server_disk

ROOM = {"lavant_disk_free_bytes": float(3 << 30), "lavant_storage_full": 0.0}


@pytest.mark.parametrize(
    ("metrics", "verdict", "said"),
    [
        (ROOM, "ok", "3.0 GiB free, a commit took 0.00 ms on average"),
        (ROOM | {"lavant_commit_seconds_sum": 0.02, "lavant_commit_seconds_count": 10.0}, "ok", "took 2.00 ms"),
        (ROOM | {"lavant_commit_seconds_sum": 8.0, "lavant_commit_seconds_count": 10.0}, "note", "took 800.00 ms"),
        (ROOM | {"lavant_storage_full": 1.0}, "bad", "full: nothing new is accepted"),
    ],
)
def test_a_full_or_slow_disk_of_a_server_is_found(metrics: dict[str, float], verdict: str, said: str) -> None:
    [found] = _server_disk(metrics)
    assert found.verdict == verdict
    assert said in found.said
    assert bool(found.remedy) is (verdict != "ok")


def test_a_server_without_a_disk_has_none_to_be_examined() -> None:
    assert _server_disk({"lavant_storage_full": 0.0}) == []
