"""Encrypted subscriptions of several schemas in one namespace: a neighbour cannot hold all of them."""

from __future__ import annotations

import numpy as np
from tests.unit.broker.federation.test_links import chain, numbers, publication

from lavant.broker.federation.routes.encrypted_shapes import EncryptedShapes
from lavant.broker.protocol.federation import SubscribedRoute
from lavant.broker.protocol.subscriptions import EncryptedFilter, Publish, Subscribe, Unsubscribe


def encrypted(dimensions: int, value: float = 1.0) -> EncryptedFilter:
    return EncryptedFilter(dimensions, np.full(dimensions, float(value)).tobytes())


def test_encrypted_filters_of_another_shape_do_not_fit() -> None:
    """The matchers of one namespace hold one shape."""
    shapes = EncryptedShapes()
    one, other = (SubscribedRoute("", encrypted(n)) for n in (2, 3))
    elsewhere = SubscribedRoute("elsewhere", encrypted(3))
    assert shapes.unfit([one, one, elsewhere]) == []
    shapes.add(one)
    assert shapes.unfit([one, other, elsewhere]) == [other]
    assert EncryptedShapes().unfit([one, other]) == [other]
    shapes.remove(one)
    assert shapes.unfit([other]) == []


def test_encrypted_subscriptions_that_do_not_fit_leave_the_link_alone_and_are_known_when_they_do() -> None:
    network = chain("A", "B", "C")
    network.request("B", Subscribe("true", "s"))
    network.cut("A", "B")
    network.settle()
    network.request("A", Subscribe(encrypted(2), "e"))
    for name, value in (("B", 1), ("C", 2)):
        network.request(name, Subscribe(encrypted(3, value), "e"))
    for _ in range(2):
        network.join("A", "B")
        network.settle()
        network.request("A", Publish([publication(x=1)]))
        assert numbers(network, "B", "s") == [1]
        [notice] = [each for each in network.notices if "'B' in namespace '' get nothing from here" in each]
        assert "one schema and key for all" in notice
        network.notices.clear()
        network.cut("A", "B")
        network.settle()
    network.join("A", "B")
    network.settle()
    network.request("C", Unsubscribe("e"))
    network.request("A", Unsubscribe("e"))
    assert network.refusals == []
    for one, other in (("A", "B"), ("B", "A"), ("B", "C")):
        told = network.brokers[other].node.machine.router.outgoing[one].table
        assert network.brokers[one].node.machine.state.neighbours[other].routes.digests() == told.digests()
    routes = network.brokers["A"].node.machine.state.neighbours["B"].routes
    assert [each.filter for each in routes if isinstance(each, SubscribedRoute)] == ["true", encrypted(3)]


def test_a_schema_that_changed_while_a_link_was_down_replaces_the_old_one() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe(encrypted(2), "e"))
    network.cut("A", "B")
    network.settle()
    network.request("B", Unsubscribe("e"))
    network.request("B", Subscribe(encrypted(3), "e"))
    network.join("A", "B")
    network.settle()
    routes = network.brokers["A"].node.machine.state.neighbours["B"].routes
    assert [each.filter for each in routes if isinstance(each, SubscribedRoute)] == [encrypted(3)]
    assert network.refusals == []
