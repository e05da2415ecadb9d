"""The server between connections and disk: what is answered when, who waits for what, and what the journal is told."""

from __future__ import annotations

import pytest
from tests.unit.broker.machine.servers import Bench, bench_with_queue, receipts

from lavant.broker.machine.effects import Record
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    ChangeVisibility,
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    ListMoves,
    ListQueues,
    MoveSome,
    Open,
    Peek,
    PurgeQueue,
    QueueCreated,
    Receive,
    Received,
    Refused,
    Send,
    SendEntry,
    Sent,
    SentEntry,
    StartMove,
    TagQueue,
    VisibilityChange,
)
from lavant.broker.queues.compatibility import RULES

# ── answers and the disk ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command",
    [
        CreateQueue("other", QueueConfig()),
        ConfigureQueue("q", QueueConfig(delay_ms=5)),
        TagQueue("q", {"a": "b"}),
        Send("q", [SendEntry(b"one")]),
        PurgeQueue("q"),
        DeleteQueue("q"),
        StartMove("q"),
    ],
)
def test_a_command_is_answered_when_its_record_is_durable_and_not_before(command: Request) -> None:
    bench = bench_with_queue()
    number = bench.ask(command)
    assert bench.commands()[-1] == command
    assert bench.answer(number) is None
    bench.commit(len(bench.records) - 1)
    assert bench.answer(number) is None
    bench.commit()
    assert bench.answer(number) is not None
    assert not isinstance(bench.answer(number), Refused)


def test_acknowledgements_and_changes_of_visibility_wait_for_the_disk_too() -> None:
    bench = bench_with_queue()
    bench.send(b"one", b"two")
    bench.commit()
    [first, second] = receipts(bench, bench.receive(count=2))
    for command in (Acknowledge("q", [first]), ChangeVisibility("q", [VisibilityChange(second, 0)])):
        number = bench.ask(command)
        assert bench.answer(number) is None
        bench.commit()
        assert bench.answer(number) is not None


def test_early_acknowledgements_do_not_wait_but_everything_else_does() -> None:
    bench = bench_with_queue(acknowledge_early=True)
    number = bench.send(b"one")
    assert bench.answer(number) is None
    bench.commit()
    [receipt] = receipts(bench, bench.receive())
    assert bench.answer(bench.ask(Acknowledge("q", [receipt]))) == Acknowledged({})
    assert bench.commands()[-1] == Acknowledge("q", [receipt])


def test_answers_leave_in_the_order_of_their_records() -> None:
    bench = bench_with_queue()
    numbers = [bench.send(b"x") for _ in range(4)]
    assert bench.commit(len(bench.records) - 2) == [("ann", number) for number in numbers[:2]]
    assert bench.commit() == [("ann", number) for number in numbers[2:]]


def test_a_receive_of_durable_messages_is_answered_at_once_though_recorded() -> None:
    bench = bench_with_queue()
    bench.send(b"one")
    bench.commit()
    number = bench.receive()
    assert bench.bodies(number) == [b"one"]
    assert bench.commands()[-1] == Receive("q", 1, None, None)
    assert not bench.server.is_commit_awaited


def test_a_receive_waits_for_the_sends_of_what_it_delivers_and_for_nothing_else() -> None:
    bench = bench_with_queue()
    bench.send(b"one")
    bench.send(b"two")
    sent = len(bench.records)
    number = bench.receive(count=2)
    bench.send(b"three")
    assert bench.bodies(number) is None
    bench.commit(sent - 1)
    assert bench.bodies(number) is None
    bench.commit(sent)
    assert bench.bodies(number) == [b"one", b"two"]


def test_a_receive_of_an_old_message_does_not_wait_for_a_new_one() -> None:
    bench = bench_with_queue()
    bench.send(b"old")
    bench.commit()
    bench.send(b"new")
    assert bench.bodies(bench.receive()) == [b"old"]


def test_a_receive_waits_for_the_batch_in_which_its_message_was_sent() -> None:
    bench = bench_with_queue()
    first = bench.send(b"a", b"b", b"c")
    bench.send(b"d", b"e")
    number = bench.receive(count=2)
    assert bench.bodies(number) is None
    bench.commit(len(bench.records) - 2)
    assert bench.answer(first) is not None
    assert bench.bodies(number) == [b"a", b"b"]


def test_a_duplicate_does_not_hide_that_others_of_its_batch_are_new() -> None:
    bench = bench_with_queue(config=QueueConfig(order="in-order"))
    bench.do(Send("q", [SendEntry(b"one", group="g", deduplication="1")]), Sent)
    number = bench.ask(
        Send("q", [SendEntry(b"two", group="h", deduplication="2"), SendEntry(b"one", group="g", deduplication="1")])
    )
    assert bench.bodies(bench.receive(count=1)) == [b"one"]
    received = bench.receive(count=1)
    assert bench.bodies(received) is None
    bench.commit()
    assert bench.answer(number) == Sent([SentEntry(2), SentEntry(1)])
    assert bench.bodies(received) == [b"two"]


@pytest.mark.parametrize("query", [DescribeQueue("q"), ListQueues(), Peek("q"), ListMoves("q")])
def test_a_query_tells_only_of_what_is_durable(query: Request) -> None:
    bench = bench_with_queue()
    assert bench.answer(bench.ask(query)) is not None
    bench.send(b"one")
    records = len(bench.records)
    number = bench.ask(query)
    assert bench.answer(number) is None
    assert len(bench.records) == records
    bench.commit()
    assert bench.answer(number) is not None


def test_a_refusal_says_what_was_wrong_and_waits_for_what_it_rests_on() -> None:
    bench = bench_with_queue()
    bench.ask(DeleteQueue("q"))
    number = bench.send(b"one")
    assert bench.answer(number) is None
    bench.commit()
    answer = bench.answer(number)
    assert isinstance(answer, Refused)
    assert (answer.code, "there is no queue 'q'" in answer.reason) == ("UnknownQueue", True)


def test_what_is_refused_is_not_recorded() -> None:
    bench = bench_with_queue()
    before = len(bench.records)
    assert isinstance(bench.answer(bench.ask(Send("none", [SendEntry(b"one")]))), Refused)
    assert isinstance(bench.answer(bench.ask(Receive("q", 0))), Refused)
    assert bench.bodies(bench.receive()) == []
    assert bench.do(CreateQueue("q", QueueConfig()), QueueCreated) == QueueCreated(is_new=False)
    assert len(bench.records) == before


@pytest.mark.parametrize("command", [Open(9), MoveSome(1, 1)])
def test_clients_cannot_give_the_servers_own_commands(command: Request) -> None:
    bench = bench_with_queue()
    before = len(bench.records)
    answer = bench.answer(bench.ask(command))
    assert isinstance(answer, Refused)
    assert answer.code == "InvalidValue"
    assert len(bench.records) == before


def test_whether_somebody_waits_for_the_disk_is_known() -> None:
    bench = bench_with_queue()
    assert not bench.server.is_commit_awaited
    bench.send(b"one")
    assert bench.server.is_commit_awaited
    bench.receive()
    bench.commit(len(bench.records) - 1)
    assert not bench.server.is_commit_awaited


def test_positions_go_on_from_where_the_journal_is() -> None:
    server = BrokerMachine(BrokerState(), position=41)
    [record] = server.open(0)
    assert isinstance(record, Record)
    assert record.position == 42
    [record] = server.request("ann", 1, CreateQueue("q", QueueConfig()), None, 0)
    assert isinstance(record, Record)
    assert record.position == 43
    assert server.committed(42, 0) == []
    assert len(server.committed(43, 0)) == 1


# ── the journal ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_journal_holds_the_time_and_the_request_as_it_came() -> None:
    bench = Bench(now_ms=7)
    raw = b"\x93\xa6create\xa1q\x91\xacout-of-order"  # not as we would have written it, with fewer settings
    bench.perform(bench.server.request("ann", 1, CreateQueue("q", QueueConfig()), raw, 0x123456))
    assert bench.records[-1] == bytes.fromhex("0000000000123456") + raw


def test_a_request_that_came_in_another_format_is_written_in_ours() -> None:
    bench = bench_with_queue()
    bench.ask(Send("q", [SendEntry(b"one")]), is_raw=False)
    assert bench.commands()[-1] == Send("q", [SendEntry(b"one")])


def test_the_journal_tells_it_all() -> None:
    bench = bench_with_queue(config=QueueConfig(visibility_ms=1000))
    bench.send(b"one", b"two", b"three")
    bench.now_ms = 10
    waiting = bench.receive("bob", count=3)
    bench.ask(DescribeQueue("q"))
    bench.receive("cid", wait_ms=5000)
    bench.tick(1010)
    bench.commit()
    bench.ask(Acknowledge("q", receipts(bench, waiting, "bob")[1:]))
    bench.ask(ChangeVisibility("none", []))
    bench.commit()
    assert list(bench.replayed().snapshot()) == list(bench.server.queues.snapshot())


def test_a_clock_that_goes_back_is_written_as_the_time_inside() -> None:
    bench = bench_with_queue()
    bench.now_ms = 5000
    bench.ask(DescribeQueue("q"))
    bench.now_ms = 3000
    bench.send(b"one")
    assert int.from_bytes(bench.records[-1][:8], "big") == 5000


def test_each_start_is_a_new_epoch_of_leases() -> None:
    bench = bench_with_queue()
    assert bench.commands()[0] == Open(1, RULES)
    again = BrokerMachine(BrokerState(bench.replayed()), position=len(bench.records))
    again.open(0)
    assert again.queues.epoch == 2


def test_nobody_hurries_for_a_patient_acknowledgement() -> None:
    bench = bench_with_queue()
    bench.do(Send("q", [SendEntry(b"1"), SendEntry(b"2")]), Sent)
    first, second = bench.do(Receive("q", 2), Received).deliveries
    bench.commit()
    patient = bench.ask(Acknowledge("q", [first.receipt], is_patient=True))
    assert not bench.server.is_commit_awaited
    assert bench.answer(patient) is None, "it is not answered before it is durable either"
    hurried = bench.ask(Acknowledge("q", [second.receipt]))
    assert bench.server.is_commit_awaited
    bench.commit()
    assert not bench.server.is_commit_awaited
    assert bench.answer(patient) == bench.answer(hurried) == Acknowledged({})
