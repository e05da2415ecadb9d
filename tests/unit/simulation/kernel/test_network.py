"""Links delay, lose, duplicate and reorder; cuts and crashes drop what is on its way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.context import SimulationContext
from lavant.simulation.kernel.distributions import Constant, Distribution, Exponential
from lavant.simulation.kernel.network import LinkConfig, SimulatedNetwork

COUNT = 2_000


class Inbox:
    """A receiver that notes when what came."""

    def __init__(self, stage: SimulationContext) -> None:
        self.incarnation = 1
        self.is_up = True
        self.seen: list[tuple[int, Any]] = []
        self._stage = stage

    def receive(self, source: str, payload: Any, /) -> bool:
        if self.is_up:
            self.seen.append((self._stage.now_us, payload))
        return self.is_up

    @property
    def payloads(self) -> list[Any]:
        return [payload for _, payload in self.seen]


class Wire:
    """Two hosts, a and b."""

    def __init__(
        self,
        *,
        delay_us: Distribution | None = None,
        loss: float = 0.0,
        duplication: float = 0.0,
        reordering: float = 0.0,
        outlives_crash: bool = False,
    ) -> None:
        self.stage = SimulationContext(1)
        self.network = SimulatedNetwork(self.stage)
        self.network.config = LinkConfig(
            delay_us=Constant(100) if delay_us is None else delay_us,
            loss=loss,
            duplication=duplication,
            reordering=reordering,
            outlives_crash=outlives_crash,
        )
        self.a, self.b = Inbox(self.stage), Inbox(self.stage)
        self.network.attach("a", self.a)
        self.network.attach("b", self.b)

    def send(self, count: int, gap_us: int = 10) -> Wire:
        for number in range(count):
            self.stage.calendar.enter(self.stage.now_us + number * gap_us, self.network.send, "a", "b", number)
        return self

    def run(self, until_us: int = 10**12) -> Wire:
        self.stage.calendar.run(until_us=until_us, events_max=10**9)
        return self


def test_a_packet_takes_the_delay_of_its_link() -> None:
    assert Wire(delay_us=Constant(70)).send(3).run().b.seen == [(70, 0), (80, 1), (90, 2)]


def test_without_reordering_nothing_overtakes_however_delays_vary() -> None:
    wire = Wire(delay_us=Exponential(10_000)).send(COUNT).run()
    assert wire.b.payloads == list(range(COUNT))


def test_with_reordering_some_are_held_back_and_none_is_lost() -> None:
    wire = Wire(reordering=0.1).send(COUNT).run()
    assert wire.b.payloads != list(range(COUNT))
    assert sorted(wire.b.payloads) == list(range(COUNT))
    assert 0.07 * COUNT < wire.stage.figures["packets held back"] < 0.13 * COUNT


def test_a_packet_that_is_held_back_does_not_hold_back_others() -> None:
    wire = Wire(reordering=0.05).send(COUNT).run()
    in_time = [number for time_us, number in wire.b.seen if time_us == number * 10 + 100]
    assert len(in_time) > 0.9 * COUNT


def test_packets_are_lost_with_their_chance() -> None:
    wire = Wire(loss=0.2).send(COUNT).run()
    assert 0.75 * COUNT < len(wire.b.seen) < 0.85 * COUNT
    assert wire.stage.figures["packets dropped"] == COUNT - len(wire.b.seen)


def test_packets_come_twice_with_their_chance_and_never_thrice() -> None:
    wire = Wire(duplication=0.2).send(COUNT).run()
    times = [wire.b.payloads.count(number) for number in range(COUNT)]
    assert set(times) == {1, 2}
    assert 0.15 * COUNT < times.count(2) < 0.25 * COUNT


def test_a_storm_adds_to_losses_and_delays_of_all_links() -> None:
    wire = Wire()
    wire.network.loss_extra = 0.5
    wire.network.slowness = 10
    wire.send(COUNT).run()
    assert 0.4 * COUNT < len(wire.b.seen) < 0.6 * COUNT
    assert all(time_us == number * 10 + 1000 for time_us, number in wire.b.seen)


def test_a_link_can_be_set_apart_from_the_others_before_and_after_its_first_packet() -> None:
    wire = Wire()
    wire.network.configure("a", "b", LinkConfig(delay_us=Constant(5)))
    wire.send(1).run()
    wire.network.configure("b", "a", LinkConfig(delay_us=Constant(7)))
    wire.send(1).run()
    assert [time_us for time_us, _ in wire.b.seen] == [5, 5 + 7]


def test_links_have_chances_of_their_own() -> None:
    alone, beside = Wire(loss=0.5).send(100).run(), Wire(loss=0.5)
    for number in range(50):
        beside.network.send("b", "a", number)
    assert beside.send(100).run().b.payloads == alone.b.payloads


# ── cuts and crashes ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_cut_is_one_way_until_it_is_healed() -> None:
    wire = Wire()
    heal = wire.network.cut([("a", "b")])
    wire.network.send("a", "b", "lost")
    wire.network.send("b", "a", "arrives")
    wire.run()
    heal()
    wire.network.send("a", "b", "arrives too")
    wire.run()
    assert (wire.a.payloads, wire.b.payloads) == (["arrives"], ["arrives too"])


def test_a_partition_is_both_ways() -> None:
    wire = Wire()
    wire.network.partition(["a"], ["b"])
    wire.network.send("a", "b", 1)
    wire.network.send("b", "a", 1)
    wire.run()
    assert wire.a.seen == wire.b.seen == []


def test_what_is_on_its_way_when_a_cut_comes_is_lost() -> None:
    wire = Wire().send(1).run(until_us=50)
    wire.network.cut([("a", "b")])
    assert wire.run().b.seen == []


def test_two_cuts_over_each_other_both_have_to_heal() -> None:
    wire = Wire()
    heals = [wire.network.cut([("a", "b")]) for _ in range(2)]
    for heal in heals:
        wire.send(1).run()
        assert wire.b.seen == []
        heal()
    assert len(wire.send(1).run().b.seen) == 1


def test_a_packet_for_a_host_that_is_down_is_dropped() -> None:
    wire = Wire()
    wire.b.is_up = False
    assert wire.send(1).run().stage.figures["packets dropped"] == 1


@pytest.mark.parametrize(("outlives_crash", "arrived"), [(False, 0), (True, 1)])
def test_a_packet_on_its_way_outlives_the_crash_of_its_receiver_if_the_link_says_so(
    outlives_crash: bool, arrived: int
) -> None:
    wire = Wire(outlives_crash=outlives_crash).send(1).run(until_us=50)
    wire.b.incarnation += 1
    assert len(wire.run().b.seen) == arrived


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_packet_to_nobody_is_an_error_that_names_who_is_there() -> None:
    with pytest.raises(InvalidValue, match="no host is called 'c'; there are a, b"):
        Wire().network.send("a", "c", 1)


@pytest.mark.parametrize("name", ["loss", "duplication", "reordering"])
def test_a_chance_lies_between_0_and_1(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"{name} is a probability and must lie in 0 to 1, got 1.5"):
        msgspec.structs.replace(LinkConfig(), **{name: 1.5})
