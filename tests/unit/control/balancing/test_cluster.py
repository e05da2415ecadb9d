"""The machine of a cluster's head: reports, sessions of clusters, and their ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.balancing.cases import broker_load

from lavant.control.balancing.cluster import QUIET_TURNS_MAX, ClusterBalancer
from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.values import (
    BalancingEffect,
    BalancingStatus,
    BalancingStimulus,
    BrokerLoad,
    ControlMessage,
    FollowCluster,
    HelpRequest,
    LoadIndex,
    LoadReport,
    MessageArrived,
    SendControl,
    SessionDone,
    SessionReply,
    SessionRequest,
    TimePassed,
    WatchCluster,
)

HEAVY, LIGHT = broker_load(subscriptions=600), broker_load(subscriptions=100)
CONFIG = BalancingConfig()


class Head:
    """The head H1 with the edges E1 and E2, driven by hand. Its neighbours are H2 and H3."""

    def __init__(self, load: BrokerLoad = HEAVY) -> None:
        self.machine = ClusterBalancer("H1", edges=["E1", "E2"], neighbours=["H2", "H3"], config=CONFIG)
        self.now_ms = 0
        self.load = load
        self.log: list[BalancingEffect] = []
        self.edges()

    def send(self, stimulus: BalancingStimulus) -> list[BalancingEffect]:
        effects = self.machine.handle(stimulus, self.now_ms)
        self.log.extend(effects)
        return effects

    def receive(self, message: ControlMessage) -> list[BalancingEffect]:
        return self.send(MessageArrived(message=message))

    def edges(
        self, status: BalancingStatus = BalancingStatus.OK, balanced: tuple[str, ...] = (), cluster: str = "H1"
    ) -> None:
        """Both edge brokers of a cluster report."""
        for edge in ("E1", "E2") if cluster == "H1" else ("F1", "F2"):
            self.receive(
                LoadReport(
                    broker=edge,
                    cluster=cluster,
                    status=status,
                    load=self.load,
                    balanced_with=balanced,
                    number=self.now_ms + 1,
                )
            )

    def neighbour(self, head: str, load: BrokerLoad, status: BalancingStatus = BalancingStatus.OK) -> None:
        self.receive(
            LoadReport(broker=head, cluster=head, status=status, load=load, number=self.now_ms + 1, is_of_cluster=True)
        )

    def turn(self) -> None:
        """Until the next detection, with edges that report again."""
        self.now_ms += CONFIG.cluster_detection_ms_max
        self.edges()
        self.send(TimePassed())

    def messages(self, kind: type) -> list[tuple[str | None, ControlMessage]]:
        sent = [effect for effect in self.log if isinstance(effect, SendControl)]
        return [(effect.to, effect.message) for effect in sent if isinstance(effect.message, kind)]

    def open(self) -> str:
        """A session with H2."""
        self.neighbour("H2", LIGHT)
        self.turn()
        ((_, request),) = self.messages(SessionRequest)
        assert isinstance(request, SessionRequest)
        self.receive(SessionReply(session=request.session, sender="H2", status=BalancingStatus.OK))
        return request.session

    def status(self) -> BalancingStatus:
        return self.machine.status


def test_a_head_reports_the_mean_of_its_edges_to_its_neighbours() -> None:
    head = Head()
    reports = head.messages(LoadReport)
    assert [to for to, _ in reports] == ["H2", "H3"]
    head.turn()
    _, report = head.messages(LoadReport)[-1]
    assert isinstance(report, LoadReport)
    assert report.load.input_utilization == HEAVY.input_utilization
    assert report.is_of_cluster


def test_a_session_makes_the_edges_of_both_clusters_watch_each_other() -> None:
    head = Head()
    head.open()
    assert head.machine.partner == "H2"
    assert head.status() is BalancingStatus.BUSY
    assert [(to, message.is_on) for to, message in head.messages(FollowCluster)] == [  # type: ignore[union-attr]
        ("E1", True),
        ("E2", True),
    ]
    assert WatchCluster(cluster="H2", is_on=True) in head.log


def test_the_least_loaded_cluster_is_asked_first_then_the_next() -> None:
    head = Head()
    head.neighbour("H2", broker_load(subscriptions=300))
    head.neighbour("H3", LIGHT)
    head.turn()
    ((to, request),) = head.messages(SessionRequest)
    assert to == "H3"
    assert isinstance(request, SessionRequest)
    head.receive(SessionReply(session=request.session, sender="H3", status=BalancingStatus.BUSY))
    assert [to for to, _ in head.messages(SessionRequest)] == ["H3", "H2"]
    head.now_ms += CONFIG.reply_ms
    head.send(TimePassed())
    assert head.machine.partner is None


def test_a_session_ends_when_all_edges_are_balanced() -> None:
    head = Head()
    session = head.open()
    everyone = ("E1", "E2", "F1", "F2")
    head.now_ms += 1000
    head.edges(balanced=everyone)
    head.edges(balanced=everyone, cluster="H2")
    head.now_ms += CONFIG.cluster_detection_ms_max
    head.edges(balanced=everyone)
    head.send(TimePassed())
    assert head.messages(SessionDone) == [("H2", SessionDone(session=session, sender="H1"))]
    assert head.machine.partner is None
    assert WatchCluster(cluster="H2", is_on=False) in head.log


def test_a_session_in_which_nobody_moves_anything_ends() -> None:
    head = Head()
    head.open()
    for _ in range(QUIET_TURNS_MAX + 2):
        head.now_ms += CONFIG.cluster_detection_ms_max
        head.edges()
        head.edges(cluster="H2")
        head.send(TimePassed())
    assert len(head.messages(SessionDone)) == 1


def test_a_session_with_a_cluster_that_is_out_of_reach_ends() -> None:
    head = Head()
    session = head.open()
    head.edges(cluster="H2")
    for _ in range(QUIET_TURNS_MAX):
        assert head.machine.session == session
        head.turn()
    assert head.machine.session is None
    assert WatchCluster(cluster="H2", is_on=False) in head.log


def test_only_the_head_of_the_other_cluster_ends_a_session() -> None:
    head = Head()
    session = head.open()
    head.receive(SessionDone(session=session, sender="H3"))
    assert head.machine.partner == "H2"
    head.receive(SessionDone(session=session, sender="H2"))
    assert head.machine.partner is None


def test_a_session_ends_at_its_deadline() -> None:
    head = Head()
    head.open()
    head.now_ms += CONFIG.cluster_session_ms_max
    head.send(TimePassed())
    assert head.machine.partner is None


def test_edges_that_go_on_asking_for_help_get_another_cluster() -> None:
    head = Head()
    head.open()
    head.neighbour("H3", LIGHT)
    for _ in range(CONFIG.help_requests_max):
        head.receive(HelpRequest(sender="E1"))
    assert [to for to, _ in head.messages(SessionRequest)] == ["H2", "H3"]
    assert len(head.messages(SessionDone)) == 1


def test_a_head_that_has_just_started_and_hears_of_no_edge_yet_leaves_a_session_for_no_other() -> None:
    head = Head()
    head.machine = ClusterBalancer("H1", edges=["E1", "E2"], neighbours=["H2", "H3"], config=CONFIG)
    head.receive(SessionRequest(session="s", sender="H2", cluster="H2", index=LoadIndex.SHARES, deadline_ms=60_000))
    head.neighbour("H3", LIGHT)
    for _ in range(CONFIG.help_requests_max):
        head.receive(HelpRequest(sender="E1"))
    assert [to for to, _ in head.messages(SessionDone)] == ["H2"]
    assert head.messages(SessionRequest) == []


def test_a_stranger_cannot_ask_for_help() -> None:
    head = Head()
    head.neighbour("H2", LIGHT)
    head.receive(HelpRequest(sender="X"))
    assert head.messages(SessionRequest) == []
    head.receive(HelpRequest(sender="E1"))
    assert len(head.messages(SessionRequest)) == 1


def test_an_overloaded_cluster_accepts_nothing_and_passes_reports_on() -> None:
    head = Head()
    head.edges(BalancingStatus.NOT_AVAILABLE)
    head.now_ms += 1
    head.edges(BalancingStatus.NOT_AVAILABLE)
    assert head.status() is BalancingStatus.NOT_AVAILABLE
    before = len(head.messages(LoadReport))
    head.neighbour("H2", LIGHT)
    assert [to for to, _ in head.messages(LoadReport)[before:]] == ["H3"]
    request = SessionRequest(session="s", sender="H2", cluster="H2", index=LoadIndex.SHARES, deadline_ms=1000)
    head.receive(request)
    ((_, reply),) = head.messages(SessionReply)
    assert isinstance(reply, SessionReply)
    assert reply.status is BalancingStatus.NOT_AVAILABLE


def test_a_head_that_is_asked_accepts_once() -> None:
    head = Head(LIGHT)
    request = SessionRequest(session="s", sender="H2", cluster="H2", index=LoadIndex.SHARES, deadline_ms=1000)
    other = SessionRequest(session="t", sender="H3", cluster="H3", index=LoadIndex.SHARES, deadline_ms=1000)
    for each in (request, other, request):
        head.receive(each)
    statuses = [message.status for _, message in head.messages(SessionReply)]  # type: ignore[union-attr]
    assert statuses == [BalancingStatus.OK, BalancingStatus.BUSY, BalancingStatus.OK]
    head.receive(SessionDone(session="s", sender="H2"))
    assert head.status() is BalancingStatus.OK


EVENTS = ("edges", "their edges", "light", "heavy", "overloaded", "help", "accept", "refuse", "asked", "done", "time")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, CONFIG.cluster_report_expiry_ms)), max_size=60))
def test_a_head_never_wants_to_be_woken_in_the_past(events: list[tuple[str, int]]) -> None:
    """Or its server would do nothing else."""
    head = Head()
    for event, passed_ms in events:
        head.now_ms += passed_ms
        asked = [message for _, message in head.messages(SessionRequest) if isinstance(message, SessionRequest)]
        session = asked[-1].session if asked else "none"
        match event:
            case "edges":
                head.edges()
            case "their edges":
                head.edges(cluster="H2")
            case "light" | "heavy":
                head.neighbour("H2", LIGHT if event == "light" else HEAVY)
            case "overloaded":
                head.edges(BalancingStatus.NOT_AVAILABLE)
            case "help":
                head.receive(HelpRequest(sender="E1"))
            case "accept" | "refuse":
                status = BalancingStatus.OK if event == "accept" else BalancingStatus.BUSY
                head.receive(SessionReply(session=session, sender="H2", status=status))
            case "asked":
                request = SessionRequest(
                    session="H3/1", sender="H3", cluster="H3", index=LoadIndex.SHARES, deadline_ms=60_000
                )
                head.receive(request)
            case "done":
                head.receive(SessionDone(session=session, sender="H2"))
            case _:
                head.send(TimePassed())
        wakeup_ms = head.machine.wakeup_ms()
        assert wakeup_ms is None or wakeup_ms > head.now_ms
