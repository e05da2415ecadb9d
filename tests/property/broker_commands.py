"""Random commands of every kind for a broker, possible ones and impossible ones, in a few namespaces.

`GENERATORS` has an entry for every command that is declared; whoever adds a command adds one here, or a test fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from tests.unit.broker.workflows.machines import CHAIN, CHOICE, DIAMOND

from lavant.broker.federation.routes.tables import key_of
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol import federation as f
from lavant.broker.protocol import jobs as w
from lavant.broker.protocol import queues as q
from lavant.broker.protocol import subscriptions as s
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.queues.compatibility import RULES
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.workflows.definitions.definition import Workflows
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.core.publications.trace_context import NO_TRACE, TraceContext

_T = TypeVar("_T")
_SHORT = ["a", "b", "c", "a-dead"]
_QUEUES = [*_SHORT, *_SHORT, "acme/a", "acme/b", "acme/a-dead", "umbrella/a", "topic.A", "dead.A"]
_NAMESPACES = ["", "", "acme", "umbrella"]
_BAD_NAMES = ["", "no name", "x" * 81, "a/b/c", "a\0"]
_TEXTS = ["", "x", "y", "z" * 300]
_VISIBILITIES_MS = [0, 100, 5_000, 30_000, 30_000]
_CYCLE = 'topics = ["A"]\n[jobs.cycle]\nstart = "x"\ntasks.x = { topic = "A" }\n'
_WORKFLOWS = [read_workflows(text) for text in (CHAIN, DIAMOND, CHOICE, _CYCLE)]


class Commands:
    """Makes commands, most of them about what there is in a broker."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.receipts: list[tuple[str, q.Receipt]] = [("a", q.Receipt(1, 7))]
        self.assigned: list[tuple[int, str, int]] = [(1, "load", 1), (99, "load", 1)]
        self.moves = [1]
        self.existing: list[str] = []

    def next(self, broker: BrokerState) -> Any:
        listed = broker.queues.handle(q.ListQueues(), 0)
        assert isinstance(listed, q.Listed)
        self.existing = listed.queues
        kind = self.random.choices(list(GENERATORS), weights=[_WEIGHTS.get(each, 2) for each in GENERATORS])[0]
        return GENERATORS[kind](self, broker)

    def learn(self, command: Any, answer: Any) -> None:
        """What later commands can be about."""
        if isinstance(answer, q.Received):
            self.receipts += [(command.queue, each.receipt) for each in answer.deliveries]
        elif isinstance(answer, w.TasksLeased):
            self.assigned += [(each.job, each.task, each.attempt) for each in answer.tasks]
        elif isinstance(answer, q.MoveStarted):
            self.moves.append(answer.task)
        del self.receipts[:-20], self.assigned[:-10], self.moves[:-5]

    # ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def one(self, *values: _T) -> _T:
        return self.random.choice(values)

    def rarely(self, bad: Callable[[], _T], good: Callable[[], _T]) -> _T:
        return bad() if self.random.random() < 0.06 else good()

    def few(self, make: Callable[[], _T], most: int = 3) -> list[_T]:
        return [make() for _ in range(self.random.randint(0 if self.random.random() < 0.1 else 1, most))]

    def queue(self) -> str:
        return self.rarely(lambda: self.one(*_BAD_NAMES), lambda: self.one(*_QUEUES, *self.existing * 3, *["a"] * 30))

    def name(self) -> str:
        return self.rarely(lambda: self.one(*_BAD_NAMES), lambda: self.one("", *_SHORT))

    def namespace(self) -> str:
        return self.rarely(lambda: self.one("a b", "x" * 41), lambda: self.one(*_NAMESPACES))

    def count(self) -> int:
        return self.rarely(lambda: self.one(0, -1, 1001, 10**6), lambda: self.random.randint(1, 5))

    def config(self) -> QueueConfig:
        order: Any = self.one("out-of-order", "out-of-order", "in-order")
        dead_letters = self.one(None, None, self.queue())
        is_in_order = order == "in-order" or self.random.random() < 0.05
        return QueueConfig(
            order=order,
            visibility_ms=self.rarely(lambda: -5, lambda: self.one(*_VISIBILITIES_MS)),
            delay_ms=self.rarely(lambda: 10**9, lambda: self.one(0, 0, 1_000)),
            retention_ms=self.rarely(lambda: 1, lambda: self.one(60_000, 60_500)),
            depth_max=self.rarely(lambda: 0, lambda: self.one(2, 2, 100)),
            in_flight_max=self.one(1, 1, 100),
            message_bytes_max=self.one(1024, 1 << 20),
            dead_letters=dead_letters,
            receives_max=self.rarely(lambda: 5, lambda: None if dead_letters is None else self.random.randint(1, 2)),
            deduplicate_by_content=is_in_order and self.one(True, False),
            deduplicate_within_group=is_in_order and self.one(True, False),
            labels=self.rarely(lambda: {"k": "v" * 70_000}, dict),
        )

    def tags(self) -> dict[str, str]:
        return self.rarely(lambda: {"k": "v" * 257}, lambda: self.one({}, {"team": "a"}))

    def entry(self) -> q.SendEntry:
        delay_ms = self.rarely(lambda: -1, lambda: self.one(None, None, None, 0, 500))
        group, deduplication = self.one("", "", "g", "h"), self.one("", "", "", "m", "n")
        return q.SendEntry(self.body(), self.one(b"", b"", b"attributes"), delay_ms, group, deduplication)

    def body(self) -> bytes:
        return self.one(b"", b"x", b"y", b"z", bytes(300), bytes(1100))

    def receipt(self) -> tuple[str, q.Receipt]:
        made_up = (self.queue(), q.Receipt(self.random.randint(0, 30), self.random.getrandbits(42)))
        return self.rarely(lambda: made_up, lambda: self.one(*self.receipts[-4:]))

    def webhook(self) -> s.Webhook:
        return s.Webhook(
            self.rarely(lambda: "ftp://x", lambda: "http://example.com/hook"),
            attempts_max=self.rarely(lambda: 0, lambda: self.random.randint(1, 3)),
            timeout_ms=self.rarely(lambda: 1, lambda: 1_000),
        )

    def filter(self) -> str | s.EncryptedFilter:
        encrypted = s.EncryptedFilter(*self.one((3, bytes(48)), (2, b"x")))
        return encrypted if self.random.random() < 0.3 else self.one("a > 1", "b = 'x'", "c like 'x%'")

    def workflows(self) -> Workflows:
        made = self.one(*_WORKFLOWS)
        broken = Workflows((*made.topics, "no topic"), made.jobs)
        return self.rarely(lambda: self.one(broken, Workflows((), made.jobs)), lambda: made)

    def report(self) -> tuple[int, str, int]:
        job, task, attempt = self.one(*self.assigned[-3:])
        return self.rarely(lambda: (job, "nothing", attempt), lambda: (job, task, attempt))

    def result(self) -> w.Result:
        many: Any = {f"a{number}": number for number in range(65)}
        return self.rarely(
            lambda: w.Result(b"", many),
            lambda: w.Result(self.one(b"", b"x" * 90), {"score": self.one(0.1, 0.9)}),
        )

    def spread(self, broker: BrokerState) -> q.FanOut:
        bodies = self.few(lambda: self.one(self.body(), b"shared" * 100, b"large" * 100))
        there = [broker.queues.serial(name) for name in self.existing]
        there += [each.serial for each in broker.federation.neighbours.values()]
        gone = self.random.randint(1, 2 + len(there))
        serials = sorted({self.one(gone, *there) for _ in range(self.random.randint(0, 4))})
        lists = [sorted(self.random.sample(range(len(bodies)), self.random.randint(0, len(bodies)))) for _ in serials]
        if self.random.random() < 0.05 and lists:
            lists[-1].append(99)
        ends = np.cumsum([len(each) for each in lists])
        arrays = (serials, ends, [place for each in lists for place in each])
        return q.FanOut(bodies, *(np.array(each, INTEGERS).tobytes() for each in arrays))

    def neighbour(self) -> tuple[str, str]:
        """Its name, and the link."""
        name = self.one("B1", "B2", "B3")
        return name, self.rarely(lambda: "another", lambda: f"link-{name}")

    def route(self) -> f.RouteEntry:
        member = f.BrokerMember(self.one("i1", "i2"), "B1", self.one(1, 2), 1, ["i1"])
        advertised = f.AdvertisedRoute(self.one("*", "acme"), self.one("true", "a > 1"))
        subscribed = f.SubscribedRoute(self.one(*_NAMESPACES), self.filter())
        routes: list[f.RouteEntry] = [member, advertised, subscribed]
        return self.one(*routes)

    def routed(self, broker: BrokerState, fan_out: q.FanOut) -> s.RoutedPublications:
        """Some from a neighbour, the others published here."""
        count, name = len(fan_out.bodies), self.neighbour()[0]
        if name not in broker.federation.neighbours or self.random.random() < 0.3:
            return s.RoutedPublications("acme")
        floor = broker.federation.neighbours[name].received.floor
        of = np.array([self.random.randint(0, 1) for _ in range(count)], np.uint8)
        start = floor + self.rarely(lambda: 0, lambda: 1)
        numbers = range(start, start + count)
        return s.RoutedPublications(
            "acme",
            [],
            [f"link-{name}"],
            of.tobytes(),
            np.array(numbers, "<u8").tobytes(),
            ["i9"],
            of.astype("<u2").tobytes(),
            np.array(numbers, "<u8").tobytes(),
            of.tobytes(),
        )

    def departure(self, broker: BrokerState) -> str:
        return self.one("m-0", *broker.migrations.departures, *broker.migrations.departures)

    def arrival(self, broker: BrokerState) -> str:
        return self.one("m-0", *broker.migrations.arrivals, *broker.migrations.arrivals)

    def moving_message(self) -> f.MovingMessage:
        times = (self.random.randint(0, 1_000), self.random.randint(0, 1_000), self.one(0, 0, 500))
        received = self.one((0, 0), (2, 7))
        return f.MovingMessage(
            self.random.randint(1, 9), self.body(), self.one(b"", b"a"), *times, *received, "", "", None
        )

    def offsets(self, broker: BrokerState, *, is_accepted: bool) -> dict[str, int]:
        name = self.one("acme/plain", "umbrella/plain")
        lane = broker.subscriptions.log_offsets[name]
        start = lane.accepted if is_accepted else lane.delivered
        more = self.rarely(lambda: -1, lambda: self.random.randint(0, 3))
        return {} if self.random.random() < 0.7 else {name: start + more}

    def keys(self) -> dict[str, list[str | q.Refused]]:
        key = f"k{self.random.randint(1, 9)}"
        return self.one({}, {}, {key: ["1-1"]}, {key: [q.Refused("InvalidValue", "no")]})

    def answered(self) -> list[s.PublishOutcome]:
        key = f"k{self.random.randint(1, 9)}"
        fingerprint = self.one(b"", b"f" * 16, b"g" * 16)
        return self.one([], [], [s.PublishOutcome(self.one(*_NAMESPACES), key, fingerprint, ["1-1"])])


def _deliver(make: Commands, broker: BrokerState) -> s.Deliver:
    fan_out = make.spread(broker)
    return s.Deliver(
        fan_out,
        make.keys(),
        make.offsets(broker, is_accepted=True),
        make.offsets(broker, is_accepted=False),
        make.answered(),
        make.one([], [], [], ["acme/plain"], ["acme/plain", "umbrella/plain"]),
        make.routed(broker, fan_out) if broker.federation.neighbours else None,
    )


def _learn_routes(make: Commands, broker: BrokerState) -> f.LearnRoutes:
    known = [key_of(entry) for each in broker.federation.neighbours.values() for entry in each.routes]
    removed = make.few(lambda: make.one(b"x" * 16, *known))
    buckets = make.rarely(lambda: [256], lambda: make.one([], [], [known[0][0]] if known else [0]))
    return f.LearnRoutes(*make.neighbour(), make.few(make.route), removed, buckets)


def _offer_subscription(make: Commands, broker: BrokerState) -> f.OfferSubscription:
    there = [(each.namespace, each.name) for each in broker.subscriptions]
    namespace, name = make.one((make.namespace(), make.name()), *there, *there)
    migration = f"m-{make.random.randint(1, 9)}"
    return f.OfferSubscription(migration, namespace, name, "i1", "B1", "lavant://b1", 10**9)


def _forget_messages(make: Commands, broker: BrokerState) -> f.ForgetMessages:
    migration = make.departure(broker)
    departure = broker.migrations.departures.get(migration)
    held = [] if departure is None else list(broker.queues.transfers.find(departure.queue).messages)
    return f.ForgetMessages(migration, make.few(lambda: make.one(99, *held)))


def _prepare_arrival(make: Commands, broker: BrokerState) -> f.PrepareArrival:
    config = make.one(s.NEW_QUEUE, make.config())
    letters = None if config.dead_letters is None else QueueConfig(order=config.order)
    name = make.name()
    moving = f.MovingSubscription(
        make.namespace(), name, make.filter(), name, config, make.tags(), make.one(None, make.webhook()), 0, letters
    )
    return f.PrepareArrival(f"m-{make.random.randint(1, 9)}", "i1", "B1", moving)


def _acknowledge(make: Commands, broker: BrokerState) -> q.Acknowledge:
    queue, receipt = make.receipt()
    return q.Acknowledge(queue, make.few(lambda: make.one(receipt, receipt, make.receipt()[1])))


def _change_visibility(make: Commands, broker: BrokerState) -> q.ChangeVisibility:
    queue, receipt = make.receipt()
    visibility_ms = make.rarely(lambda: make.one(-1, 10**9), lambda: make.one(*_VISIBILITIES_MS))
    reason = make.rarely(lambda: "x" * 501, lambda: make.one("", "", "no luck", "größer" * 20))
    return q.ChangeVisibility(queue, make.few(lambda: q.VisibilityChange(receipt, visibility_ms, reason)))


def _receive(make: Commands, broker: BrokerState) -> q.Receive:
    visibility_ms = make.rarely(lambda: -1, lambda: make.one(None, None, *_VISIBILITIES_MS))
    return q.Receive(make.queue(), make.count(), visibility_ms, make.rarely(lambda: 10**6, lambda: None))


def _subscribe(make: Commands, broker: BrokerState) -> s.Subscribe:
    return s.Subscribe(
        make.filter(),
        make.name(),
        queue=make.one("", "", make.name()),
        namespace=make.namespace(),
        config=make.one(s.NEW_QUEUE, make.config()),
        webhook=make.one(None, make.webhook()),
        lease_ms=make.rarely(lambda: make.one(1, -1, 10**9), lambda: make.one(0, 0, 1_000, 60_000)),
    )


GENERATORS: dict[type, Callable[[Commands, BrokerState], Any]] = {
    q.Open: lambda make, broker: q.Open(
        broker.queues.epoch + make.one(1, 1, 0, 2), make.one(0, RULES, RULES, RULES + 1)
    ),
    q.CreateQueue: lambda make, broker: q.CreateQueue(make.queue(), make.config(), make.tags()),
    q.ConfigureQueue: lambda make, broker: q.ConfigureQueue(make.queue(), make.config()),
    q.TagQueue: lambda make, broker: q.TagQueue(make.queue(), make.tags()),
    q.DeleteQueue: lambda make, broker: q.DeleteQueue(make.queue()),
    q.PurgeQueue: lambda make, broker: q.PurgeQueue(make.queue()),
    q.Send: lambda make, broker: q.Send(make.queue(), make.few(make.entry)),
    q.FanOut: lambda make, broker: make.spread(broker),
    q.Receive: _receive,
    q.Acknowledge: _acknowledge,
    q.ChangeVisibility: _change_visibility,
    q.Release: lambda make, broker: q.Release(make.receipt()[0], make.few(lambda: make.receipt()[1])),
    q.StartMove: lambda make, broker: q.StartMove(
        make.queue(), make.one(None, None, make.queue()), make.rarely(lambda: 0, lambda: make.one(None, 10))
    ),
    q.MoveSome: lambda make, broker: q.MoveSome(make.one(99, *make.moves), make.count()),
    q.CancelMove: lambda make, broker: q.CancelMove(make.one(99, *make.moves)),
    s.Subscribe: _subscribe,
    s.UpdateSubscription: lambda make, broker: s.UpdateSubscription(
        make.name(), make.filter(), make.namespace(), make.one(0, 0, make.random.randint(1, 9))
    ),
    s.Unsubscribe: lambda make, broker: s.Unsubscribe(make.name(), make.namespace()),
    s.Advertise: lambda make, broker: s.Advertise("a > 1", make.name(), make.namespace()),
    s.Unadvertise: lambda make, broker: s.Unadvertise(make.name(), make.namespace()),
    s.Deliver: _deliver,
    f.AddNeighbour: lambda make, broker: f.AddNeighbour(
        (name := make.neighbour()[0]), make.one("i1", "i1", ""), f"link-{name}"
    ),
    f.RemoveNeighbour: lambda make, broker: f.RemoveNeighbour(make.neighbour()[0], make.one(True, False)),
    f.LearnRoutes: _learn_routes,
    f.AcknowledgeLink: lambda make, broker: f.AcknowledgeLink(*make.neighbour(), make.random.randint(0, 9)),
    f.RedirectSubscription: lambda make, broker: f.RedirectSubscription(
        make.namespace(), make.one("", make.name()), "B1", "lavant://b1", make.one(0, 1_000, 10**6)
    ),
    f.OfferSubscription: _offer_subscription,
    f.HandOverSubscription: lambda make, broker: f.HandOverSubscription(make.departure(broker)),
    f.ForgetMessages: _forget_messages,
    f.EndDeparture: lambda make, broker: f.EndDeparture(make.departure(broker), make.one(0, 1_000, 10**6)),
    f.PrepareArrival: _prepare_arrival,
    f.TakeMessages: lambda make, broker: f.TakeMessages(make.arrival(broker), make.few(make.moving_message)),
    f.OpenArrival: lambda make, broker: f.OpenArrival(
        make.arrival(broker),
        [(make.one("", "i9"), np.arange(make.random.randint(0, 9), dtype="<u8").tobytes())],
        broker.queues.number + make.one(0, 7),
    ),
    f.EndArrival: lambda make, broker: f.EndArrival(make.arrival(broker)),
    w.DefineJobs: lambda make, broker: w.DefineJobs(make.workflows()),
    w.RemoveJobType: lambda make, broker: w.RemoveJobType(make.one("chain", "diamond", "nothing")),
    w.KeepJobs: lambda make, broker: w.KeepJobs(make.one(-1, 2, 5), make.one(300, 5_000), make.one(5_000, 60_000)),
    w.SubmitJob: lambda make, broker: w.SubmitJob(
        make.one("chain", "diamond", "choice", "nothing"),
        make.one(b"", b"x" * 90),
        make.one("", "", "n", "x" * 129),
        make.one(NO_TRACE, TraceContext(f"00-{7:032x}-{1:016x}-01", "a=b"), TraceContext("no", "trace")),
    ),
    w.AddSchedule: lambda make, broker: w.AddSchedule(
        make.one("s1", "s2", "s3", "no name"),
        (cron := make.one("", "", "*/5 * * * *", "@daily", "0 0 30 2 *", "61 * * * *")),
        make.rarely(lambda: 1, lambda: 0 if cron else make.one(1000, 60_000, 1)),
        (job_type := make.one("", "chain", "nothing")),
        make.rarely(lambda: "nowhere", lambda: "" if job_type else make.one("a", "b", "topic.A")),
        make.one(b"", b"x" * 90),
        make.namespace(),
    ),
    w.RemoveSchedule: lambda make, broker: w.RemoveSchedule(make.one("s1", "s2", "s9"), make.namespace()),
    w.FireSchedule: lambda make, broker: w.FireSchedule(make.one("s1", "s2", "s3", "s9"), make.namespace()),
    w.LeaseTasks: lambda make, broker: w.LeaseTasks(
        make.one("A", "B", "D", "Z"), make.one("ann", "bob", ""), make.count(), None, make.one(None, 500, 0)
    ),
    w.CompleteTask: lambda make, broker: w.CompleteTask(*make.report(), make.result()),
    w.FailTask: lambda make, broker: w.FailTask(
        *make.report(), make.one("", "why", "why not", "x" * 2001), make.one(True, False)
    ),
    w.ExtendTask: lambda make, broker: w.ExtendTask(*make.report(), make.one(0, 500, 5_000)),
    w.CancelJob: lambda make, broker: w.CancelJob(make.random.randint(1, 9)),
    w.ReleaseTasks: lambda make, broker: w.ReleaseTasks(
        [w.TaskAttempt(*make.report()) for _ in range(make.random.randint(0, 3))]
    ),
}
_WEIGHTS: dict[type, int] = {
    q.CreateQueue: 6,
    q.Send: 12,
    q.Receive: 10,
    q.DeleteQueue: 1,
    q.PurgeQueue: 1,
    q.Open: 1,
    s.Subscribe: 10,
    s.Deliver: 8,
    f.AddNeighbour: 4,
    f.RemoveNeighbour: 1,
    f.LearnRoutes: 6,
    w.DefineJobs: 3,
    w.RemoveJobType: 1,
    w.AddSchedule: 5,
    w.RemoveSchedule: 1,
    w.FireSchedule: 4,
    w.SubmitJob: 6,
    w.LeaseTasks: 10,
    w.CompleteTask: 5,
    w.FailTask: 5,
    w.ExtendTask: 4,
    w.ReleaseTasks: 8,
}
