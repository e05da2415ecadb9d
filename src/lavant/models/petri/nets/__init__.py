"""Nets that come with Lavant, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lavant.models.petri.monitors import Monitor
from lavant.models.petri.net import Net
from lavant.models.petri.nets.reliable_queue import (
    ReliableQueue,
    histories,
    invariants,
    monitors,
    reliable_queue,
)
from lavant.models.petri.state_space import Invariant, PathProperty


class NetModel(msgspec.Struct, frozen=True):
    """A net with parameters, its monitors, and the properties that it promises."""

    parameters: type[Any]
    build: Callable[[Any], Net]
    monitors: Callable[[Any], tuple[Monitor, ...]]
    invariants: Callable[[Any], tuple[Invariant, ...]]
    histories: Callable[[Any], tuple[PathProperty, ...]]
    small: dict[str, Any]
    """Parameters for a state space, where those by default would make it too large."""


NETS = {
    "reliable-queue": NetModel(
        ReliableQueue,
        reliable_queue,
        monitors,
        invariants,
        histories,
        small={
            "messages": 2,
            "timeouts": 2,
            "sender_threads": 2,
            "broker_threads": 2,
            "nodes": 2,
            "replicas": 2,
        },
    )
}
