"""For each rule a history that breaks it, and those nearby that do not."""

from __future__ import annotations

import pytest
from tests.unit.broker.queues.history.histories import STALE, Script

from lavant.broker.protocol.queue_config import DAY_MS, DEDUPLICATION_MS
from lavant.broker.protocol.queues import Refused
from lavant.broker.queues.history.checker import DUPLICATE, GONE, LOST, REFUSED, SHARED, STILL_THERE, TOO_OFTEN, UNIQUE
from lavant.broker.queues.history.identity import NUMBERS, NUMBERS_RISE, RECEIVED_UNSENT
from lavant.broker.queues.history.ordering import BLOCKED, STARTED_EARLY
from lavant.core.errors import InvalidValue

NOT_IN_FLIGHT = Refused("NotInFlight", "nobody has it")


@pytest.fixture
def script() -> Script:
    return Script()


def test_a_message_that_is_sent_received_and_acknowledged_breaks_no_rule(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.acknowledge(1, 40, 50, lease=1)
    assert script.broken(left={}) == []


# ── nothing is lost ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_confirmed_message_that_is_gone_is_lost(script: Script) -> None:
    script.send(1, 0, 10)
    assert script.broken(left={}) == [LOST]
    assert script.broken(left={1: "bag"}) == []
    assert script.broken(left=None) == []  # nobody looked


def test_a_message_whose_send_was_not_answered_may_be_gone(script: Script) -> None:
    script.send(1, 0, None)
    assert script.broken(left={}) == []


def test_what_was_received_must_not_vanish_even_if_its_send_was_not_answered(script: Script) -> None:
    script.send(1, 0, None)
    script.receive(1, 20, 30, lease=1)
    assert script.broken(left={}) == [LOST]
    script.acknowledge(1, 40, None, lease=1)
    assert script.broken(left={}) == []


def test_a_refused_acknowledgement_is_no_reason_to_be_gone(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.acknowledge(1, 2_000, 2_010, lease=1, refused=STALE)
    assert script.broken(left={}) == [LOST]


def test_an_acknowledgement_that_was_over_before_the_last_delivery_is_no_reason(script: Script) -> None:
    script.send(1, 0, 10, queue="mortal")
    script.receive(1, 20, 30, lease=1, queue="mortal", first_ms=20)
    script.acknowledge(1, 5_000, 5_010, lease=1, queue="mortal")  # it was a dead letter by then
    script.receive(1, 6_000, 6_010, lease=9, queue="dead", first_ms=6_000)
    assert script.broken(left={}) == [LOST]
    assert script.broken(left={1: "dead"}) == []


def test_a_purge_explains_what_is_gone_unless_it_was_over_before(script: Script) -> None:
    script.send(1, 100, 110)
    script.purge(50, 90)
    assert script.broken(left={}) == [LOST]
    script.purge(105, 107)
    assert script.broken(left={}) == []


def test_a_purge_of_the_dead_letters_explains_it_too(script: Script) -> None:
    script.send(1, 0, 10, queue="mortal")
    script.purge(100, None, queue="dead")
    assert script.broken(left={}) == []


def test_a_message_may_be_gone_when_its_retention_is_over(script: Script) -> None:
    script.send(1, 0, 10)
    script.send(2, 3 * DAY_MS, 3 * DAY_MS + 10)
    assert script.broken(left={2: "bag"}) == [LOST]
    assert script.broken(left={2: "bag"}, clock_jumps_ms=DAY_MS) == []
    script.send(3, 4 * DAY_MS, 4 * DAY_MS + 10)
    assert script.broken(left={2: "bag", 3: "bag"}) == []


def test_a_duplicate_does_not_need_a_purge_of_its_own(script: Script) -> None:
    script.send(1, 0, 10, queue="line", name="n")
    script.purge(20, 30, queue="line")
    script.send(1, 40, 50, queue="line", name="n", body=b"again")
    assert script.broken(left={}) == []


# ── what is received was sent ─────────────────────────────────────────────────────────────────────────────────────────


def test_what_nobody_sent_must_not_be_received(script: Script) -> None:
    script.receive(1, 0, 10, lease=1)
    assert script.broken() == [RECEIVED_UNSENT]


def test_what_was_refused_must_not_be_received(script: Script) -> None:
    script.send(STALE, 0, 10, body=b"1")
    script.receive(1, 20, 30, lease=1)
    assert script.broken() == [RECEIVED_UNSENT]


def test_what_is_sent_only_later_must_not_be_received(script: Script) -> None:
    script.receive(1, 0, 10, lease=1)
    script.send(1, 11, 20)
    assert script.broken() == [RECEIVED_UNSENT]


def test_what_is_being_sent_may_be_received(script: Script) -> None:
    script.receive(1, 0, 10, lease=1)
    script.send(1, 9, None)
    assert script.broken() == []


def test_a_message_comes_from_its_queue_or_that_of_its_dead_letters(script: Script) -> None:
    script.send(1, 0, 10, queue="mortal")
    script.receive(1, 20, 30, lease=1, queue="dead")
    assert script.broken() == []
    script.receive(1, 2_020, 2_030, lease=2, queue="bag")
    assert script.broken() == [RECEIVED_UNSENT]


def test_a_message_keeps_its_group(script: Script) -> None:
    script.send(1, 0, 10, queue="line", group="a")
    script.receive(1, 20, 30, lease=1, queue="line", group="b")
    assert script.broken() == [RECEIVED_UNSENT]


def test_a_number_means_one_message(script: Script) -> None:
    script.send(1, 0, None, body=b"lost in the crash")
    script.receive(1, 20, 30, lease=1, body=b"lost in the crash")
    script.restarts_ms.append(40)
    script.send(1, 50, 60, body=b"another")
    assert script.broken() == [NUMBERS]


def test_numbers_rise_from_send_to_send(script: Script) -> None:
    script.send(2, 0, 10)
    script.send(1, 10, 20)
    assert script.broken() == []  # both may have happened at the same time
    script.send(0, 21, 30)
    assert script.broken() == [NUMBERS_RISE]


def test_bodies_that_are_alike_cannot_be_checked(script: Script) -> None:
    script.send(1, 0, 10, body=b"same")
    script.send(2, 20, 30, body=b"same")
    with pytest.raises(InvalidValue, match="same"):
        script.broken()


# ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_gets_a_message_while_a_lease_is_in_force(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.receive(1, 900, 910, lease=2)
    assert script.broken() == [SHARED]


@pytest.mark.parametrize("end_ms", [1_018, 1_020, 2_000])
def test_a_lease_that_may_have_run_out_is_shared_with_nobody(script: Script, end_ms: int) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.receive(1, 900, end_ms, lease=2)
    assert script.broken() == []


def test_a_fast_clock_ends_leases_early(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.receive(1, 900, 980, lease=2)
    assert script.broken() == [SHARED]
    assert script.broken(clock_ppm=50_000) == []


def test_a_restart_may_forget_a_lease(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.receive(1, 500, 510, lease=2)
    script.restarts_ms.append(600)
    assert script.broken() == [SHARED]
    script.restarts_ms.append(300)
    assert script.broken() == []


def test_a_lease_that_was_given_back_is_over(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.change(1, 0, 505, None, lease=1)
    script.receive(1, 490, 500, lease=2)
    assert script.broken() == [SHARED]
    script.change(1, 0, 495, None, lease=1)
    assert script.broken() == []


def test_a_lease_that_was_extended_lasts_longer(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.change(1, 5_000, 100, 110, lease=1)
    script.receive(1, 2_000, 2_010, lease=2)
    assert script.broken() == [SHARED]


def test_an_extension_that_was_not_confirmed_may_not_have_happened(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.change(1, 5_000, 100, None, lease=1)
    script.receive(1, 2_000, 2_010, lease=2)
    assert script.broken() == []


def test_an_extension_counts_from_its_confirmation_only(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.receive(1, 1_000, 1_030, lease=2)
    script.change(1, 5_000, 1_010, 1_020, lease=1)
    assert script.broken() == []


def test_a_lease_is_given_once_even_after_a_restart(script: Script) -> None:
    script.send(1, 0, 10)
    script.send(2, 0, 10)
    script.receive(1, 20, 30, lease=7)
    script.restarts_ms.append(40)
    script.receive(2, 50, 60, lease=8)
    assert script.broken() == []
    script.receive(1, 2_000, 2_010, lease=7)
    assert script.broken() == [UNIQUE]


def test_what_was_received_too_often_is_a_dead_letter(script: Script) -> None:
    script.send(1, 0, 10, queue="mortal")
    script.receive(1, 20, 30, lease=1, queue="mortal", times=3)
    assert script.broken() == []
    script.receive(1, 2_020, 2_030, lease=2, queue="mortal", times=4)
    assert script.broken() == [TOO_OFTEN]


# ── acknowledgements ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_acknowledged_is_not_received_again(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.acknowledge(1, 40, 50, lease=1)
    script.restarts_ms.append(60)
    script.receive(1, 70, 80, lease=2)
    assert script.broken() == [GONE]


@pytest.mark.parametrize(("end_ms", "refused"), [(None, None), (71, None), (50, STALE)])
def test_what_may_not_have_been_acknowledged_may_be_received(
    script: Script, end_ms: int | None, refused: Refused | None
) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.restarts_ms.append(35)
    script.acknowledge(1, 40, end_ms, lease=1, refused=refused)
    script.receive(1, 70, 80, lease=2)
    assert script.broken() == []


def test_what_is_acknowledged_is_not_there_in_the_end(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.acknowledge(1, 40, 50, lease=1)
    assert script.broken(left={1: "bag"}) == [STILL_THERE]


def test_a_late_acknowledgement_does_not_reach_a_dead_letter(script: Script) -> None:
    script.send(1, 0, 10, queue="mortal")
    script.receive(1, 20, 30, lease=1, queue="mortal", first_ms=20)
    script.acknowledge(1, 5_000, 5_010, lease=1, queue="mortal")
    script.receive(1, 6_000, 6_010, lease=9, queue="dead", first_ms=6_000)
    script.move(7_000, 7_010)
    script.receive(1, 8_000, 8_010, lease=10, queue="mortal", first_ms=8_000)
    assert script.broken(left={1: "mortal"}) == []


def test_a_message_that_had_not_left_its_queue_was_acknowledged(script: Script) -> None:
    script.send(1, 0, 10, queue="mortal")
    script.receive(1, 20, 30, lease=1, queue="mortal", first_ms=20)
    script.acknowledge(1, 5_000, 5_010, lease=1, queue="mortal")
    script.receive(1, 6_000, 6_010, lease=2, queue="mortal", first_ms=20, times=2)
    assert script.broken() == [GONE]


def test_an_acknowledgement_in_time_ends_a_message_wherever_it_turns_up(script: Script) -> None:
    script.send(1, 0, 10, queue="mortal")
    script.receive(1, 20, 30, lease=1, queue="mortal", first_ms=20)
    script.acknowledge(1, 40, 50, lease=1, queue="mortal")
    script.receive(1, 6_000, 6_010, lease=2, queue="dead", first_ms=6_000)
    assert script.broken() == [GONE]


def test_who_holds_a_lease_is_not_refused(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.acknowledge(1, 40, 50, lease=1, refused=STALE)
    assert script.broken() == [REFUSED]
    script.restarts_ms.append(35)
    assert script.broken() == []


def test_who_is_late_may_be_refused(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.acknowledge(1, 1_000, 1_050, lease=1, refused=STALE)
    assert script.broken() == []


def test_a_change_of_visibility_is_refused_when_the_message_may_be_gone(script: Script) -> None:
    script.send(1, 0, 10)
    script.receive(1, 20, 30, lease=1)
    script.change(1, 500, 40, 50, lease=1, refused=NOT_IN_FLIGHT)
    assert script.broken() == [REFUSED]
    script.acknowledge(1, 45, None, lease=1)
    assert script.broken() == []


# ── order ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def send_in_line(script: Script, *numbers: int, group: str = "g") -> None:
    for number in numbers:
        script.send(number, 0, 10, queue="line", group=group)


def test_a_message_does_not_start_before_the_one_ahead_of_it(script: Script) -> None:
    send_in_line(script, 1, 2)
    script.receive(2, 20, 30, lease=1, queue="line", group="g")
    assert script.broken() == [STARTED_EARLY]


def test_a_message_starts_when_the_one_ahead_may_be_done(script: Script) -> None:
    send_in_line(script, 1, 2)
    script.receive(1, 20, 30, lease=1, queue="line", group="g")
    script.acknowledge(1, 40, None, lease=1, queue="line")
    script.receive(2, 35, 45, lease=2, queue="line", group="g")
    assert script.broken() == []


def test_one_receive_may_take_several_of_a_group_in_order(script: Script) -> None:
    send_in_line(script, 1, 2, 3)
    script.receive([1, 2, 3], 20, 30, lease=1, queue="line", group="g")
    assert script.broken() == []


def test_a_receive_that_leaves_one_out_breaks_the_order(script: Script) -> None:
    send_in_line(script, 1, 2, 3)
    script.receive([1, 3], 20, 30, lease=1, queue="line", group="g")
    assert script.broken() == [STARTED_EARLY]


def test_a_receive_gives_out_a_group_in_order(script: Script) -> None:
    send_in_line(script, 1, 2)
    script.receive([2, 1], 20, 30, lease=1, queue="line", group="g")
    assert script.broken() == [STARTED_EARLY]


def test_another_group_does_not_wait(script: Script) -> None:
    send_in_line(script, 1)
    send_in_line(script, 2, group="h")
    script.receive(2, 20, 30, lease=1, queue="line", group="h")
    assert script.broken() == []


def test_a_message_whose_send_was_not_answered_holds_nobody_up(script: Script) -> None:
    script.send(1, 0, None, queue="line", group="g")
    send_in_line(script, 2)
    script.receive(2, 20, 30, lease=1, queue="line", group="g")
    assert script.broken() == []


def test_a_purge_lets_the_next_start(script: Script) -> None:
    send_in_line(script, 1, 2)
    script.purge(15, 40, queue="line")
    script.receive(2, 20, 30, lease=1, queue="line", group="g")
    assert script.broken() == []


def test_a_duplicate_of_another_group_holds_up_nobody(script: Script) -> None:
    script.send(1, 0, 10, queue="line", group="h", name="n")
    script.send(1, 0, 10, queue="line", group="g", name="n", body=b"again")
    send_in_line(script, 2)
    script.receive(2, 20, 30, lease=1, queue="line", group="g")
    assert script.broken() == []


def test_a_group_is_blocked_while_a_message_of_it_is_in_flight(script: Script) -> None:
    send_in_line(script, 1, 2)
    script.receive(1, 20, 30, lease=1, queue="line", group="g")
    script.receive(2, 40, 50, lease=2, queue="line", group="g")
    assert script.broken() == [BLOCKED, STARTED_EARLY]


def test_a_later_message_blocks_an_earlier_one_too(script: Script) -> None:
    send_in_line(script, 1, 2)
    script.receive([1, 2], 20, 30, lease=1, queue="line", group="g")
    script.change(1, 0, 40, 45, lease=1, queue="line")
    script.receive(1, 50, 60, lease=3, queue="line", group="g", times=2)
    assert script.broken() == [BLOCKED]


@pytest.mark.parametrize("excuse", ["restart", "end of the lease", "given back"])
def test_a_group_may_go_on_when_what_blocked_it_may_have_ended(script: Script, excuse: str) -> None:
    send_in_line(script, 1, 2)
    script.receive([1, 2], 20, 30, lease=1, queue="line", group="g")
    script.change(1, 0, 40, 45, lease=1, queue="line")
    if excuse == "restart":
        script.restarts_ms.append(47)
    elif excuse == "given back":
        script.change(2, 0, 55, None, lease=2, queue="line")
    end_ms = 1_018 if excuse == "end of the lease" else 60
    script.receive(1, 50, end_ms, lease=3, queue="line", group="g", times=2)
    assert script.broken() == []


# ── duplicates ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_name_stands_for_one_message_within_the_window(script: Script) -> None:
    script.send(1, 0, 10, queue="line", name="n")
    script.send(2, 20, 30, queue="line", name="n")
    assert script.broken() == [DUPLICATE]


@pytest.mark.parametrize(("start_ms", "end_ms", "is_explained"), [(12, 18, True), (25, None, True), (31, 40, False)])
def test_a_purge_in_between_lets_a_name_be_used_again(
    script: Script, start_ms: int, end_ms: int | None, is_explained: bool
) -> None:
    script.send(1, 0, 10, queue="line", name="n")
    script.purge(start_ms, end_ms, queue="line")
    script.send(2, 20, 30, queue="line", name="n")
    assert (DUPLICATE not in script.broken()) == is_explained


def test_a_duplicate_gets_the_number_of_the_first(script: Script) -> None:
    script.send(1, 0, 10, queue="line", name="n")
    script.send(1, 20, 30, queue="line", name="n", body=b"again")
    script.send(2, 40, 50, queue="line", name="m")
    assert script.broken() == []
    script.send(2, 60, 70, queue="line", name="k", body=b"no duplicate")
    assert script.broken() == [NUMBERS]


def test_a_name_may_be_used_again_after_the_window(script: Script) -> None:
    script.send(1, 0, 10, queue="line", name="n")
    script.send(2, DEDUPLICATION_MS, DEDUPLICATION_MS + 10, queue="line", name="n")
    assert script.broken() == []


def test_after_a_restart_only_the_time_that_the_server_says_counts(script: Script) -> None:
    script.send(1, 0, 10, queue="line", name="n")
    script.restarts_ms.append(15)
    script.send(2, 20, 30, queue="line", name="n")
    assert script.broken() == []  # its clock may have been set
    script.receive([1, 2], 40, 50, lease=1, queue="line", sent_ms=77)
    assert script.broken() == [DUPLICATE]
