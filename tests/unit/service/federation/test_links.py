"""The links of a broker: effects are performed in order, also if performing one calls the machine again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.unit.service.wiring import ready

from lavant.broker.federation.effects import CloseLink, LinkEffect, LinkNotice
from lavant.broker.machine.effects import Record
from lavant.broker.protocol.subscriptions import Published
from lavant.service.auth.keys import KeyRing
from lavant.service.federation.links import FederationLinks
from lavant.service.federation.settings import FederationSettings
from lavant.service.runtime.clock import ServerClock
from lavant.service.runtime.limits import LIMITS


class ClosingConnection:
    """Tells the links at once that it is closed, as a real one does."""

    host = peer = "B2"

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

    def closed(self, connection: object, now_ms: int) -> list[LinkEffect]:
        return [self.record()]

    def relayed(self, connection: object, number: int, entries: list[Any], now_ms: int) -> list[LinkEffect]:
        return [self.record()]

    def wakeup_ms(self) -> int | None:
        return None


def test_records_reach_the_journal_in_the_order_of_their_positions() -> None:
    async def run() -> list[int]:
        positions: list[int] = []
        failures: list[Exception] = []
        service = SimpleNamespace(
            limits=LIMITS,
            has_failed=False,
            fail=failures.append,
            loop=asyncio.get_running_loop(),
            closed=lambda connection: None,
            perform=lambda effects: positions.extend(each.position for each in effects),
            ingest=SimpleNamespace(go_on=lambda: None),
        )
        machine: Any = RecordingMachine()
        links = FederationLinks(
            service,  # type: ignore[arg-type]
            machine,
            FederationSettings(name="B1"),
            ServerClock(),
            keys=KeyRing(),
            readiness=ready(),
        )
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
