"""Receives that wait: who is served when, with what, and who is not."""

from __future__ import annotations

from tests.unit.broker.machine.servers import Bench, bench_with_queue, receipts

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    Done,
    EndLongPolls,
    Receive,
    Refused,
    Send,
    SendEntry,
    Sent,
    VisibilityChange,
)


def test_a_receive_that_waits_gets_what_is_sent_when_that_is_durable() -> None:
    bench = bench_with_queue()
    number = bench.receive("bob", wait_ms=1000)
    assert bench.answer(number, "bob") is None
    bench.send(b"one")
    assert bench.answer(number, "bob") is None
    bench.commit(len(bench.records) - 1)
    assert bench.bodies(number, "bob") == [b"one"]


def test_receives_that_wait_are_served_in_the_order_in_which_they_came() -> None:
    bench = bench_with_queue()
    numbers = [bench.receive(client, wait_ms=1000) for client in ("ann", "bob", "cid")]
    bench.send(b"1", b"2")
    bench.commit()
    assert bench.bodies(numbers[0], "ann") == [b"1"]
    assert bench.bodies(numbers[1], "bob") == [b"2"]
    assert bench.answer(numbers[2], "cid") is None


def test_who_asks_now_comes_behind_those_who_wait_when_a_lease_runs_out() -> None:
    bench = bench_with_queue(config=QueueConfig(visibility_ms=100))
    bench.send(b"one")
    bench.commit()
    bench.receive("ann")
    waiting = bench.receive("bob", wait_ms=1000)
    bench.now_ms = 100
    late = bench.receive("cid")
    assert bench.bodies(waiting, "bob") == [b"one"]
    assert bench.bodies(late, "cid") == []


def test_who_ends_its_long_polls_gets_nothing_more_and_others_are_served() -> None:
    bench = bench_with_queue()
    bench.ask(CreateQueue("other", QueueConfig()))
    bench.commit()
    ended = [bench.receive("ann", wait_ms=1000), bench.receive("ann", wait_ms=1000)]
    elsewhere = bench.ask(Receive("other", wait_ms=1000), "ann")
    waiting = bench.receive("bob", wait_ms=1000)
    done = bench.ask(EndLongPolls("q"), "ann")
    assert [bench.bodies(number, "ann") for number in ended] == [[], []]
    assert bench.answer(done, "ann") == Done()
    bench.send(b"one")
    bench.commit()
    assert bench.bodies(waiting, "bob") == [b"one"]
    assert bench.answer(elsewhere, "ann") is None, "polls at another queue go on"
    assert bench.answer(bench.ask(EndLongPolls("nosuch"), "ann"), "ann") == Done()


def test_the_end_of_long_polls_is_told_after_what_was_leased_before() -> None:
    bench = bench_with_queue()
    leased = bench.receive("ann", wait_ms=1000)
    bench.send(b"one")
    done = bench.ask(EndLongPolls("q"), "ann")
    assert (bench.answer(leased, "ann"), bench.answer(done, "ann")) == (None, None)
    bench.commit()
    assert bench.bodies(leased, "ann") == [b"one"]
    assert bench.answer(done, "ann") == Done()


def test_time_is_up_at_the_millisecond_and_the_answer_is_empty() -> None:
    bench = bench_with_queue()
    bench.now_ms = 50
    number = bench.receive(wait_ms=1000)
    assert bench.server.wakeup_ms() == 1050
    bench.tick(1049)
    assert bench.answer(number) is None
    bench.tick(1050)
    assert bench.bodies(number) == []
    assert bench.server.wakeup_ms() is None


def test_a_message_that_comes_in_the_last_millisecond_is_delivered() -> None:
    bench = bench_with_queue()
    bench.send(b"one", delay_ms=1000)
    bench.commit()
    number = bench.receive(wait_ms=1000)
    bench.tick(1000)
    assert bench.bodies(number) == [b"one"]


def test_a_receive_waits_as_long_as_its_queue_says_unless_it_says_otherwise() -> None:
    bench = bench_with_queue(config=QueueConfig(wait_ms=300))
    own, other, none = bench.receive("ann"), bench.receive("ann", wait_ms=500), bench.receive("ann", wait_ms=0)
    assert bench.bodies(none) == []
    bench.tick(300)
    assert (bench.bodies(own), bench.answer(other)) == ([], None)
    bench.tick(500)
    assert bench.bodies(other) == []


def test_a_lease_that_runs_out_wakes_who_waits() -> None:
    bench = bench_with_queue(config=QueueConfig(visibility_ms=700))
    bench.send(b"one")
    bench.commit()
    bench.receive("ann")
    number = bench.receive("bob", wait_ms=5000)
    assert bench.server.wakeup_ms() == 700
    bench.tick(700)
    assert bench.bodies(number, "bob") == [b"one"]


def test_a_message_that_is_given_back_wakes_who_waits() -> None:
    bench = bench_with_queue()
    bench.send(b"one")
    bench.commit()
    [receipt] = receipts(bench, bench.receive())
    number = bench.receive("bob", wait_ms=5000)
    bench.ask(ChangeVisibility("q", [VisibilityChange(receipt, 0)]))
    assert bench.bodies(number, "bob") == [b"one"]


def test_an_acknowledgement_lets_the_next_of_its_group_go_to_who_waits() -> None:
    bench = bench_with_queue(config=QueueConfig(order="in-order"))
    entries = [SendEntry(body, group="g", deduplication=body.decode()) for body in (b"1", b"2")]
    bench.do(Send("q", entries), Sent)
    [receipt] = receipts(bench, bench.receive())
    number = bench.receive("bob", wait_ms=5000)
    bench.ask(Acknowledge("q", [receipt]))
    assert bench.bodies(number, "bob") == [b"2"]


def test_room_in_flight_lets_who_waits_go_on() -> None:
    bench = bench_with_queue(config=QueueConfig(in_flight_max=1))
    bench.send(b"1")
    bench.commit()
    [receipt] = receipts(bench, bench.receive())
    number = bench.receive("bob", wait_ms=5000)
    bench.send(b"2")
    bench.commit()
    assert bench.answer(number, "bob") is None
    bench.ask(Acknowledge("q", [receipt]))
    assert bench.bodies(number, "bob") == [b"2"]


def test_who_waits_for_a_queue_that_is_deleted_is_told() -> None:
    bench = bench_with_queue()
    numbers = [bench.receive("bob", wait_ms=5000) for _ in range(3)]
    bench.do(DeleteQueue("q"), Done)
    for number in numbers:
        answer = bench.answer(number, "bob")
        assert isinstance(answer, Refused)
        assert answer.code == "UnknownQueue"


def test_nothing_is_leased_to_a_client_that_is_gone() -> None:
    bench = bench_with_queue()
    gone, there = bench.receive("bob", wait_ms=5000), bench.receive("cid", wait_ms=5000)
    bench.server.gone("bob")
    bench.send(b"one")
    bench.commit()
    assert bench.bodies(there, "cid") == [b"one"]
    assert bench.answer(gone, "bob") is None
    bench.tick(5000)
    assert bench.answer(gone, "bob") is None
    assert [command for command in bench.commands() if isinstance(command, Receive)] == [Receive("q", 1, None, 5000)]


def test_waiting_receives_are_counted_and_bounded() -> None:
    bench = Bench(waiting_max=2)
    bench.create()
    bench.receive("ann", wait_ms=1000)
    bench.receive("bob", wait_ms=1000)
    number = bench.receive("bob", wait_ms=1000)
    answer = bench.answer(number, "bob")
    assert isinstance(answer, Refused)
    assert answer.code == "LimitExceeded"
    assert (bench.server.waiting("bob"), bench.server.waiting_total) == (1, 2)


def test_dead_letters_reach_who_waits_for_them() -> None:
    bench = Bench()
    bench.create("dead")
    bench.create("q", QueueConfig(visibility_ms=100, dead_letters="dead", receives_max=1))
    bench.send(b"bad")
    bench.commit()
    bench.receive("ann")
    undertaker = bench.receive("bob", queue="dead", wait_ms=5000)
    bench.now_ms = 100
    assert bench.bodies(bench.receive("ann")) == []
    assert bench.bodies(undertaker, "bob") == [b"bad"]
    bench.commit()
    assert list(bench.replayed().snapshot()) == list(bench.server.queues.snapshot())


def test_dead_letters_reach_who_waits_for_them_also_if_they_were_all_that_there_was() -> None:
    bench = Bench()
    bench.create("dead")
    bench.create("q", QueueConfig(visibility_ms=100, dead_letters="dead", receives_max=1))
    bench.send(b"one")
    bench.commit()
    bench.receive("ann")
    worker = bench.receive("ann", wait_ms=5000)
    undertaker = bench.receive("bob", queue="dead", wait_ms=5000)
    bench.tick(100)
    bench.commit()
    assert bench.bodies(worker, "ann") is None
    assert bench.bodies(undertaker, "bob") == [b"one"]


def test_a_dead_letter_does_not_end_the_wait_of_who_waits_for_a_living_one() -> None:
    bench = Bench()
    bench.create("dead")
    bench.create("q", QueueConfig(visibility_ms=100, dead_letters="dead", receives_max=1))
    bench.send(b"bad")
    bench.commit()
    bench.receive("ann")
    number = bench.receive("bob", wait_ms=5000)
    bench.tick(100)
    assert bench.answer(number, "bob") is None
    bench.send(b"good")
    bench.commit()
    assert bench.bodies(number, "bob") == [b"good"]


def test_two_queues_that_take_each_others_dead_letters_do_not_chase_each_other_for_ever() -> None:
    bench = Bench()
    bench.create("p")
    bench.create("q", QueueConfig(visibility_ms=100, dead_letters="p", receives_max=1))
    bench.ask(ConfigureQueue("p", QueueConfig(visibility_ms=100, dead_letters="q", receives_max=1)))
    for queue in ("p", "q"):
        bench.ask(Send(queue, [SendEntry(b"%d" % number) for number in range(400)]))
        bench.commit()
        bench.receive(queue=queue, count=400)
    waiting = [bench.receive("bob", queue=queue, wait_ms=5000) for _ in range(50) for queue in ("p", "q")]
    bench.tick(100)
    bench.commit()
    assert all(len(bench.bodies(number, "bob") or []) == 1 for number in waiting)


def test_when_the_server_stops_those_who_wait_are_told_that_nothing_came() -> None:
    bench = bench_with_queue()
    numbers = [bench.receive("bob", wait_ms=wait_ms) for wait_ms in (5000, 100)]
    bench.perform(bench.server.stop(0))
    assert [bench.bodies(number, "bob") for number in numbers] == [[], []]
