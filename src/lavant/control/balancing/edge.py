"""The machine of one broker: reports its load, looks for a session, and takes part in one at a time.

The same machine runs every policy. A policy says whom to ask and what to move; the machine does the rest: PIE
(`exchange`), states (`states`), overload and stability (`detection`), requests, replies and deadlines (`sessions`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.detection import Stability, Thresholds, is_available, jitter_ms, overload, smooth
from lavant.control.balancing.exchange import PeerReports, ReportSchedule, is_news
from lavant.control.balancing.outcomes import Outcomes
from lavant.control.balancing.policies.interface import (
    BalancingPolicy,
    Neighbourhood,
    OffloadPlan,
    OpenSession,
    Proposal,
)
from lavant.control.balancing.press import PressSample
from lavant.control.balancing.sessions import Accepting, Backoff, Offloading, SessionStep
from lavant.control.balancing.states import BROKER, StatusEvent, next_status
from lavant.control.balancing.values import (
    COVERING_MAX,
    BalancingDecision,
    BalancingEffect,
    BalancingStatus,
    BalancingStimulus,
    BrokerLoad,
    Decided,
    FollowCluster,
    HelpRequest,
    LoadMeasured,
    LoadReport,
    MessageArrived,
    MovesEnded,
    SampleTaken,
    SendControl,
    SessionDone,
    SessionReply,
    SessionRequest,
    StartMoves,
    StartSampling,
    StopSampling,
    WatchCluster,
)
from lavant.core.decisions import Decision

DECISIONS_MAX = 1000
AWAKE_MS = 1000
"""A report wakes the detector, at most this often."""


class EdgeBalancer:
    """Balances one broker with its peers.

    `head` is the broker that leads the cluster, if any. `is_on` set to False stops new sessions: those that run end.
    """

    def __init__(
        self,
        broker: str,
        *,
        cluster: str,
        policy: BalancingPolicy,
        head: str | None = None,
        config: BalancingConfig | None = None,
    ) -> None:
        self.broker = broker
        self.cluster = cluster
        self.policy = policy
        self.config = policy.config if config is None else config
        self.status = BalancingStatus.OK
        self.is_on = True
        self.load = BrokerLoad()
        self.decisions: deque[BalancingDecision] = deque(maxlen=DECISIONS_MAX)
        self._head = head
        self._covering: tuple[str, ...] = ()
        self._smoothed: BrokerLoad | None = None
        self._thresholds = Thresholds.of(self.config)
        self._reports = ReportSchedule(self.config.report_period_ms, self.config)
        self._peers = PeerReports(self.config.report_expiry_ms)
        self._stability = Stability(self.config)
        self._outcomes = Outcomes(broker)
        self._session: Offloading | Accepting | None = None
        self._detect_ms: int | None = None
        self._detected_ms = -AWAKE_MS
        self._turns = 0
        self._settling_since_ms = 0
        self._waiting_since_ms: int | None = None
        self._unsettled_since_ms: int | None = None
        self._followed: dict[str, int] = {}
        """Other clusters whose reports are watched, and until when; the head renews it while its session lasts."""
        self._was_outdated = False
        """The last session was given up because loads had changed meanwhile."""
        self._futile = Backoff(self.config.report_period_ms)

    @property
    def peers(self) -> dict[str, LoadReport]:
        """The latest reports of other brokers, by name."""
        return self._peers.latest

    @property
    def session(self) -> str | None:
        """The session that this broker takes part in."""
        return None if self._session is None else self._session.session

    @property
    def offloading(self) -> str | None:
        """The session in which this broker moves subscriptions away."""
        return self._session.session if isinstance(self._session, Offloading) else None

    def handle(self, stimulus: BalancingStimulus, now_ms: int) -> list[BalancingEffect]:
        """Takes a measurement, message or answer, and returns what the world must do."""
        effects: list[BalancingEffect] = []
        match stimulus:
            case LoadMeasured():
                self.load, self._covering = stimulus.load, stimulus.covering
                self._stability.observe(self.load, now_ms)
            case MessageArrived():
                self._message(stimulus.message, now_ms, effects)
            case SampleTaken():
                self._sampled(stimulus, now_ms, effects)
            case MovesEnded():
                self._moved(stimulus, now_ms, effects)
        self._renew(now_ms, effects)
        self._expire(now_ms, effects)
        if self._detect_ms is None:
            self._detect_ms = now_ms + self._pause_ms()
        elif now_ms >= self._detect_ms:
            self._detect(now_ms, effects)
        report = self._reports.next(self._report, now_ms)
        if report is not None:
            effects.append(SendControl(message=report, cluster=self.cluster))
        return effects

    def wakeup_ms(self) -> int | None:
        """When time itself is a stimulus: the next detection, report or deadline."""
        session = self._session
        times = (
            self._detect_ms,
            self._reports.due_ms,
            None if session is None else session.deadline_ms,
            session.renew_ms if isinstance(session, Offloading) else None,
        )
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    # Reports.

    def _report(self) -> LoadReport:
        load = self.load if self._smoothed is None else self._smoothed
        # Heads alone read whom a broker is balanced with; without one, a change of it would be reported for nobody.
        peers = {} if self._head is None else self._peers.latest
        balanced = [peer for peer, report in peers.items() if self._thresholds.are_balanced(load, report.load)]
        return LoadReport(
            broker=self.broker, cluster=self.cluster, status=self.status, load=load, balanced_with=tuple(balanced)
        )

    def _change(self, event: StatusEvent, now_ms: int, effects: list[BalancingEffect]) -> None:
        before = self.status
        self.status = next_status(BROKER, before, event)
        if self.status == before:
            return
        if self.status is BalancingStatus.STABILIZING:
            self._settling_since_ms, self._unsettled_since_ms = now_ms, None
        if is_news(self.status, before):
            self._announce(now_ms, effects)

    def _announce(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        """The thesis waits for the next period; until then, others would ask brokers that refuse."""
        report = self._reports.at_once(self._report(), now_ms)
        effects.append(SendControl(message=report, cluster=self.cluster))

    # Messages.

    def _message(self, message: object, now_ms: int, effects: list[BalancingEffect]) -> None:
        match message:
            case LoadReport():
                self._reported(message, now_ms, effects)
            case SessionRequest():
                self._requested(message, now_ms, effects)
            case SessionReply():
                self._replied(message, now_ms, effects)
            case SessionDone():
                self._done(message, now_ms, effects)
            case FollowCluster() if message.sender == self._head and message.is_on:
                self._followed[message.cluster] = now_ms + self.config.cluster_report_expiry_ms
                effects.append(WatchCluster(cluster=message.cluster, is_on=True))
            case FollowCluster() if message.sender == self._head:
                self._unfollow(message.cluster, effects)

    def _unfollow(self, cluster: str, effects: list[BalancingEffect]) -> None:
        self._followed.pop(cluster, None)
        self._peers.forget_cluster(cluster)
        effects.append(WatchCluster(cluster=cluster, is_on=False))

    def _reported(self, report: LoadReport, now_ms: int, effects: list[BalancingEffect]) -> None:
        if report.broker == self.broker or report.is_of_cluster or not self._peers.receive(report, now_ms):
            return
        self._conclude(now_ms, effects)
        # A report of an available broker wakes the detector.
        if report.status is BalancingStatus.OK and now_ms - self._detected_ms >= AWAKE_MS:
            self._detect(now_ms, effects)

    def _requested(self, request: SessionRequest, now_ms: int, effects: list[BalancingEffect]) -> None:
        if isinstance(self._session, Accepting) and self._session.session == request.session:
            accepts = True  # repeated, to renew the lease: the same answer
        else:
            accepts = self.is_on and self._session is None and self.status is BalancingStatus.OK
            accepts = accepts and is_available(self.load, self.config)
        if not accepts:
            status = BalancingStatus.BUSY if self.status is BalancingStatus.OK else self.status
            reply = SessionReply(session=request.session, sender=self.broker, status=status)
            effects.append(SendControl(message=reply, to=request.sender))
            return
        deadline_ms = now_ms + min(request.deadline_ms, self.config.session_ms_max)
        self._session = Accepting(session=request.session, offloading=request.sender, deadline_ms=deadline_ms)
        reply = SessionReply(
            session=request.session,
            sender=self.broker,
            status=BalancingStatus.OK,
            load=self.load,
            covering=self._covering[:COVERING_MAX],
        )
        effects.append(SendControl(message=reply, to=request.sender))
        self._change(StatusEvent.SESSION_BEGUN, now_ms, effects)

    def _replied(self, reply: SessionReply, now_ms: int, effects: list[BalancingEffect]) -> None:
        session = self._session
        if isinstance(session, Offloading) and session.session == reply.session:
            if reply.sender in session.accepted:
                return  # a repeated reply
            if session.step is SessionStep.ASKING and reply.sender in session.proposal.peers:
                session.replies[reply.sender] = reply
                if session.is_answered:
                    self._asked(session, now_ms, effects)
                return
        if reply.status is BalancingStatus.OK:
            # Too late: the broker that accepted must not wait for its deadline.
            done = SessionDone(session=reply.session, sender=self.broker)
            effects.append(SendControl(message=done, to=reply.sender))

    def _done(self, done: SessionDone, now_ms: int, effects: list[BalancingEffect]) -> None:
        session = self._session
        if not isinstance(session, Accepting) or (session.session, session.offloading) != (done.session, done.sender):
            return
        self._session = None
        self._end(done.moved, now_ms, effects)

    # Detection.

    def _pause_ms(self) -> int:
        self._turns += 1
        return jitter_ms(self.broker, self._turns, self.config.detection_ms_min, self.config.detection_ms_max)

    def _detect(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        self._detect_ms = now_ms + self._pause_ms()
        self._detected_ms = now_ms
        self._peers.expire(now_ms)
        for cluster in [each for each, until_ms in self._followed.items() if until_ms <= now_ms]:
            self._unfollow(cluster, effects)
        self._smoothed = smooth(self._smoothed, self.load, self.config.smoothing)
        if self._session is not None:
            return
        self._examine(now_ms, effects)
        self._conclude(now_ms, effects)
        is_high = overload(self._smoothed, self.config.overload_high) is not None
        if self.status is BalancingStatus.STABILIZING and not is_high:
            return
        proposals = self._propose(now_ms) if self.is_on else []
        if proposals:
            self._begin(f"{self.broker}/{now_ms}/{self._turns}", proposals, now_ms, effects)
        elif is_high and self.is_on:
            self._ask_for_help(effects)

    def _examine(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        """Figure 3.5, first step: overloaded, relieved or stable."""
        assert self._smoothed is not None
        if not is_available(self._smoothed, self.config) or not is_available(self.load, self.config):
            self._change(StatusEvent.OVERLOADED, now_ms, effects)
            return
        self._change(StatusEvent.RELIEVED, now_ms, effects)
        if self._stability.is_stable(since_ms=self._settling_since_ms, now_ms=now_ms):
            self._change(StatusEvent.STABLE, now_ms, effects)

    def _propose(self, now_ms: int) -> list[Proposal]:
        assert self._smoothed is not None
        peers = self._peers.latest
        is_waiting = self.status is BalancingStatus.NOT_AVAILABLE or any(
            report.status is BalancingStatus.NOT_AVAILABLE for report in peers.values()
        )
        if not is_waiting:
            self._waiting_since_ms = None
        elif self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms
        if all(report.status is BalancingStatus.OK for report in peers.values()):
            self._unsettled_since_ms = None
        elif self._unsettled_since_ms is None:
            self._unsettled_since_ms = now_ms
        view = Neighbourhood(
            broker=self.broker,
            status=self.status,
            load=self._smoothed,
            peers=peers,
            config=self.config,
            waited_ms=0 if self._waiting_since_ms is None else now_ms - self._waiting_since_ms,
            unsettled_ms=0 if self._unsettled_since_ms is None else now_ms - self._unsettled_since_ms,
        )
        return [each for each in self.policy.propose(view) if self._futile.may_try((each.index, each.peers), now_ms)]

    def _ask_for_help(self, effects: list[BalancingEffect]) -> None:
        if self._head is not None:
            effects.append(SendControl(message=HelpRequest(sender=self.broker), to=self._head))

    # The offloading side.

    def _begin(self, name: str, proposals: Sequence[Proposal], now_ms: int, effects: list[BalancingEffect]) -> None:
        self._session = Offloading(
            session=name,
            proposals=proposals,
            deadline_ms=now_ms + self.config.reply_ms,
            renew_ms=now_ms + self.config.reply_ms // 2,
        )
        self._ask(self._session, effects)

    def _ask(self, session: Offloading, effects: list[BalancingEffect]) -> None:
        for peer in session.to_ask:
            request = SessionRequest(
                session=session.session,
                sender=self.broker,
                cluster=self.cluster,
                index=session.proposal.index,
                deadline_ms=self.config.lease_ms,
            )
            effects.append(SendControl(message=request, to=peer))

    def _asked(self, session: Offloading, now_ms: int, effects: list[BalancingEffect]) -> None:
        """All peers of the proposal have answered, or had the time to."""
        accepted = session.accepted
        if not accepted:
            if len(session.proposals) > 1:
                self._begin(f"{session.session}+", session.proposals[1:], now_ms, effects)
                return
            self._session = None
            if overload(self.load, self.config.overload_high) is not None:
                self._ask_for_help(effects)
            return
        session.step = SessionStep.SAMPLING
        session.asked_load = self.load
        session.renew_ms = now_ms + self.config.lease_ms // 4
        session.deadline_ms = now_ms + self.config.press_timeout_ms + self.config.reply_ms
        self._change(StatusEvent.SESSION_BEGUN, now_ms, effects)
        effects.append(
            StartSampling(
                session=session.session,
                covering={peer: reply.covering for peer, reply in accepted.items()},
                publications=self.config.press_samples if self.policy.samples else 0,
                timeout_ms=self.config.press_timeout_ms,
            )
        )

    def opened(self, name: str, sample: PressSample, now_ms: int) -> OpenSession | None:
        """What to plan, now that the sample of a session is there; None if that has ended. To plan may take seconds: a
        world that does it in a thread has as long as for the sample, and tells the plan with `SampleTaken`.
        """
        session = self._session
        if not isinstance(session, Offloading) or session.session != name or session.step is not SessionStep.SAMPLING:
            return None
        session.deadline_ms = now_ms + self.config.press_timeout_ms + self.config.reply_ms
        return session.opened(self.broker, self.load, sample, self.config)

    def _sampled(self, taken: SampleTaken, now_ms: int, effects: list[BalancingEffect]) -> None:
        opened, session = self.opened(taken.session, taken.sample, now_ms), self._session
        if opened is None or not isinstance(session, Offloading):
            return
        self._was_outdated = self._is_outdated(session)
        if self._was_outdated:
            reason = f"the input of {self.broker} has changed since the others told their loads"
            self._give_up(session, reason, now_ms, effects)
            return
        plan = session.plan = self.policy.plan(opened) if taken.plan is None else taken.plan
        self._decide(session, plan, session.proposal.reason, now_ms, effects)
        if not plan.moves:
            self._futile.note((session.proposal.index, session.proposal.peers), now_ms)
            self._finish(session, 0, now_ms, effects)
            return
        session.step = SessionStep.MOVING
        patience_ms = self.config.migration_ms * len(plan.moves)
        session.deadline_ms = now_ms + min(patience_ms, self.config.session_ms_max)
        effects.append(StartMoves(session=session.session, moves=plan.moves))

    def _give_up(self, session: Offloading, reason: str, now_ms: int, effects: list[BalancingEffect]) -> None:
        session.before = {self.broker: self.load, **session.loads}
        self._decide(session, OffloadPlan(moves=(), predicted=session.before), reason, now_ms, effects)
        self._finish(session, 0, now_ms, effects)

    def _is_outdated(self, session: Offloading) -> bool:
        """Whether publishers have changed their rates since the others told their loads: our subscriptions are the
        same, the input is not. A plan would compare loads of before and after. An overloaded broker does not wait, and
        none does twice: rates may change all the time.
        """
        before, now = session.asked_load, self.load
        is_urgent = self._was_outdated or overload(now, self.config.overload_high) is not None
        if is_urgent or before.subscriptions != now.subscriptions:
            return False
        change = abs(now.input_rate_per_s - before.input_rate_per_s)
        return change > self.config.ratio_threshold * max(before.input_rate_per_s, now.input_rate_per_s)

    def _moved(self, ended: MovesEnded, now_ms: int, effects: list[BalancingEffect]) -> None:
        session = self._session
        if isinstance(session, Offloading) and session.session == ended.session and session.step is SessionStep.MOVING:
            self._finish(session, ended.moved, now_ms, effects)

    def _finish(self, session: Offloading, moved: int, now_ms: int, effects: list[BalancingEffect]) -> None:
        self._session = None
        received = {move.destination for move in session.plan.moves} if session.plan is not None and moved else set()
        for peer in session.accepted:
            done = SessionDone(session=session.session, sender=self.broker, moved=moved if peer in received else 0)
            effects.append(SendControl(message=done, to=peer))
        if moved:
            self._futile.clear()
            self._outcomes.expect(session.session, now_ms)
        self._end(moved, now_ms, effects)

    def _end(self, moved: int, now_ms: int, effects: list[BalancingEffect]) -> None:
        """Leaves a session: a broker whose load has changed stabilises, others are as they were."""
        if self.status is not BalancingStatus.BUSY:
            return
        if moved:
            self._change(StatusEvent.SESSION_ENDED, now_ms, effects)
        else:
            is_free = is_available(self.load, self.config)
            self.status = BalancingStatus.OK if is_free else BalancingStatus.NOT_AVAILABLE
            self._announce(now_ms, effects)

    def _renew(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        session = self._session
        if isinstance(session, Offloading) and now_ms >= session.renew_ms:
            is_asking = session.step is SessionStep.ASKING
            session.renew_ms = now_ms + (self.config.reply_ms // 2 if is_asking else self.config.lease_ms // 4)
            self._ask(session, effects)

    def _expire(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        session = self._session
        if session is None or now_ms < session.deadline_ms:
            return
        if isinstance(session, Accepting):
            self._session = None
            self._end(1, now_ms, effects)  # something may have arrived
        elif session.step is SessionStep.ASKING:
            self._asked(session, now_ms, effects)
        elif session.step is SessionStep.SAMPLING:
            effects.append(StopSampling(session=session.session))
            self._give_up(session, "no sample of publications came in time", now_ms, effects)
        else:
            assert session.plan is not None
            self._finish(session, len(session.plan.moves), now_ms, effects)

    # Decisions.

    def _decide(
        self, session: Offloading, plan: OffloadPlan, reason: str, now_ms: int, effects: list[BalancingEffect]
    ) -> None:
        proposal = session.proposal
        counts: dict[str, int] = {}
        for move in plan.moves:
            counts[move.destination] = counts.get(move.destination, 0) + 1
        targets = ", ".join(f"{count} to {peer}" for peer, count in sorted(counts.items()))
        action = f"move {targets}" if counts else f"move nothing to {', '.join(session.accepted)}"
        decision = BalancingDecision(
            session=session.session,
            decision=Decision(
                loop="balancing",
                action=action,
                reason=reason,
                figures=dict(proposal.figures),
                time_ms=now_ms,
            ),
            index=proposal.index,
            offloading=self.broker,
            moves=plan.moves,
            before=session.before,
            predicted=plan.predicted,
        )
        if plan.moves:  # otherwise the loads go on being those that the last session with moves led to
            self._outcomes.decided(decision)
        self.decisions.append(decision)
        effects.append(Decided(decision=decision))

    def _conclude(self, now_ms: int, effects: list[BalancingEffect]) -> None:
        if self.status in {BalancingStatus.BUSY, BalancingStatus.STABILIZING}:
            return
        settled = self._outcomes.settled(self.load, self._peers, now_ms)
        if settled is not None:
            self.decisions.append(settled)
            effects.append(Decided(decision=settled))
