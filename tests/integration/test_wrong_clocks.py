"""A real server whose wall clock is wrong when it starts: nothing expires, no lease ends early, and it says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.integration.serving import Served

from lavant import connect
from lavant.broker.machine.start_time import MARK_FILE
from lavant.client.queues import QueueConfig

HOUR_S = 3600
DAY_S = 24 * HOUR_S
_WRONG = """
import sys, time
time_ns, ahead_ns = time.time_ns, int(sys.argv[1]) * 10**9
time.time_ns = lambda: time_ns() + ahead_ns
time.time = lambda: time.time_ns() / 1e9
sys.argv = ["lavant", *sys.argv[2:]]
from lavant.cli import app
app()
"""


class WronglySet(Served):
    """Its clock is so many seconds ahead."""

    def __init__(self, data: Path, ahead_s: int, *options: str) -> None:
        self.data = data
        command = [sys.executable, "-c", _WRONG, str(ahead_s), "serve", "--port", "0", "--data", str(data), *options]
        self._start(command)


def fill(data: Path) -> None:
    """A message that is kept for an hour, and another that is leased for an hour."""
    with Served(data) as server:
        with connect(server.url) as client:
            client.create_queue("kept", QueueConfig(retention_s=HOUR_S)).send(b"one")
            leased = client.create_queue("leased", QueueConfig(visibility_s=HOUR_S, retention_s=10 * DAY_S))
            leased.send(b"two")
            assert len(leased.receive()) == 1
        assert server.stop() == 0


def found(server: Served) -> tuple[list[bytes], list[bytes]]:
    with connect(server.url) as client:
        return (
            [message.body for message in client.queue("kept").receive(visibility_s=0, wait_s=0)],
            [message.body for message in client.queue("leased").receive(visibility_s=0, wait_s=0)],
        )


@pytest.mark.parametrize("ahead_s", [2 * HOUR_S, 5 * DAY_S])
@pytest.mark.parametrize("is_marked", [True, False])
def test_a_clock_that_is_ahead_at_the_start_changes_nothing(tmp_path: Path, ahead_s: int, is_marked: bool) -> None:
    fill(tmp_path)
    if not is_marked:  # as an earlier version leaves it
        (tmp_path / MARK_FILE).unlink()
    with WronglySet(tmp_path, ahead_s) as server:
        assert found(server) == ([b"one"], [])
        with server.http("/metrics") as response:
            metrics = response.read().decode()
        [ahead] = [line for line in metrics.splitlines() if line.startswith("lavant_clock_ahead_seconds ")]
        assert float(ahead.split()[1]) == pytest.approx(-ahead_s, abs=60)
        assert server.stop() == 0
        assert "nothing expires by the clock's" in server.complaints
        assert server.complaints.count("\n") == 1
    with Served(tmp_path) as server:  # and it leaves no trace
        assert found(server) == ([b"one"], [])
        assert server.stop() == 0
        assert server.complaints == ""


def test_a_clock_that_is_accepted_counts_and_the_lead_is_reported_afterwards(tmp_path: Path) -> None:
    fill(tmp_path)
    with WronglySet(tmp_path, 5 * DAY_S, "--clock-jump", "accept") as server:
        assert found(server) == ([], [b"two"])
        assert server.stop() == 0
        assert "the clock is accepted" in server.complaints
    with Served(tmp_path) as server:
        assert server.stop() == 0
        assert "ahead of the clock" in server.complaints


def test_a_clock_that_is_set_back_changes_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    with WronglySet(tmp_path, -5 * DAY_S) as server:
        assert found(server) == ([b"one"], [])
        assert server.stop() == 0
        assert "ahead of the clock" in server.complaints
