"""Admission control: bounds that hold whatever comes and goes, and who has to go first."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.service.auth.tenants import ANYBODY
from lavant.service.net.admission import ConnectionAdmission, Ticket

STEPS = st.lists(st.tuples(st.sampled_from(["admit", "authenticated", "leave", "gone"]), st.integers(0, 20)))


@given(STEPS, st.integers(1, 8), st.integers(1, 8))
def test_bounds_hold_and_only_the_oldest_stranger_is_closed(
    steps: list[tuple[str, int]], connections_max: int, unauthenticated_max: int
) -> None:
    admission = ConnectionAdmission(connections_max=connections_max, unauthenticated_max=unauthenticated_max)
    present: list[Ticket] = []
    strangers: list[Ticket] = []
    closed: list[Ticket] = []
    for step, place in steps:
        if step == "admit":
            before = len(closed)
            ticket = admission.admit()
            if len(present) >= connections_max:
                assert ticket is None
                continue
            assert ticket is not None
            ticket.hang_up = lambda ticket=ticket: closed.append(ticket)  # type: ignore[misc]
            if len(strangers) >= unauthenticated_max:
                assert closed[before:] == [strangers.pop(0)]
            else:
                assert len(closed) == before
            present.append(ticket)
            strangers.append(ticket)
        elif present:
            ticket = present[place % len(present)]
            if ticket in strangers:
                strangers.remove(ticket)
            if step == "authenticated":
                ticket.authenticated(ANYBODY)
            else:
                present.remove(ticket)
                for _ in range(1 if step == "leave" else 2):
                    ticket.leave()
        assert (len(admission), list(admission.unauthenticated)) == (len(present), strangers)


def test_what_happens_often_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    admission = ConnectionAdmission(connections_max=3, unauthenticated_max=2)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            admission.admit()
    assert len(caplog.records) == 2
    samples = {family.name: list(family.samples) for family in admission.families()}
    assert samples["lavant_connections_closed"] == [({"reason": "limit"}, 97), ({"reason": "unauthenticated"}, 1)]
    assert samples["lavant_open_connections"] == [({}, 3)]
