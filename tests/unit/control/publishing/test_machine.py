"""The publisher's machine: receiving, gathering, sending, failing."""

from __future__ import annotations

from typing import Any

from lavant.control.publishing import PublisherConfig, PublisherMachine, TuningConfig
from lavant.control.publishing.values import (
    BatchSent,
    Dropped,
    Effect,
    Failed,
    Fetch,
    Fetched,
    PublicationsReceived,
    PublicationsRecovered,
    SendBatch,
    Stimulus,
    Stored,
    StorePublications,
    TuningDecided,
    Woken,
)


def machine(*, controller: str = "eager", batch_size: int = 1, poll_ms: int = 50, **config: Any) -> PublisherMachine:
    tuning = TuningConfig(controller=controller, batch_size=batch_size, poll_ms=poll_ms)
    return PublisherMachine(PublisherConfig(tuning=tuning, **config), now_ms=0)


def handle(publisher: PublisherMachine, stimulus: Stimulus, now_ms: int = 0) -> list[Effect]:
    """Its effects but for decisions."""
    return [effect for effect in publisher.handle(stimulus, now_ms) if not isinstance(effect, TuningDecided)]


def fill_store(publisher: PublisherMachine, *tickets: int, now_ms: int = 0) -> list[Effect]:
    return [effect for ticket in tickets for effect in handle(publisher, PublicationsRecovered(ticket), now_ms)]


# ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_finds_no_worker_waits_in_the_buffer_and_what_finds_no_room_there_is_dropped() -> None:
    publisher = machine(workers=2, workers_reserved=1, buffer_max=1)
    assert handle(publisher, PublicationsReceived(1)) == [StorePublications((1,))]
    assert handle(publisher, PublicationsReceived(2)) == [StorePublications((2,))]
    assert handle(publisher, PublicationsReceived(3)) == []
    assert not publisher.has_room
    assert handle(publisher, PublicationsReceived(4)) == [Dropped(4)]
    assert handle(publisher, Stored((1,))) == [StorePublications((3,)), Fetch(1000)]
    figures = publisher.statistics(0)
    assert (figures.received, figures.dropped, figures.stored, figures.buffered) == (3, 1, 1, 2)


def test_one_worker_may_store_many_at_once() -> None:
    publisher = machine(writes_max=1, write_size_max=3)
    assert handle(publisher, PublicationsReceived(1)) == [StorePublications((1,))]
    for ticket in range(2, 7):
        assert handle(publisher, PublicationsReceived(ticket)) == []
    assert handle(publisher, Stored((1,))) == [StorePublications((2, 3, 4)), Fetch(1000)]


def test_a_full_store_keeps_publications_in_the_buffer() -> None:
    publisher = machine(stored_max=2)
    assert handle(publisher, PublicationsReceived(1)) == [StorePublications((1,))]
    assert handle(publisher, PublicationsReceived(2)) == [StorePublications((2,))]
    assert handle(publisher, PublicationsReceived(3)) == []
    handle(publisher, Stored((1,)))
    handle(publisher, Stored((2,)))
    assert handle(publisher, Fetched((1, 2))) == [SendBatch(1, (1,)), SendBatch(2, (2,))]
    assert handle(publisher, BatchSent(1)) == [StorePublications((3,))]


def test_publications_too_large_together_are_dropped() -> None:
    publisher = machine(held_bytes_max=100)
    assert handle(publisher, PublicationsReceived(1, 100)) == [StorePublications((1,))]
    assert handle(publisher, PublicationsReceived(2, 1)) == [Dropped(2)]
    handle(publisher, Stored((1,)))
    handle(publisher, Fetched((1,)))
    handle(publisher, BatchSent(1))
    assert handle(publisher, PublicationsReceived(3, 1)) == [StorePublications((3,))]


def test_reserved_workers_never_publish() -> None:
    publisher = machine(workers=5, workers_reserved=3, transfer_size_max=1)
    fill_store(publisher, 1, 2, 3, 4)
    assert handle(publisher, Fetched((1, 2, 3, 4))) == [SendBatch(1, (1,)), SendBatch(2, (2,))]
    stores = [handle(publisher, PublicationsReceived(ticket)) for ticket in (5, 6, 7, 8)]
    assert stores == [[StorePublications((5,))], [StorePublications((6,))], [StorePublications((7,))], []]


def test_a_worker_that_becomes_free_receives_before_it_publishes() -> None:
    publisher = machine(workers=1, workers_reserved=0, transfer_size_max=1)
    fill_store(publisher, 1, 2)
    assert handle(publisher, Fetched((1, 2))) == [SendBatch(1, (1,))]
    assert handle(publisher, PublicationsReceived(3)) == []
    assert handle(publisher, BatchSent(1)) == [StorePublications((3,))]
    assert handle(publisher, Stored((3,))) == [SendBatch(2, (2,)), Fetch(1000)]


# ── gathering ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_polling_a_write_wakes_the_publisher() -> None:
    publisher = machine()
    assert publisher.wakeup_ms() is None
    handle(publisher, PublicationsReceived(1))
    assert handle(publisher, Stored((1,))) == [Fetch(1000)]
    assert handle(publisher, PublicationsReceived(2)) == [StorePublications((2,))]
    assert handle(publisher, Stored((2,))) == []  # one batch is read at a time
    assert handle(publisher, Fetched((1,))) == [SendBatch(1, (1,)), Fetch(1000)]


def test_without_polling_it_reads_ahead_while_workers_are_busy_but_not_without_end() -> None:
    tuning = TuningConfig(batch_size_max=2)
    config = PublisherConfig(tuning=tuning, workers=1, workers_reserved=0, transfer_size_max=1)
    publisher = PublisherMachine(config, now_ms=0)
    assert fill_store(publisher, 1, 2, 3, 4, 5, 6, 7) == [Fetch(2)]
    assert handle(publisher, Fetched((1, 2))) == [SendBatch(1, (1,)), Fetch(2)]
    assert handle(publisher, Fetched((3, 4))) == []
    assert handle(publisher, BatchSent(1)) == [SendBatch(2, (2,))]
    assert handle(publisher, BatchSent(2)) == [SendBatch(3, (3,)), Fetch(2)]


def test_with_polling_n_publications_are_waited_for_until_t_is_over() -> None:
    publisher = machine(controller="fixed", batch_size=3, poll_ms=50)
    fill_store(publisher, 1, 2)
    for now_ms in (50, 100, 150):
        assert publisher.wakeup_ms() == now_ms
        assert handle(publisher, Woken(), now_ms) == []
    assert handle(publisher, Woken(), 200) == [Fetch(3)]


def test_with_polling_n_publications_are_taken_at_the_next_poll() -> None:
    publisher = machine(controller="fixed", batch_size=3, poll_ms=50)
    assert fill_store(publisher, 1, 2, 3, now_ms=10) == []
    assert handle(publisher, Woken(), 50) == [Fetch(3)]


def test_a_poll_that_a_batch_did_not_miss_comes_when_it_is_due() -> None:
    publisher = machine(controller="fixed", poll_ms=50)
    fill_store(publisher, 1)
    handle(publisher, Woken(), 50)
    handle(publisher, Fetched((1,)), 80)
    assert publisher.wakeup_ms() == 100


def test_a_poll_that_a_batch_missed_is_made_up_for() -> None:
    publisher = machine(controller="fixed", poll_ms=60)
    fill_store(publisher, 1)
    handle(publisher, Woken(), 60)
    handle(publisher, Fetched((1,)), 221)
    assert publisher.wakeup_ms() == 221 + 50


def test_with_polling_a_batch_ends_when_all_of_it_is_in_the_workers_hands() -> None:
    one_worker = {"workers": 1, "workers_reserved": 0, "transfer_size_max": 1}
    publisher = machine(controller="aimd", batch_size=2, poll_ms=100, **one_worker)
    fill_store(publisher, 1, 2, 3, 4)
    assert handle(publisher, Woken(), 100) == [Fetch(2)]
    assert handle(publisher, Fetched((1, 2)), 150) == [SendBatch(1, (1,))]
    assert publisher.settings.batch_size == 2
    assert publisher.handle(BatchSent(1), 250)[0] == SendBatch(2, (2,))
    assert (publisher.settings.batch_size, publisher.settings.poll_ms) == (1, 180)  # T_mpt is 150: later than the poll


# ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_ready_is_spread_over_the_transfers_that_may_be_under_way() -> None:
    publisher = machine(workers=4, workers_reserved=1)
    fill_store(publisher, *range(1, 9))
    assert handle(publisher, Fetched(tuple(range(1, 9)))) == [
        SendBatch(1, (1, 2, 3)),
        SendBatch(2, (4, 5, 6)),
        SendBatch(3, (7, 8)),
    ]


def test_no_transfer_is_larger_than_it_may_be() -> None:
    publisher = machine(workers=2, workers_reserved=1, transfer_size_max=2)
    fill_store(publisher, 1, 2, 3)
    assert handle(publisher, Fetched((1, 2, 3))) == [SendBatch(1, (1, 2))]


def failing() -> PublisherMachine:
    """Three are under way, and the first of them fails at 100 ms."""
    publisher = machine(workers=4, workers_reserved=1, transfer_size_max=1, backoff_ms_min=100, backoff_ms_max=1000)
    fill_store(publisher, 1, 2, 3, 4)
    handle(publisher, Fetched((1, 2, 3, 4)))
    assert handle(publisher, Failed(1), 100) == []
    return publisher


def test_a_failure_is_followed_by_a_pause_of_everything() -> None:
    publisher = failing()
    pause_end_ms = publisher.wakeup_ms()
    assert pause_end_ms is not None
    assert 150 <= pause_end_ms <= 200
    assert handle(publisher, Woken(), pause_end_ms - 1) == []


def test_after_the_pause_one_transfer_goes_ahead_with_what_failed() -> None:
    publisher = failing()
    handle(publisher, Failed(2), 101)
    handle(publisher, Failed(3), 102)
    assert handle(publisher, Woken(), 300) == [SendBatch(4, (1,))]
    assert publisher.statistics(300).retries == 3
    assert len(handle(publisher, BatchSent(4), 400)) == 2  # the broker is back; failures brought what may go to two


def test_a_transfer_that_failed_goes_again_as_it_was() -> None:
    publisher = machine(workers=3, workers_reserved=1, backoff_ms_min=1, backoff_ms_max=1)
    fill_store(publisher, 1, 2, 3, 4, 5)
    assert handle(publisher, Fetched((1, 2, 3, 4, 5))) == [SendBatch(1, (1, 2, 3)), SendBatch(2, (4, 5))]
    handle(publisher, Failed(1), 10)
    handle(publisher, Failed(2), 10)
    assert handle(publisher, Woken(), 20) == [SendBatch(3, (1, 2, 3))]
    assert handle(publisher, BatchSent(3), 30) == [SendBatch(4, (4, 5))]


def test_what_fails_again_goes_behind_the_others_that_failed() -> None:
    publisher = failing()
    handle(publisher, Failed(2), 101)
    handle(publisher, BatchSent(3), 102)
    assert handle(publisher, Woken(), 1000) == [SendBatch(4, (1,))]
    assert handle(publisher, Failed(4), 1000) == []
    assert handle(publisher, Woken(), 3000) == [SendBatch(5, (2,))]


def test_transfers_that_began_before_a_failure_do_not_lengthen_the_pause() -> None:
    publisher = failing()
    handle(publisher, Failed(2), 100)
    handle(publisher, Failed(3), 100)
    pause_end_ms = publisher.wakeup_ms()
    assert pause_end_ms is not None
    assert pause_end_ms <= 200


def test_each_further_failure_doubles_the_pause_up_to_its_maximum() -> None:
    publisher = failing()
    handle(publisher, BatchSent(2), 100)
    handle(publisher, BatchSent(3), 100)
    now_ms, pauses_ms = 100, []
    for number in range(4, 12):
        wakeup_ms = publisher.wakeup_ms()
        assert wakeup_ms is not None
        pauses_ms.append(wakeup_ms - now_ms)
        now_ms = wakeup_ms
        assert len(handle(publisher, Woken(), now_ms)) == 1
        handle(publisher, Failed(number), now_ms)
    nominal_ms = [100, 200, 400, 800, 1000, 1000, 1000, 1000]
    assert all(nominal / 2 <= pause <= nominal for pause, nominal in zip(pauses_ms, nominal_ms, strict=True))


def test_the_broker_says_when_to_come_again() -> None:
    publisher = failing()
    handle(publisher, Failed(2, retry_after_ms=5000), 120)
    handle(publisher, Failed(3, retry_after_ms=10), 130)
    assert publisher.wakeup_ms() == 5120


def test_the_limit_of_transfers_grows_only_while_more_is_ready() -> None:
    def after(fetched_at_once: int) -> int:
        publisher = machine(workers=9, workers_reserved=1, transfer_size_max=1, backoff_ms_min=1, backoff_ms_max=1)
        fill_store(publisher, *range(1, 1001))
        handle(publisher, Fetched((1,)))
        handle(publisher, Failed(1))
        assert publisher.settings.transfers_max == 4
        now_ms, ticket = 10, 2
        effects = handle(publisher, Woken(), now_ms)
        while ticket < 500:
            now_ms += 100  # whatever is under way ends after 100 ms, however many there are
            running_job = [effect.transfer for effect in effects if isinstance(effect, SendBatch)]
            effects = [effect for transfer in running_job for effect in handle(publisher, BatchSent(transfer), now_ms)]
            if not running_job:
                effects = handle(publisher, Fetched(tuple(range(ticket, ticket + fetched_at_once))), now_ms)
                ticket += fetched_at_once
        return publisher.settings.transfers_max

    assert after(1) == 4
    assert after(30) > 4


def test_what_the_broker_refused_for_good_is_counted_and_done_with() -> None:
    publisher = machine()
    fill_store(publisher, 1)
    handle(publisher, Fetched((1,)))
    handle(publisher, BatchSent(1, refused=1))
    figures = publisher.statistics(0)
    assert (figures.published, figures.refused, figures.waiting, figures.held_bytes) == (1, 1, 0, 0)


def test_latencies_are_those_of_what_was_received_here() -> None:
    publisher = machine()
    fill_store(publisher, 1)
    handle(publisher, PublicationsReceived(2), 10)
    handle(publisher, Stored((2,)), 20)
    handle(publisher, Fetched((1, 2)), 30)
    handle(publisher, BatchSent(1), 300)
    handle(publisher, BatchSent(2), 310)
    assert publisher.statistics(310).latencies.mean_ms == 300


def test_decisions_are_effects_and_the_latest_are_kept() -> None:
    publisher = machine(controller="aimd", batch_size=8)
    effects = publisher.handle(Woken(), 50)
    assert [effect.decision for effect in effects if isinstance(effect, TuningDecided)] == list(publisher.decisions())
    assert publisher.decisions()[0].action == "N 8 → 4"
