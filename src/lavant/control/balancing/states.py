"""The states of brokers and clusters, and their transitions (Figure 3.3).

A broker:                                       A cluster:

          overloaded                                  an edge overloaded
     OK ─────────────► N/A                         OK ─────────────► N/A
     ▲ ╲              ╱ │ ▲                        ▲ ▲╲             ╱ │
     │  ╲ session    ╱  │ │ overloaded             │ │ ╲ session   ╱  │ no edge overloaded
     │   ▼          ▼   │ │                        │ │  ▼         ▼   │
     │      BUSY        │ │                        │ └─── BUSY        │
     │       │ ended    │ │                        │   ended          │
     │       ▼          ▼ │                        └──────────────────┘
     └── STABILIZING ◄────┘
    stable          relieved

A transition that is not in the table leaves the state as it is: a BUSY broker stays BUSY when it is overloaded.
"""

from __future__ import annotations

from enum import StrEnum

from lavant.control.balancing.values import BalancingStatus


class StatusEvent(StrEnum):
    """What changes a status."""

    OVERLOADED = "overloaded"
    RELIEVED = "relieved"
    SESSION_BEGUN = "session begun"
    SESSION_ENDED = "session ended"
    STABLE = "stable"


_OK, _BUSY = BalancingStatus.OK, BalancingStatus.BUSY
_NOT_AVAILABLE, _STABILIZING = BalancingStatus.NOT_AVAILABLE, BalancingStatus.STABILIZING

Transitions = dict[tuple[BalancingStatus, StatusEvent], BalancingStatus]

BROKER: Transitions = {
    (_OK, StatusEvent.OVERLOADED): _NOT_AVAILABLE,
    (_OK, StatusEvent.SESSION_BEGUN): _BUSY,
    (_NOT_AVAILABLE, StatusEvent.RELIEVED): _STABILIZING,
    (_NOT_AVAILABLE, StatusEvent.SESSION_BEGUN): _BUSY,
    (_BUSY, StatusEvent.SESSION_ENDED): _STABILIZING,
    (_STABILIZING, StatusEvent.OVERLOADED): _NOT_AVAILABLE,
    (_STABILIZING, StatusEvent.SESSION_BEGUN): _BUSY,
    (_STABILIZING, StatusEvent.STABLE): _OK,
}
"""Figure 3.3a. A stabilising broker begins a session only if it is overloaded."""

CLUSTER: Transitions = {
    (_OK, StatusEvent.OVERLOADED): _NOT_AVAILABLE,
    (_OK, StatusEvent.SESSION_BEGUN): _BUSY,
    (_NOT_AVAILABLE, StatusEvent.RELIEVED): _OK,
    (_NOT_AVAILABLE, StatusEvent.SESSION_BEGUN): _BUSY,
    (_BUSY, StatusEvent.SESSION_ENDED): _OK,
}
"""Figure 3.3b."""


def next_status(table: Transitions, status: BalancingStatus, event: StatusEvent) -> BalancingStatus:
    """
    >>> next_status(BROKER, BalancingStatus.BUSY, StatusEvent.SESSION_ENDED)
    <BalancingStatus.STABILIZING: 'stabilizing'>
    """
    return table.get((status, event), status)
