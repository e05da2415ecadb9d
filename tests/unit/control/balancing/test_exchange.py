"""PIE: which changes a broker reports, and when its load counts as stable."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.control.balancing.cases import broker_load

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.detection import Stability
from lavant.control.balancing.exchange import PEERS_MAX, PeerReports, ReportSchedule, is_news
from lavant.control.balancing.values import BalancingStatus, LoadReport

OK, BUSY = BalancingStatus.OK, BalancingStatus.BUSY
NOT_AVAILABLE, STABILIZING = BalancingStatus.NOT_AVAILABLE, BalancingStatus.STABILIZING
CONFIG = BalancingConfig()


def report(status: BalancingStatus, subscriptions: int, broker: str = "B1") -> LoadReport:
    return LoadReport(broker=broker, cluster="C", status=status, load=broker_load(subscriptions=subscriptions))


def reported_periods(*reports: LoadReport) -> list[int]:
    """The periods, from 0, in which one of these reports is published."""
    schedule = ReportSchedule(CONFIG.report_period_ms, CONFIG)
    made = [schedule.next(lambda each=each: each, n * CONFIG.report_period_ms) for n, each in enumerate(reports)]  # type: ignore[misc]
    return [period for period, each in enumerate(made) if each is not None]


def test_what_a_broker_can_be_asked_for_is_news() -> None:
    same = {(BUSY, STABILIZING), (STABILIZING, BUSY), *((each, each) for each in BalancingStatus)}
    found = {(one, other) for one in BalancingStatus for other in BalancingStatus if not is_news(one, other)}
    assert found == same


def test_an_available_broker_reports_its_load_when_it_changes() -> None:
    assert reported_periods(report(OK, 100), report(OK, 900), report(OK, 900), report(OK, 100)) == [0, 1, 3]


@pytest.mark.parametrize("status", [BUSY, STABILIZING, NOT_AVAILABLE])
def test_a_broker_that_accepts_nothing_only_keeps_its_entry_alive(status: BalancingStatus) -> None:
    loads = [report(status, count) for count in (100, 900, 100, 900, 100)]
    assert reported_periods(*loads) == [0, 2, 4]


def test_the_load_of_a_broker_that_subscribers_join_is_not_stable() -> None:
    config = msgspec.structs.replace(CONFIG, stable_ms=10_000, stable_window_ms=10_000)

    def is_stable(joins_per_s: int, waited_ms: int) -> bool:
        stability = Stability(config)
        for now_ms in range(0, waited_ms + 1, 1000):
            count = 100 + joins_per_s * now_ms // 1000
            stability.observe(broker_load(subscriptions=count, rate_per_s=0.0, capacity=100.0), now_ms)
        return stability.is_stable(since_ms=0, now_ms=waited_ms)

    assert is_stable(0, 10_000)
    assert not is_stable(2, 10_000)
    assert not is_stable(2, 60_000)
    assert is_stable(2, config.stable_ms_max)


def test_brokers_that_went_away_leave_room_for_others() -> None:
    reports = PeerReports(expiry_ms=1_000)
    for number in range(PEERS_MAX):
        assert reports.receive(report(OK, 1, f"B{number}"), now_ms=0)
    assert not reports.receive(report(OK, 1, "one more"), now_ms=999)
    assert reports.receive(report(OK, 1, "one more"), now_ms=1_000)
    assert list(reports.latest) == ["one more"]
