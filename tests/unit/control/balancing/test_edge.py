"""The machine of a broker: reports, sessions, and deadlines for every step."""

from __future__ import annotations

from itertools import pairwise

import msgspec
from tests.unit.control.balancing.cases import broker_load, random_sample

from lavant.control.balancing.edge import EdgeBalancer
from lavant.control.balancing.policies.registry import balancing_policy
from lavant.control.balancing.values import (
    BalancingEffect,
    BalancingStatus,
    BalancingStimulus,
    ControlMessage,
    Decided,
    LoadIndex,
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
    TimePassed,
)

HEAVY = broker_load(subscriptions=1000, rate_per_s=20.0)
LIGHT = broker_load(subscriptions=10, capacity=4.0)


class Driver:
    """One machine, driven by hand."""

    def __init__(self, policy: str = "shares", load: object = HEAVY) -> None:
        self.machine = EdgeBalancer("B1", cluster="C", policy=balancing_policy(policy), head="H")
        self.now_ms = 0
        self.log: list[BalancingEffect] = []
        self.send(LoadMeasured(load=load))  # type: ignore[arg-type]

    def send(self, stimulus: BalancingStimulus) -> list[BalancingEffect]:
        effects = self.machine.handle(stimulus, self.now_ms)
        self.log.extend(effects)
        return effects

    def receive(self, message: ControlMessage) -> list[BalancingEffect]:
        encoded = msgspec.msgpack.encode(message)
        return self.send(MessageArrived(message=msgspec.msgpack.decode(encoded, type=ControlMessage)))

    def wake(self) -> list[BalancingEffect]:
        wakeup_ms = self.machine.wakeup_ms()
        assert wakeup_ms is not None
        self.now_ms = max(self.now_ms, wakeup_ms)
        return self.send(TimePassed())

    def report_of(self, broker: str, status: BalancingStatus = BalancingStatus.OK) -> None:
        self.receive(LoadReport(broker=broker, cluster="C", status=status, load=LIGHT, number=self.now_ms + 1))

    def until_asked(self) -> SessionRequest:
        self.now_ms += 2000
        self.report_of("B2")
        for _ in range(50):
            found = self.messages(SessionRequest)
            if found:
                return found[-1]  # type: ignore[return-value]
            self.wake()
        raise AssertionError("no request")

    def messages(self, kind: type) -> list[ControlMessage]:
        sent = [effect for effect in self.log if isinstance(effect, SendControl)]
        return [effect.message for effect in sent if isinstance(effect.message, kind)]

    def status(self) -> BalancingStatus:
        return self.machine.status

    def effects(self, kind: type) -> list[BalancingEffect]:
        return [effect for effect in self.log if isinstance(effect, kind)]


def accept(driver: Driver, request: SessionRequest) -> StartSampling:
    driver.receive(SessionReply(session=request.session, sender="B2", status=BalancingStatus.OK, load=LIGHT))
    (start,) = driver.effects(StartSampling)
    assert isinstance(start, StartSampling)
    return start


def sample(driver: Driver, start: StartSampling) -> StartMoves:
    taken = random_sample(3, subscriptions=900, publications=50, rate_per_s=20.0, peers=list(start.covering))
    driver.send(SampleTaken(session=start.session, sample=taken))
    (moves,) = driver.effects(StartMoves)
    assert isinstance(moves, StartMoves)
    return moves


def test_a_whole_session_of_the_offloading_broker() -> None:
    driver = Driver()
    start = accept(driver, driver.until_asked())
    assert driver.status() is BalancingStatus.BUSY
    assert (start.publications, list(start.covering)) == (driver.machine.config.press_samples, ["B2"])
    moves = sample(driver, start)
    assert {move.destination for move in moves.moves} == {"B2"}
    (decided,) = driver.effects(Decided)
    assert isinstance(decided, Decided)
    assert str(decided.decision).startswith(f"balancing: move {len(moves.moves)} to B2, because input")
    assert set(decided.decision.predicted) == {"B1", "B2"}
    driver.send(MovesEnded(session=moves.session, moved=len(moves.moves)))
    assert driver.status() is BalancingStatus.STABILIZING
    (done,) = driver.messages(SessionDone)
    assert isinstance(done, SessionDone)
    assert done.moved == len(moves.moves)


def test_the_outcome_of_a_session_is_measured_when_all_have_settled() -> None:
    driver = Driver()
    moves = sample(driver, accept(driver, driver.until_asked()))
    driver.send(MovesEnded(session=moves.session, moved=len(moves.moves)))
    settled = broker_load(subscriptions=200, rate_per_s=20.0)
    for _ in range(60):
        driver.now_ms += 2000
        driver.send(LoadMeasured(load=settled))
        driver.report_of("B2")
    outcome = driver.effects(Decided)[1]
    assert isinstance(outcome, Decided)
    assert outcome.decision.measured == {"B1": settled, "B2": LIGHT}
    assert outcome.decision.session == moves.session


def test_a_session_that_moves_nothing_does_not_keep_the_outcome_of_the_one_before_from_being_measured() -> None:
    driver = Driver()
    moves = sample(driver, accept(driver, driver.until_asked()))
    driver.send(MovesEnded(session=moves.session, moved=len(moves.moves)))
    driver.log.clear()
    while not driver.messages(SessionRequest):  # overloaded as before, so it waits for nobody to settle
        driver.now_ms += 2000
        driver.send(LoadMeasured(load=HEAVY))
        driver.report_of("B2", BalancingStatus.STABILIZING)
        driver.report_of("B3")
    (request,) = driver.messages(SessionRequest)
    assert isinstance(request, SessionRequest)
    driver.receive(SessionReply(session=request.session, sender="B3", status=BalancingStatus.OK, load=LIGHT))
    (start,) = driver.effects(StartSampling)
    assert isinstance(start, StartSampling)
    nothing = random_sample(3, subscriptions=0, publications=50, rate_per_s=20.0, peers=["B3"])
    driver.send(SampleTaken(session=start.session, sample=nothing))
    settled = broker_load(subscriptions=200, rate_per_s=20.0)
    for _ in range(60):
        driver.now_ms += 2000
        driver.send(LoadMeasured(load=settled))
        driver.report_of("B2")
    measured = [
        each.decision for each in driver.effects(Decided) if isinstance(each, Decided) and each.decision.measured
    ]
    assert [each.session for each in measured] == [moves.session]


def test_a_session_during_which_publishers_change_their_rates_moves_nothing_but_the_next_one_does() -> None:
    load = broker_load(subscriptions=400, rate_per_s=10.0)
    driver = Driver(load=load)
    for rate_per_s, has_moves in ((15.0, False), (20.0, True)):
        driver.log.clear()
        start = accept(driver, driver.until_asked())
        driver.send(LoadMeasured(load=msgspec.structs.replace(load, input_rate_per_s=rate_per_s)))
        taken = random_sample(3, subscriptions=400, publications=50, rate_per_s=rate_per_s, peers=["B2"])
        driver.send(SampleTaken(session=start.session, sample=taken))
        assert bool(driver.effects(StartMoves)) is has_moves
        (decided,) = driver.effects(Decided)
        assert ("has changed since the others told" in str(decided)) is not has_moves
        assert len(driver.messages(SessionDone)) == (not has_moves)


def test_a_request_that_nobody_answers_is_given_up() -> None:
    driver = Driver()
    driver.until_asked()
    driver.now_ms += driver.machine.config.reply_ms
    driver.wake()
    assert driver.status() is not BalancingStatus.BUSY
    assert not driver.effects(StartSampling)


def test_a_sample_that_never_comes_ends_the_session() -> None:
    driver = Driver()
    start = accept(driver, driver.until_asked())
    driver.now_ms += driver.machine.config.press_timeout_ms + driver.machine.config.reply_ms
    driver.wake()
    assert driver.effects(StopSampling) == [StopSampling(session=start.session)]
    assert driver.status() is not BalancingStatus.BUSY
    assert len(driver.messages(SessionDone)) == 1
    (decided,) = driver.effects(Decided)
    assert isinstance(decided, Decided)
    assert "move nothing to B2, because no sample of publications came in time" in str(decided.decision)
    assert decided.decision.before == decided.decision.predicted == {"B1": HEAVY, "B2": LIGHT}
    # The sample arrives after all, and is ignored.
    taken = random_sample(3, subscriptions=900, publications=50, rate_per_s=20.0, peers=["B2"])
    driver.send(SampleTaken(session=start.session, sample=taken))
    assert not driver.effects(StartMoves)


def test_a_plan_that_is_made_elsewhere_has_as_long_as_the_sample() -> None:
    driver = Driver()
    start, config = accept(driver, driver.until_asked()), driver.machine.config
    driver.now_ms += config.press_timeout_ms
    taken = random_sample(3, subscriptions=900, publications=50, rate_per_s=20.0, peers=list(start.covering))
    opened = driver.machine.opened(start.session, taken, driver.now_ms)
    assert opened is not None
    driver.now_ms += config.press_timeout_ms
    driver.send(TimePassed())
    plan = driver.machine.policy.plan(opened)
    driver.send(SampleTaken(session=start.session, sample=taken, plan=plan))
    (moves,) = driver.effects(StartMoves)
    assert isinstance(moves, StartMoves)
    assert moves.moves == plan.moves
    assert driver.machine.opened(start.session, taken, driver.now_ms) is None


def test_moves_that_never_end_end_the_session() -> None:
    driver = Driver()
    sample(driver, accept(driver, driver.until_asked()))
    driver.now_ms += driver.machine.config.session_ms_max
    driver.wake()
    assert driver.status() is not BalancingStatus.BUSY


def request(session: str = "B9/1/1") -> SessionRequest:
    return SessionRequest(session=session, sender="B9", cluster="C", index=LoadIndex.INPUT, deadline_ms=60_000)


def test_a_request_without_an_answer_is_repeated_and_an_accepted_one_is_renewed() -> None:
    driver = Driver()
    asked = driver.until_asked()
    driver.now_ms += driver.machine.config.reply_ms // 2
    driver.send(TimePassed())
    assert driver.messages(SessionRequest) == [asked, asked]
    accept(driver, asked)
    driver.now_ms += driver.machine.config.lease_ms // 4
    driver.send(TimePassed())
    assert driver.messages(SessionRequest) == [asked] * 3
    assert asked.deadline_ms == driver.machine.config.lease_ms


def test_a_repeated_request_renews_the_lease_of_an_accepting_broker() -> None:
    driver = Driver(load=LIGHT)
    driver.receive(request())
    for _ in range(5):
        driver.now_ms += 50_000
        driver.receive(request())
        assert driver.status() is BalancingStatus.BUSY
    driver.now_ms += 60_000
    driver.send(TimePassed())
    assert driver.status() is BalancingStatus.STABILIZING


def test_an_accepting_broker_is_busy_until_the_session_is_done_or_overdue() -> None:
    for ending in ("done", "deadline"):
        driver = Driver(load=LIGHT)
        driver.receive(request())
        (reply,) = driver.messages(SessionReply)
        assert isinstance(reply, SessionReply)
        assert (reply.status, reply.load) == (BalancingStatus.OK, LIGHT)
        assert driver.status() is BalancingStatus.BUSY
        if ending == "done":
            driver.receive(SessionDone(session="B9/1/1", sender="B9", moved=7))
        else:
            driver.now_ms += 60_000
            driver.send(TimePassed())
        assert driver.status() is BalancingStatus.STABILIZING


def test_a_session_that_moved_nothing_leaves_the_broker_available() -> None:
    driver = Driver(load=LIGHT)
    driver.receive(request())
    driver.receive(SessionDone(session="B9/1/1", sender="B9", moved=0))
    assert driver.status() is BalancingStatus.OK


def test_only_the_offloading_broker_ends_a_session() -> None:
    driver = Driver(load=LIGHT)
    driver.receive(request())
    driver.receive(SessionDone(session="B9/1/1", sender="B3", moved=7))
    assert driver.status() is BalancingStatus.BUSY


def test_busy_stabilising_and_overloaded_brokers_refuse() -> None:
    driver = Driver(load=LIGHT)
    driver.receive(request())
    driver.receive(request("other"))
    driver.receive(request())  # repeated: the same answer again
    driver.receive(SessionDone(session="B9/1/1", sender="B9", moved=7))
    driver.receive(request("later"))
    replies = driver.messages(SessionReply)
    assert [(reply.session, reply.status) for reply in replies] == [  # type: ignore[union-attr]
        ("B9/1/1", BalancingStatus.OK),
        ("other", BalancingStatus.BUSY),
        ("B9/1/1", BalancingStatus.OK),
        ("later", BalancingStatus.STABILIZING),
    ]
    overloaded = Driver(load=HEAVY)
    overloaded.receive(request())
    (reply,) = overloaded.messages(SessionReply)
    assert reply.status is not BalancingStatus.OK  # type: ignore[union-attr]


def test_a_broker_that_is_switched_off_takes_part_in_nothing() -> None:
    driver = Driver(load=LIGHT)
    driver.machine.is_on = False
    driver.receive(request())
    (reply,) = driver.messages(SessionReply)
    assert reply.status is not BalancingStatus.OK  # type: ignore[union-attr]
    heavy = Driver()
    heavy.machine.is_on = False
    heavy.now_ms += 2000
    heavy.report_of("B2")
    for _ in range(20):
        heavy.wake()
    assert not heavy.messages(SessionRequest)


def test_an_acceptance_that_comes_too_late_is_released() -> None:
    driver = Driver()
    driver.receive(SessionReply(session="B1/0/0", sender="B2", status=BalancingStatus.OK, load=LIGHT))
    assert driver.messages(SessionDone) == [SessionDone(session="B1/0/0", sender="B1")]


def test_a_quiet_broker_keeps_itself_alive_at_its_peers() -> None:
    driver = Driver("thesis", load=LIGHT)
    times = []
    while driver.now_ms < 600_000:
        if any(isinstance(each, SendControl) and isinstance(each.message, LoadReport) for each in driver.wake()):
            times.append(driver.now_ms)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) < driver.machine.config.report_expiry_ms
    assert min(gaps) >= 2 * driver.machine.config.report_period_ms


def test_an_old_report_that_arrives_late_changes_nothing() -> None:
    driver = Driver(load=LIGHT)
    driver.receive(LoadReport(broker="B2", cluster="C", status=BalancingStatus.OK, load=LIGHT, number=7))
    driver.receive(LoadReport(broker="B2", cluster="C", status=BalancingStatus.BUSY, load=HEAVY, number=6))
    assert driver.machine.peers["B2"].status is BalancingStatus.OK


def test_a_backlog_that_drains_gives_nothing_away_and_accepts_nothing() -> None:
    draining = msgspec.structs.replace(broker_load(subscriptions=100), cpu=1.0, backlog=500)
    driver = Driver("thesis", load=draining)
    driver.now_ms += 2000
    driver.receive(
        LoadReport(broker="B2", cluster="C", status=BalancingStatus.OK, load=broker_load(subscriptions=90), number=1)
    )
    for _ in range(20):
        driver.wake()
    assert driver.status() is BalancingStatus.NOT_AVAILABLE
    assert not driver.messages(SessionRequest)
