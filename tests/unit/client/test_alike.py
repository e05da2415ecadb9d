"""Both kinds of clients can do the same."""

from __future__ import annotations

import inspect

import pytest

from lavant import connect, connect_async
from lavant.client.async_client import AsyncClient
from lavant.client.client import Client
from lavant.client.queues import AsyncQueue, Queue
from lavant.client.subscriptions.async_subscription import AsyncSubscription
from lavant.client.subscriptions.subscription import ClientSubscription

ONLY_BLOCKING = {"pipeline", "publisher"}
"""Tasks of an event loop need no pipeline, and a publisher has threads of its own."""


def parameters_of(method: object) -> list[str]:
    parameters = inspect.signature(method).parameters.values()  # type: ignore[arg-type]
    return [str(parameter).replace("AsyncHandler", "Handler") for parameter in parameters]


@pytest.mark.parametrize(
    ("blocking", "waiting"), [(Queue, AsyncQueue), (Client, AsyncClient), (ClientSubscription, AsyncSubscription)]
)
def test_both_clients_have_the_same_methods(blocking: type, waiting: type) -> None:
    def signatures(kind: type) -> dict[str, list[str]]:
        methods = inspect.getmembers(kind, callable)
        return {name: parameters_of(method) for name, method in methods if not name.startswith("_")}

    ours = {name: signature for name, signature in signatures(blocking).items() if name not in ONLY_BLOCKING}
    assert ours == signatures(waiting)


def test_both_are_connected_alike() -> None:
    assert parameters_of(connect) == parameters_of(connect_async)
