"""PIE: when to publish a load report, and what others have reported (Section 3.3.1).

A report is due every period. It is published if an index has changed by more than its threshold, if the balanced set
or what others may expect of this broker has changed, or as a keep-alive: after two periods without one, since peers
forget a broker after three. A broker that accepts nothing, and did not before, only publishes keep-alives: its load has
no effect on what others decide.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.values import BalancingStatus, LoadReport

PEERS_MAX = 1000
"""Brokers whose reports are kept; a cluster is far smaller."""

KEEP_ALIVE_PERIODS = 2


_REFUSING = frozenset({BalancingStatus.BUSY, BalancingStatus.STABILIZING})


def is_news(status: BalancingStatus, before: BalancingStatus) -> bool:
    """Whether a change of status matters to others. BUSY and STABILIZING are the same to them: the broker refuses."""
    return status != before and not {status, before} <= _REFUSING


class ReportSchedule:
    """Decides when the own report is published."""

    def __init__(self, period_ms: int, config: BalancingConfig) -> None:
        self._period_ms = period_ms
        self._config = config
        self._last: LoadReport | None = None
        self._sent_ms = 0
        self.due_ms: int | None = None

    def next(self, make: Callable[[], LoadReport], now_ms: int) -> LoadReport | None:
        """The report with its number if it is to be published now."""
        if self.due_ms is not None and now_ms < self.due_ms:
            return None
        self.due_ms = now_ms + self._period_ms
        report = make()
        if self._last is not None and not self._has_news(report, self._last, now_ms):
            return None
        return self._publish(report, now_ms)

    def at_once(self, report: LoadReport, now_ms: int) -> LoadReport:
        """The report with its number, whether or not it is due."""
        self.due_ms = now_ms + self._period_ms
        return self._publish(report, now_ms)

    def _publish(self, report: LoadReport, now_ms: int) -> LoadReport:
        # The time in the number keeps it growing over a restart.
        number = max(now_ms, 0 if self._last is None else self._last.number + 1)
        self._last = msgspec.structs.replace(report, number=number)
        self._sent_ms = now_ms
        return self._last

    def _has_news(self, report: LoadReport, last: LoadReport, now_ms: int) -> bool:
        if is_news(report.status, last.status) or now_ms - self._sent_ms >= KEEP_ALIVE_PERIODS * self._period_ms:
            return True
        if report.status is not BalancingStatus.OK:
            return False
        if report.balanced_with != last.balanced_with:
            return True
        config, load, before = self._config, report.load, last.load
        ratio = max(
            abs(load.input_utilization - before.input_utilization),
            abs(load.output_utilization - before.output_utilization),
        )
        delay = abs(load.matching_delay_s - before.matching_delay_s) / config.delay_unit_s
        return ratio > config.report_ratio_threshold or delay > config.report_delay_threshold


class PeerReports:
    """The latest report of each peer, until it expires."""

    def __init__(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms
        self._reports: dict[str, tuple[int, LoadReport]] = {}

    def receive(self, report: LoadReport, now_ms: int) -> bool:
        """Keeps a report unless a later one of the same broker is known; returns whether it was kept."""
        known = self._reports.get(report.broker)
        if known is not None and known[1].number >= report.number and now_ms - known[0] < self._expiry_ms:
            return False
        if known is None and len(self._reports) >= PEERS_MAX:
            self.expire(now_ms)
            if len(self._reports) >= PEERS_MAX:
                return False
        self._reports[report.broker] = (now_ms, report)
        return True

    def expire(self, now_ms: int) -> None:
        self._reports = {
            broker: (time_ms, report)
            for broker, (time_ms, report) in self._reports.items()
            if now_ms - time_ms < self._expiry_ms
        }

    def forget_cluster(self, cluster: str) -> None:
        self._reports = {broker: known for broker, known in self._reports.items() if known[1].cluster != cluster}

    def received_ms(self, broker: str) -> int | None:
        """When the latest report of a broker arrived."""
        known = self._reports.get(broker)
        return None if known is None else known[0]

    @property
    def latest(self) -> dict[str, LoadReport]:
        """By broker, in the order of names."""
        return {broker: self._reports[broker][1] for broker in sorted(self._reports)}
