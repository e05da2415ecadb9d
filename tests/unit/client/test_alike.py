"""Both kinds of clients can do the same."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, assert_type

import pytest

from lavant import connect, connect_async
from lavant.client.async_client import AsyncClient
from lavant.client.client import Client
from lavant.client.consumers.consumer import AsyncConsumer, Consumer, QueueMessage
from lavant.client.queues import AsyncQueue, Queue
from lavant.client.subscriptions.async_subscription import AsyncSubscription
from lavant.client.subscriptions.subscription import Handler, Subscription

ONLY_BLOCKING = {"pipeline", "publisher"}
"""Tasks of an event loop need no pipeline, and a publisher has threads of its own."""


def parameters_of(method: object) -> list[str]:
    parameters = inspect.signature(method).parameters.values()  # type: ignore[arg-type]
    return [str(parameter).replace("Async", "") for parameter in parameters]


PAIRS = [(Queue, AsyncQueue), (Client, AsyncClient), (Subscription, AsyncSubscription), (Consumer, AsyncConsumer)]

if TYPE_CHECKING:

    async def types_are_known(client: Client, asynchronous: AsyncClient, handler: Handler) -> None:
        """Read by mypy alone."""
        assert_type(client.publish({"n": 1}, payload=b""), str)
        assert_type(await asynchronous.publish({"n": 1}), str)
        assert_type(client.queues(), Iterator[str])
        assert_type(asynchronous.queues("a"), AsyncIterator[str])
        assert_type(client.create_queue("q"), Queue)
        assert_type(await asynchronous.create_queue("q"), AsyncQueue)
        assert_type(client.queue("q").send(b""), int)
        assert_type(client.subscribe("a = 1", handler=handler), Subscription)
        assert_type(await asynchronous.subscribe("a = 1"), AsyncSubscription)
        assert_type(client.queue("q").consume(), Consumer)
        assert_type(asynchronous.queue("q").consume(), AsyncConsumer)
        assert_type(client.queue("q").consume().messages(), Iterator[QueueMessage])
        assert_type(Queue.sources, Callable[[Any], list[str]])
        client.publish(1)  # type: ignore[arg-type]
        client.queue("q").send(b"", delay=1)  # type: ignore[call-arg]
        await asynchronous.subscribe("a = 1", workers="two")  # type: ignore[arg-type]


@pytest.mark.parametrize(("blocking", "waiting"), PAIRS)
def test_both_clients_have_the_same_methods(blocking: type, waiting: type) -> None:
    def signatures(kind: type) -> dict[str, list[str]]:
        methods = inspect.getmembers(kind, callable)
        return {name: parameters_of(method) for name, method in methods if not name.startswith("_")}

    ours = {name: signature for name, signature in signatures(blocking).items() if name not in ONLY_BLOCKING}
    assert ours == signatures(waiting)


@pytest.mark.parametrize("kind", [kind for pair in PAIRS for kind in pair])
def test_every_method_is_documented_and_typed(kind: type) -> None:
    shown = pydoc.plain(pydoc.render_doc(kind))
    methods = {name: method for name, method in inspect.getmembers(kind, callable) if not name.startswith("_")}
    for name, method in methods.items():
        assert inspect.isfunction(method)
        assert inspect.getdoc(method), name
        assert inspect.signature(method).return_annotation is not inspect.Signature.empty, name
        assert re.search(rf" {name}\([\s|]*self", shown), name  # newer Pythons print each parameter on a line


def test_methods_name_the_types_of_their_own_client() -> None:
    assert inspect.signature(Client.subscribe).return_annotation == "Subscription"
    assert inspect.signature(AsyncClient.subscribe).return_annotation == "AsyncSubscription"
    assert inspect.signature(Client.queues).return_annotation == "Iterator[str]"
    assert inspect.signature(AsyncClient.create_queue).return_annotation == "AsyncQueue"
    assert inspect.signature(AsyncSubscription.run).parameters["handler"].annotation == "AsyncHandler"


def test_both_are_connected_alike() -> None:
    assert parameters_of(connect) == parameters_of(connect_async)
