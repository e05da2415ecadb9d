"""Routes leave in frames of a bounded size, however long their filters are."""

from __future__ import annotations

import pytest
from tests.property import federation_network
from tests.unit.broker.federation.test_links import chain

from lavant.broker.federation.frames import RoutesUpdate
from lavant.broker.federation.routes.router import BYTES_A_FRAME, ENTRIES_A_FRAME, RoutesChange
from lavant.broker.protocol.federation import AdvertisedRoute, BrokerMember, RouteEntry, SubscribedRoute
from lavant.broker.protocol.subscriptions import EncryptedFilter, Subscribe


def long_filter(number: int) -> str:
    """Of 8 kB, and 60 times as long when it is printed as a disjunction."""
    values = ", ".join(f"'{value:05d}'" for value in range(800))
    return f"s in ({values}) and ({' or '.join(f'a{each} = {number}' for each in range(60))})"


def test_many_long_filters_cross_a_link_in_frames_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def encode(frame: object) -> bytes:
        data = encoded(frame)
        if isinstance(frame, RoutesUpdate):
            sizes.append(len(data))
        return data

    encoded = federation_network.encode
    network = chain("A", "B")
    network.cut("A", "B")
    network.settle()
    for number in range(3):
        network.request("B", Subscribe(long_filter(number), f"s{number}"))
    monkeypatch.setattr(federation_network, "encode", encode)
    network.join("A", "B")
    network.settle()
    assert BYTES_A_FRAME / 2 < max(sizes) < BYTES_A_FRAME + (1 << 16)
    held = network.brokers["A"].node.machine.state.neighbours["B"].routes
    assert held.digests() == network.brokers["B"].node.machine.router.outgoing["A"].table.digests()


def test_parts_leave_nothing_out_and_keep_the_order() -> None:
    long = "x" * (BYTES_A_FRAME // 3)
    added: list[RouteEntry] = [
        SubscribedRoute("", EncryptedFilter(1, long.encode())),
        AdvertisedRoute("", long + long),
        BrokerMember("a", "a", 1, 1, [long + long, long + long]),
        *(SubscribedRoute("", f"x = {number}") for number in range(2 * ENTRIES_A_FRAME + 1)),
    ]
    removed = [bytes([number % 256]) for number in range(ENTRIES_A_FRAME + 1)]
    parts = list(RoutesChange(added, removed, []).parts())
    assert [entry for part in parts for entry in part.added] == added
    assert [key for part in parts for key in part.removed] == removed
    assert [len(part.added) for part in parts] == [2, 1, ENTRIES_A_FRAME, ENTRIES_A_FRAME, 1, 0, 0]
    assert list(RoutesChange([], [], []).parts()) == []
