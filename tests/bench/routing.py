"""Routing between brokers: publications through a broker that forwards them, and the stock subscriptions that a
neighbour holds.

`python -m tests.bench.routing` prints both.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from lavant.broker.federation.columns import routed_columns
from lavant.broker.federation.effects import LinkEffect, RelayPublications, SendFrame
from lavant.broker.federation.frames import LINK_PROTOCOL, LinkHello, LinkOpen, LinkPublications, RoutesUpdate
from lavant.broker.federation.machine import FederationMachine
from lavant.broker.federation.routes.router import ANYTHING, LOCAL, Router
from lavant.broker.federation.routes.tables import NO_ROUTES
from lavant.broker.federation.session import FederationConfig
from lavant.broker.machine.effects import Record
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.federation import RouteEntry, SubscribedRoute
from lavant.broker.protocol.queues import FanOut
from lavant.broker.protocol.subscriptions import Deliver, Published
from lavant.broker.subscriptions.admission import Admission
from lavant.core.frames import frame
from lavant.service.engines.filters import FilterAdmission
from lavant.service.engines.interface import EngineBatch
from lavant.service.engines.local import LocalEngine
from lavant.service.runtime.process import GARBAGE_THRESHOLD

SUBSCRIPTIONS = 10_000
BATCH = 250
PUBLICATIONS = 50_000
FRAME_SIZES = (1, 10, 30, 250)
FRAMES = 300
FEW_SUBSCRIPTIONS = 100
SYMBOLS = 500

encode = msgspec.msgpack.Encoder().encode


class Forwarding(NamedTuple):
    """A broker between two neighbours, with all that the service does for a publication but sockets and the disk."""

    publications_per_s: float
    matches: float
    bytes_journal: float
    """A publication takes in the journal, like the next one in a frame."""
    bytes_frame: float


class ForwardingBroker:
    """Publications come from `upstream`; `downstream` wants them."""

    def __init__(self, subscriptions: int, batches: list[LinkPublications]) -> None:
        self.server = BrokerMachine(BrokerState())
        config = FederationConfig(name="middle", identity="m", window_publications=1 << 40, window_bytes=1 << 50)
        self.machine = FederationMachine(self.server, config)
        self.engine = LocalEngine(1)
        self.filters = FilterAdmission(self.engine)
        self.admission = Admission(
            self.server.queues, self.server.broker.subscriptions, publications_max=1 << 30, bytes_max=1 << 40
        )
        self.batches = batches
        self.journal_bytes = self.frame_bytes = self.forwarded = 0
        self.server.open(1)
        self.commit(self.machine.open(1))
        for name in ("upstream", "downstream"):
            self.commit(self.machine.accepted(name, 1))
            hello = LinkHello(LINK_PROTOCOL, name, name, 1, 1, "", [], 0, NO_ROUTES, 1)
            self.commit(self.machine.frame(name, hello, 1))
            self.commit(self.machine.frame(name, LinkOpen(f"link-{name}", True, [], 0, NO_ROUTES), 1))
        width = 1 / 100
        entries: list[RouteEntry] = [
            SubscribedRoute("", f"x >= {n / subscriptions:.6f} and x < {n / subscriptions + width:.6f}")
            for n in range(subscriptions)
        ]
        self.commit(self.machine.frame("downstream", RoutesUpdate(1, entries, [], []), 1))
        changes = self.server.broker.subscriptions.changes
        self.filters.apply(changes, {})
        changes.clear()

    def run(self) -> None:
        for batch in self.batches:
            self.commit(self.machine.frame("upstream", batch, 2))

    def commit(self, effects: list[LinkEffect]) -> None:
        """Perform effects, on a disk that takes no time, until nothing is left to do."""
        while effects:
            more: list[Any] = []
            for effect in effects:
                if isinstance(effect, Record):
                    self.journal_bytes += len(effect.data)
                elif isinstance(effect, SendFrame):
                    self.send(effect)
                elif isinstance(effect, RelayPublications):
                    more += self.relay(effect)
            if self.server.durable < self.server.position:
                replies: list[Any] = self.server.committed(self.server.position, 2)
                for reply in replies:
                    if reply.client is self.machine.client:
                        self.machine.client.reply(reply)
                    else:
                        more += self.machine.relayed(reply.client, reply.number, reply.answer.entries, 2)
                more += self.machine.committed(2)
            effects = more

    def relay(self, relay: RelayPublications) -> list[Any]:
        context = RequestContext(relay.connection, relay.number, None)
        admitted = self.admission.relay(context, relay.batch, relay.indexes, relay.link)
        publications = list(admitted.accepted.values())
        effects: list[Any] = []
        for part in self.engine.publish(EngineBatch(namespace="", scheme="plain", publications=publications)):
            own = range(part.start, part.stop)
            fan_out = FanOut([publications[n].body for n in own], part.queues, part.ends, part.places)
            routed = routed_columns("", [admitted.relayed[n] for n in own])
            effects += self.server.deliver(Deliver(fan_out, routed=routed), [], 2)
        self.admission.matched([admitted])
        answers: list[Any] = [(context, Published(admitted.entries))]
        return effects + self.server.deliver(Deliver(FanOut([], b"", b"", b"")), answers, 2)

    def send(self, effect: SendFrame) -> None:
        if isinstance(effect.frame, LinkPublications):
            self.forwarded += len(effect.frame.bodies)
            self.frame_bytes += len(frame(1, effect.frame))


def incoming(publications: int, batch: int) -> list[LinkPublications]:
    """Frames of so many publications each."""
    source = random.Random(1)
    batches = []
    for first in range(1, publications, batch):
        bodies = [
            msgspec.json.encode({"x": source.uniform(0.02, 0.98), "symbol": "IBM", "@id": f"1-{n}", "@time_ms": 1})
            for n in range(first, first + batch)
        ]
        numbers = np.arange(first, first + batch, dtype="<u8").tobytes()
        batches.append(
            LinkPublications(first, "", bodies, [], ["o"], bytes(2 * batch), numbers, bytes(batch), entered_ms=1)
        )
    return batches


def measure_frames(batch: int) -> float:
    """Processor time in microseconds of a publication in a frame of so many, all of which are forwarded."""
    batches = incoming(FRAMES * batch, batch)
    taken = [timed(ForwardingBroker(FEW_SUBSCRIPTIONS, batches).run).processor_s for _ in range(5)]
    return 1e6 * min(taken) / (len(batches) * batch)


def measure_forwarding() -> Forwarding:
    batches = incoming(PUBLICATIONS, BATCH)
    ForwardingBroker(SUBSCRIPTIONS, batches[:4]).run()  # compiles
    brokers = [ForwardingBroker(SUBSCRIPTIONS, batches) for _ in range(3)]
    taken_s = []
    for broker in brokers:
        start = time.thread_time()
        broker.run()
        taken_s.append(time.thread_time() - start)
        assert broker.forwarded == len(batches) * BATCH
    count = len(batches) * BATCH
    journal = brokers[0].journal_bytes / count
    return Forwarding(count / min(taken_s), SUBSCRIPTIONS / 100, journal, brokers[0].frame_bytes / count)


class Taken(NamedTuple):
    """How long something took."""

    processor_s: float
    wall_s: float

    def __str__(self) -> str:
        return f"{self.processor_s:.2f} s of the processor, {self.wall_s:.2f} s by the clock"


def timed(work: Callable[[], None]) -> Taken:
    processor_s, wall_s = time.thread_time(), time.perf_counter()
    work()
    return Taken(time.thread_time() - processor_s, time.perf_counter() - wall_s)


class Exchange(NamedTuple):
    """The first exchange of routes between two brokers."""

    subscriptions: int
    told: int
    derived: Taken
    """To derive what the neighbour should hold."""
    learned: Taken
    """By the neighbour, without its matcher."""


def stock_filters(count: int, seed: int) -> list[str]:
    """As `StockWorkload`, as texts."""
    source = random.Random(seed)
    levels = [(source.uniform(5, 200), int(source.lognormvariate(12, 1))) for _ in range(SYMBOLS)]
    filters = []
    for template in source.choices(range(6), weights=(20, 20, 20, 34, 5, 1), k=count):
        symbol = source.randrange(SYMBOLS)
        price, volume = levels[symbol]
        price, volume = round(price * source.uniform(0.9, 1.1), 2), int(volume * source.uniform(0.5, 2))
        one = f"class = 'STOCK' and symbol = 'S{symbol}'"
        texts = (
            f"{one} and high > {price}",
            f"{one} and low < {price}",
            f"{one} and volume > {volume}",
            one,
            f"class = 'STOCK' and volume > {volume}",
            "class = 'STOCK'",
        )
        filters.append(texts[template])
    return filters


def measure_exchange(count: int, *, without_general: bool) -> Exchange:
    """`without_general` leaves out the templates without a symbol, which cover all others; both have a seed of their
    own, because texts that were parsed once are remembered."""
    gc.set_threshold(GARBAGE_THRESHOLD)  # as in the server
    texts = [text for text in stock_filters(count, 1 + without_general) if not without_general or "symbol" in text]
    router = Router()

    def derive() -> None:
        router.add_neighbour("B")
        router.add("B", ANYTHING)
        for text in texts:
            router.add(LOCAL, SubscribedRoute("", text))

    derived = timed(derive)
    entries = list(router.outgoing["B"].table)
    machine = FederationMachine(BrokerMachine(BrokerState()), FederationConfig(name="B", identity="b"))
    machine.server.open(1)
    machine.open(1)

    def connect() -> None:
        machine.accepted("A", 1)
        machine.frame("A", LinkHello(LINK_PROTOCOL, "A", "a", 1, 1, "", [], 0, NO_ROUTES, 1), 1)
        machine.frame("A", LinkOpen("link", True, [], 0, NO_ROUTES), 1)
        for effect in machine.server.committed(machine.server.position, 1):
            machine.client.reply(effect)  # type: ignore[arg-type]
        machine.committed(1)
        for number, start in enumerate(range(0, len(entries), 1000), 1):
            machine.frame("A", RoutesUpdate(number, entries[start : start + 1000], [], []), 1)

    learned = timed(connect)
    assert len(machine.state.neighbours["A"].routes) == len(entries)
    return Exchange(len(texts), len(entries), derived, learned)


def main() -> None:
    forwarding = measure_forwarding()
    print(
        f"forwarding: {forwarding.publications_per_s:,.0f} publications/s on one core, {SUBSCRIPTIONS:,} subscriptions "
        f"of the neighbour, {forwarding.matches:.0f} match; {forwarding.bytes_journal:.0f} bytes each in the journal, "
        f"{forwarding.bytes_frame:.0f} in a frame"
    )
    by_size = ", ".join(f"{size}: {measure_frames(size):.1f}" for size in FRAME_SIZES)
    print(f"processor time of a publication in µs, by publications in a frame: {by_size}")
    for without_general in (False, True):
        stock = measure_exchange(100_000, without_general=without_general)
        print(
            f"stock{' with a symbol' if without_general else ''}: {stock.subscriptions:,} subscriptions, the neighbour "
            f"holds {stock.told:,}; derived in {stock.derived}; learned in {stock.learned}"
        )


if __name__ == "__main__":
    main()
