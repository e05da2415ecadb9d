"""The links of a broker: effects are performed in order, also if performing one calls the machine again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.service.wiring import ready

from lavant.broker.federation.effects import CloseLink, LinkEffect, LinkNotice
from lavant.broker.federation.frames import LinkFrame, LinkRefused
from lavant.broker.machine.effects import Record
from lavant.broker.protocol.subscriptions import Published
from lavant.core.addresses import Address
from lavant.service.auth.keys import KeyRing
from lavant.service.federation.links import FederationLinks
from lavant.service.federation.settings import FederationSettings
from lavant.service.runtime.clock import ServerClock
from lavant.service.runtime.limits import LIMITS


class ClosingConnection:
    """Tells the links at once that it is closed, as a real one does."""

    host = peer = "B2"
    is_welcome = is_passing = False
    address: Address | None = None
    reason = "it broke"

    def __init__(self, links: FederationLinks) -> None:
        self._links = links

    def close(self, reason: str) -> None:
        self._links.closed(self)  # type: ignore[arg-type]


class RecordingMachine:
    """Each call records something; positions count up, as in the journal."""

    def __init__(self) -> None:
        self.position = 0
        self.closes: Any = None
        self.migrations = SimpleNamespace()

    def record(self) -> Record:
        self.position += 1
        return Record(self.position, b"")

    def committed(self, now_ms: int) -> list[LinkEffect]:
        return [self.record(), CloseLink(self.closes, "gone"), LinkNotice("closed", False), self.record()]

    def frame(self, connection: object, frame: LinkFrame, now_ms: int) -> list[LinkEffect]:
        return []

    def closed(self, connection: object, now_ms: int) -> list[LinkEffect]:
        return [self.record()]

    def relayed(self, connection: object, number: int, entries: list[Any], now_ms: int) -> list[LinkEffect]:
        return [self.record()]

    def wakeup_ms(self) -> int | None:
        return None


def links_of(machine: Any, positions: list[int], failures: list[Exception]) -> FederationLinks:
    service = SimpleNamespace(
        limits=LIMITS,
        has_failed=False,
        fail=failures.append,
        loop=asyncio.get_running_loop(),
        closed=lambda connection: None,
        perform=lambda effects: positions.extend(each.position for each in effects),
        ingest=SimpleNamespace(go_on=lambda: None, admission=SimpleNamespace()),
    )
    return FederationLinks(
        service,  # type: ignore[arg-type]
        machine,
        FederationSettings(name="B1"),
        ServerClock(),
        keys=KeyRing(),
        readiness=ready(),
    )


def test_records_reach_the_journal_in_the_order_of_their_positions() -> None:
    async def run() -> list[int]:
        positions: list[int] = []
        failures: list[Exception] = []
        machine: Any = RecordingMachine()
        links = links_of(machine, positions, failures)
        machine.closes = ClosingConnection(links)
        links.committed()
        links.relayed(machine.closes, 1, Published([]))
        assert len(positions) == 3, "a reply is handled later: the runtime is performing effects"
        await asyncio.sleep(0)
        await links.stop()
        links.committed()
        assert failures == []
        return positions

    assert asyncio.run(run()) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("address", "is_passing", "lines"),
    [
        (None, False, ["refused the link with B2: bad", "B2 refused the link with this broker: bad"]),
        (None, True, []),
        (Address("127.0.0.1", 1), False, []),
    ],
    ids=["accepted", "passes", "dialled"],
)
def test_a_refusal_is_one_line_whoever_refused_and_the_dialler_has_its_own(
    caplog: pytest.LogCaptureFixture, address: Address | None, is_passing: bool, lines: list[str]
) -> None:
    async def run() -> None:
        links = links_of(RecordingMachine(), [], [])
        connection: Any = ClosingConnection(links)
        connection.address, connection.is_passing = address, is_passing
        for _ in range(2):
            links.refused(connection, LinkRefused("invalid", "bad"))
            links.received(connection, LinkRefused("invalid", "bad"))

    asyncio.run(run())
    assert caplog.messages == lines


@pytest.mark.parametrize(("is_welcome", "is_passing"), [(True, False), (True, True), (False, False)])
def test_a_link_that_was_up_and_breaks_is_told_by_both_sides(
    caplog: pytest.LogCaptureFixture, is_welcome: bool, is_passing: bool
) -> None:
    async def run() -> None:
        links = links_of(RecordingMachine(), [], [])
        connection: Any = ClosingConnection(links)
        connection.is_welcome, connection.is_passing = is_welcome, is_passing
        links.closed(connection)

    asyncio.run(run())
    assert caplog.messages == (["the link to B2 is down: it broke"] if is_welcome and not is_passing else [])
