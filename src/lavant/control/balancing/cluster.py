"""The machine of a cluster's head: balances its cluster with neighbouring ones (Sections 3.3.1.2, 3.3.2.2 and 3.4.3).

It reports the mean load of its edge brokers to the neighbouring heads (global PIE). If a neighbour's load is lower by
more than the global thresholds, or an overloaded edge broker asks for help, it asks that head for a session. In a
session the edge brokers of both clusters watch each other's reports, and balance among themselves as if they were one
cluster. The session ends when each of them names all the others as balanced or none has moved anything for a while,
when edges go on asking for help, or at its deadline.

A cluster with an overloaded edge broker passes on the reports of its neighbours, so that it is no barrier between
others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.detection import Thresholds, jitter_ms
from lavant.control.balancing.exchange import PeerReports, ReportSchedule
from lavant.control.balancing.states import CLUSTER, StatusEvent, next_status
from lavant.control.balancing.values import (
    BalancingEffect,
    BalancingStatus,
    BalancingStimulus,
    BrokerLoad,
    FollowCluster,
    HelpRequest,
    LoadIndex,
    LoadReport,
    MessageArrived,
    SendControl,
    SessionDone,
    SessionReply,
    SessionRequest,
    WatchCluster,
)

QUIET_TURNS_MAX = 5
"""Detections in a row without any edge broker in a session, after which a session of clusters ends."""

_QUIET = frozenset({BalancingStatus.OK, BalancingStatus.NOT_AVAILABLE})


class _ClusterSession(msgspec.Struct, kw_only=True):
    """A session with another cluster: asked, then open."""

    session: str
    peer: str
    deadline_ms: int
    is_open: bool = False
    others: Sequence[str] = ()
    """Heads to ask next if this one refuses."""
    help_requests: int = 0
    quiet_turns: int = 0


class ClusterBalancer:
    """Balances a cluster, named after its head, with those of `neighbours`, the heads next to it.

    `is_on` set to False stops new sessions and reports, and ends a session that runs; reports of others are noted.
    """

    def __init__(
        self,
        head: str,
        *,
        edges: Sequence[str],
        neighbours: Sequence[str],
        config: BalancingConfig,
    ) -> None:
        self.head = head
        self.config = config
        self.status = BalancingStatus.OK
        self.is_on = True
        self.sessions = 0
        """Sessions that this head has begun."""
        self._edges = tuple(edges)
        self._neighbours = tuple(neighbours)
        self._thresholds = Thresholds.of(config, is_global=True)
        self._own = PeerReports(config.report_expiry_ms)
        self._theirs = PeerReports(config.report_expiry_ms)
        self._clusters = PeerReports(config.cluster_report_expiry_ms)
        self._reports = ReportSchedule(config.cluster_report_period_ms, config)
        self._session: _ClusterSession | None = None
        self._left: str | None = None
        self._detect_ms: int | None = None
        self._turns = 0

    @property
    def session(self) -> str | None:
        """The session that this cluster takes part in, or has asked for."""
        return None if self._session is None else self._session.session

    @property
    def partner(self) -> str | None:
        """The head of the cluster that this one is balancing with."""
        return self._session.peer if self._session is not None and self._session.is_open else None

    @property
    def clusters(self) -> dict[str, LoadReport]:
        """The latest reports of other clusters, by their heads."""
        return self._clusters.latest

    def handle(self, stimulus: BalancingStimulus, now_ms: int) -> list[BalancingEffect]:
        """Takes a message or the time, and returns what the world must do."""
        effects: list[BalancingEffect] = []
        if isinstance(stimulus, MessageArrived):
            self._message(stimulus.message, now_ms, effects)
        self._expire(now_ms, effects)
        if self._detect_ms is None:
            self._detect_ms = now_ms + self._pause_ms()
        elif now_ms >= self._detect_ms:
            self._detect_ms = now_ms + self._pause_ms()
            self._detect(now_ms, effects)
        if self._knows_own_load:
            report = self._reports.next(self._report, now_ms)
            if report is not None:
                effects.extend(SendControl(message=report, to=head) for head in self._neighbours)
        return effects

    def wakeup_ms(self) -> int | None:
        session = None if self._session is None else self._session.deadline_ms
        report = self._reports.due_ms if self._knows_own_load else None
        times = (self._detect_ms, report, session)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    # Reports.

    @property
    def _knows_own_load(self) -> bool:
        """A head that is on, and has heard of an edge broker of its own lately; one that has just started has not."""
        return self.is_on and bool(self._own.latest)

    def _report(self) -> LoadReport:
        load = mean_load([report.load for report in self._own.latest.values()])
        return LoadReport(broker=self.head, cluster=self.head, status=self.status, load=load, is_of_cluster=True)

    def _message(self, message: object, now_ms: int, effects: list[BalancingEffect]) -> None:
        match message:
            case LoadReport():
                self._reported(message, now_ms, effects)
            case SessionRequest():
                self._requested(message, now_ms, effects)
            case SessionReply():
                self._replied(message, now_ms, effects)
            case SessionDone():
                session = self._session
                if session is not None and (session.session, session.peer) == (message.session, message.sender):
                    self._close(now_ms, effects)
            case HelpRequest() if message.sender in self._edges:
                self._help(now_ms, effects)

    def _reported(self, report: LoadReport, now_ms: int, effects: list[BalancingEffect]) -> None:
        if not report.is_of_cluster:
            (self._own if report.cluster == self.head else self._theirs).receive(report, now_ms)
            self._examine(now_ms)
            return
        is_new = report.broker != self.head and self._clusters.receive(report, now_ms)
        if is_new and self.is_on and self.status is BalancingStatus.NOT_AVAILABLE:
            effects.extend(SendControl(message=report, to=head) for head in self._neighbours if head != report.broker)

    def _examine(self, now_ms: int) -> None:
        self._own.expire(now_ms)
        statuses = {report.status for report in self._own.latest.values()}
        is_overloaded = BalancingStatus.NOT_AVAILABLE in statuses
        event = StatusEvent.OVERLOADED if is_overloaded else StatusEvent.RELIEVED
        self.status = next_status(CLUSTER, self.status, event)

    # Detection.

    def _pause_ms(self) -> int:
        self._turns += 1
        config = self.config
        return jitter_ms(self.head, self._turns, config.cluster_detection_ms_min, config.cluster_detection_ms_max)

    def _detect(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        self._examine(now_ms)
        self._clusters.expire(now_ms)
        if self._session is not None:
            if self._session.is_open and (not self.is_on or self._is_over(self._session, now_ms)):
                self._end(now_ms, effects)
            elif self._session.is_open:
                self._follow(self._session.peer, effects, is_on=True)  # renewed: a message may be lost, a head die
            return
        if not self._knows_own_load:
            return
        clusters = self._clusters.latest
        if self.status is BalancingStatus.OK and any(
            report.status is BalancingStatus.NOT_AVAILABLE and self._is_heavier(report) for report in clusters.values()
        ):
            return  # overloaded clusters first; a report expires, so this ends
        self._ask_first(self._lighter(), now_ms, effects)

    def _is_heavier(self, report: LoadReport) -> bool:
        return bool(self._thresholds.exceeded(report.load, self._report().load))

    def _lighter(self) -> list[str]:
        """Clusters whose load is lower by more than a threshold, the largest difference first."""
        if not self._knows_own_load:
            return []
        load = self._report().load
        found = [
            (max(exceeded.values()), head)
            for head, report in self._clusters.latest.items()
            if report.status is not BalancingStatus.NOT_AVAILABLE
            and (exceeded := self._thresholds.exceeded(load, report.load))
        ]
        # The cluster that was left because it could not help comes last.
        found.sort(key=lambda each: (each[1] == self._left, -each[0], each[1]))
        return [head for _, head in found]

    def _is_over(self, session: _ClusterSession, now_ms: int) -> bool:
        """All edge brokers are balanced, or have moved nothing for a while: output is balanced only as far as it can
        be, and a session must not wait for more. Nor for a cluster that is out of reach, which reports nothing.
        """
        self._theirs.expire(now_ms)
        if not self._own.latest:
            return False
        reports = {**self._own.latest, **self._theirs.latest}
        is_balanced = all({*report.balanced_with, name} >= set(reports) for name, report in reports.items())
        if is_balanced and self._theirs.latest:
            return True
        is_quiet = all(report.status in _QUIET for report in reports.values())
        session.quiet_turns = session.quiet_turns + 1 if is_quiet else 0
        return session.quiet_turns >= QUIET_TURNS_MAX

    def _help(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        session = self._session
        if session is None:
            self._ask_first(self._lighter(), now_ms, effects)
        elif session.is_open:
            session.help_requests += 1
            if session.help_requests >= self.config.help_requests_max:
                self._left = session.peer
                self._end(now_ms, effects)
                self._ask_first([head for head in self._lighter() if head != self._left], now_ms, effects)

    # Sessions.

    def _ask_first(self, heads: Sequence[str], now_ms: int, effects: list[BalancingEffect]) -> None:
        if not heads:
            return
        self._session = _ClusterSession(
            session=f"{self.head}/{now_ms}/{heads[0]}",
            peer=heads[0],
            deadline_ms=now_ms + self.config.reply_ms,
            others=heads[1:],
        )
        request = SessionRequest(
            session=self._session.session,
            sender=self.head,
            cluster=self.head,
            index=LoadIndex.SHARES,
            deadline_ms=self.config.cluster_session_ms_max,
        )
        effects.append(SendControl(message=request, to=heads[0]))

    def _requested(self, request: SessionRequest, now_ms: int, effects: list[BalancingEffect]) -> None:
        session = self._session
        is_repeated = session is not None and session.session == request.session
        accepts = is_repeated or (self.is_on and session is None and self.status is BalancingStatus.OK)
        status = BalancingStatus.OK if accepts else self.status
        if not accepts and status is BalancingStatus.OK:
            status = BalancingStatus.BUSY
        effects.append(
            SendControl(
                message=SessionReply(session=request.session, sender=self.head, status=status), to=request.sender
            )
        )
        if accepts and not is_repeated:
            deadline_ms = now_ms + min(request.deadline_ms, self.config.cluster_session_ms_max)
            self._session = _ClusterSession(session=request.session, peer=request.sender, deadline_ms=deadline_ms)
            self._open(self._session, effects)

    def _replied(self, reply: SessionReply, now_ms: int, effects: list[BalancingEffect]) -> None:
        session = self._session
        if session is None or session.session != reply.session:
            if reply.status is BalancingStatus.OK:
                done = SessionDone(session=reply.session, sender=self.head)
                effects.append(SendControl(message=done, to=reply.sender))
        elif session.is_open:
            return
        elif reply.status is BalancingStatus.OK:
            session.deadline_ms = now_ms + self.config.cluster_session_ms_max
            self.sessions += 1
            self._open(session, effects)
        else:
            self._session = None
            self._ask_first(session.others, now_ms, effects)

    def _open(self, session: _ClusterSession, effects: list[BalancingEffect]) -> None:
        session.is_open = True
        self.status = next_status(CLUSTER, self.status, StatusEvent.SESSION_BEGUN)
        self._follow(session.peer, effects, is_on=True)

    def _follow(self, cluster: str, effects: list[BalancingEffect], *, is_on: bool) -> None:
        effects.append(WatchCluster(cluster=cluster, is_on=is_on))
        for edge in self._edges:
            message = FollowCluster(sender=self.head, cluster=cluster, is_on=is_on)
            effects.append(SendControl(message=message, to=edge))

    def _end(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        assert self._session is not None
        done = SessionDone(session=self._session.session, sender=self.head)
        effects.append(SendControl(message=done, to=self._session.peer))
        self._close(now_ms, effects)

    def _close(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        session, self._session = self._session, None
        assert session is not None
        if session.is_open:
            self._follow(session.peer, effects, is_on=False)
            self._theirs.forget_cluster(session.peer)
            self.status = next_status(CLUSTER, self.status, StatusEvent.SESSION_ENDED)
            self._examine(now_ms)

    def _expire(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        session = self._session
        if session is None or now_ms < session.deadline_ms:
            return
        if session.is_open:
            self._end(now_ms, effects)
        else:
            self._session = None
            self._ask_first(session.others, now_ms, effects)


def mean_load(loads: Sequence[BrokerLoad]) -> BrokerLoad:
    """The load of a cluster: its three indices are the means of its brokers' (Section 3.3.1.2).

    >>> one, other = BrokerLoad(input_rate_per_s=10, matching_delay_s=0.02), BrokerLoad()
    >>> mean_load([one, other]).input_utilization
    0.1
    """
    count = len(loads)
    delay = math.fsum(load.matching_delay_s for load in loads) / count
    utilization = math.fsum(load.input_utilization for load in loads) / count
    return BrokerLoad(
        subscriptions=sum(load.subscriptions for load in loads),
        input_rate_per_s=utilization / delay if delay > 0 else 0.0,
        matching_delay_s=delay,
        output_bytes_per_s=math.fsum(load.output_utilization for load in loads) / count,
        bandwidth_bytes_per_s=1.0,
    )
