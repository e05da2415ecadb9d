"""The transitions of Figure 3.3."""

from __future__ import annotations

import itertools

from lavant.control.balancing.states import BROKER, CLUSTER, StatusEvent, next_status
from lavant.control.balancing.values import BalancingStatus

OK, BUSY = BalancingStatus.OK, BalancingStatus.BUSY
NOT_AVAILABLE, STABILIZING = BalancingStatus.NOT_AVAILABLE, BalancingStatus.STABILIZING


def test_a_busy_broker_leaves_its_session_only_at_its_end() -> None:
    for table in (BROKER, CLUSTER):
        leaving = {event for event in StatusEvent if next_status(table, BUSY, event) is not BUSY}
        assert leaving == {StatusEvent.SESSION_ENDED}


def test_a_broker_is_available_again_only_when_its_load_is_stable() -> None:
    ways = {(status, event) for status, event in BROKER if BROKER[status, event] is OK}
    assert ways == {(STABILIZING, StatusEvent.STABLE)}


def test_a_cluster_never_stabilises() -> None:
    assert STABILIZING not in {*CLUSTER.values(), *(status for status, _ in CLUSTER)}


def test_every_state_leads_back_to_ok() -> None:
    for table, states in ((BROKER, set(BalancingStatus)), (CLUSTER, {OK, BUSY, NOT_AVAILABLE})):
        reached = {OK}
        for _ in states:
            reached |= {status for (status, _), after in table.items() if after in reached}
        assert reached == states


def test_an_event_without_a_transition_changes_nothing() -> None:
    for status, event in itertools.product(BalancingStatus, StatusEvent):
        if (status, event) not in BROKER:
            assert next_status(BROKER, status, event) is status
