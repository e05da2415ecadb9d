"""Brokers in two network namespaces, a delayed and lossy link between them: nothing is lost, nothing comes twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.integration.certificates import write_certificate
from tests.integration.federations import Broker, wait_for_subscriptions, wait_until
from tests.integration.lossy_network import LossyNetwork, Site
from tests.integration.test_federation import lavant, publish_all, received_in_time
from tests.integration.test_migration import move

from lavant.broker.protocol.federation import SubscriptionMigrated

pytestmark = pytest.mark.soak

PUBLICATIONS = 3000


class Distant(msgspec.Struct):
    """B1 and B2 at the left, B3 at the right, which joined B2 over the link, with TLS and a key."""

    network: LossyNetwork
    first: Broker
    middle: Broker
    last: Broker

    @property
    def ends(self) -> list[tuple[Site, Broker]]:
        """The brokers at both sides that clients talk to."""
        return [(self.network.left, self.first), (self.network.right, self.last)]


def knows_all(broker: Broker) -> bool:
    return len(broker.view()["members"]) == 3


@pytest.fixture
def distant(tmp_path: Path) -> Iterator[Distant]:
    keys = tmp_path / "keys.toml"
    key = lavant("keys", "new", "b3", "--file", str(keys), "--scope", "broker").stdout.strip()
    with LossyNetwork(loss=0.03, delay_s=(0.01, 0.04), seed=16) as network:
        left, right = network.left, network.right
        certificate, certificate_key = map(str, write_certificate(tmp_path, address=left.address))
        secure = ("--keys-file", str(keys), "--tls-certificate", certificate, "--tls-key", certificate_key)
        trusting = ("--join-key", key, "--join-ca-file", certificate)
        middle = left.run(Broker, tmp_path, "B2", options=("--host", left.address, *secure))
        url = f"lavants://{left.address}:{middle.port}"
        first = left.run(Broker, tmp_path, "B1", url, options=trusting)
        last = right.run(Broker, tmp_path, "B3", url, options=trusting)
        world = Distant(network, first, middle, last)
        try:
            for site, broker in world.ends:
                site.run(wait_until, partial(knows_all, broker))
            yield world
        finally:
            for broker in (first, middle, last):
                broker.kill()


def test_publications_cross_a_lossy_link_once_while_the_broker_before_it_is_killed(distant: Distant) -> None:
    for site, broker in distant.ends:
        site.run(broker.subscribe, "price >= 0", "all")
    for site, broker in distant.ends:
        site.run(wait_for_subscriptions, broker, "B2", 1)
    half = threading.Event()
    publishers = [site.start(publish_all, broker, PUBLICATIONS, broker.name, half) for site, broker in distant.ends]
    half.wait()
    distant.middle.kill()
    distant.network.left.run(distant.middle.start)
    for publisher in publishers:
        publisher.result()
    expected = Counter(f"{broker.name}-{number}" for _, broker in distant.ends for number in range(PUBLICATIONS))
    for site, broker in distant.ends:
        found = site.run(received_in_time, broker, expected.total())
        assert found == expected, (broker.name, expected - found, found - expected)
    assert distant.network.dropped > 20


def test_a_subscription_moves_over_a_lossy_link_while_publications_pass(distant: Distant) -> None:
    network, first, last = distant.network, distant.first, distant.last
    network.left.run(first.subscribe, "price >= 0", "all")
    network.right.run(wait_for_subscriptions, last, "B2", 1)
    half = threading.Event()
    publishers = [site.start(publish_all, broker, PUBLICATIONS, broker.name, half) for site, broker in distant.ends]
    half.wait()
    answer = network.left.run(move, first, "all", "B3")
    assert isinstance(answer, SubscriptionMigrated), answer
    for publisher in publishers:
        publisher.result()
    expected = Counter(f"{broker.name}-{number}" for _, broker in distant.ends for number in range(PUBLICATIONS))
    found = network.right.run(received_in_time, last, expected.total())
    assert found == expected, (expected - found, found - expected)
