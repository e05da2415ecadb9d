"""Routes that no broker of Lavant tells: they end that link, and change nothing."""

from __future__ import annotations

import pytest
from tests.unit.broker.federation.test_links import chain

from lavant.broker.federation.frames import RoutesUpdate
from lavant.broker.protocol.federation import BrokerMember


@pytest.mark.parametrize(
    ("path", "opened_ms"),
    [
        ([], []),
        (["id-B"], []),
        (["id-X"], []),
        (["id-Y", "id-B"], []),
        (["id-X", "id-X", "id-B"], []),
        (["id-X", "id-B", "id-B"], []),
        (["id-X", "id-C"], []),
        (["id-X", "id-B"], [1, 2]),
    ],
)
def test_a_broker_whose_path_does_not_lead_to_the_neighbour_is_refused(path: list[str], opened_ms: list[int]) -> None:
    network = chain("A", "B")
    node = network.brokers["A"].node
    [(connection, session)] = node.machine.sessions.items()
    update = RoutesUpdate(
        session.updates_received + 1, [BrokerMember("id-X", "X", 1, 1, path, opened_ms=opened_ms)], [], []
    )
    network.perform("A", node.frame(connection, update, network.now_ms))
    network.settle()
    [refusal] = network.refusals
    assert "the path to broker 'X' is malformed" in refusal.reason
    assert len(node.machine.roles.roles) == 2
    network.restart("A")
    network.join("A", "B")
    network.settle()
    assert [each.is_up for each in network.brokers["A"].node.machine.sessions.values()] == [True]
