"""Who wants what, and what becomes of their queues."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lavant.broker.machine.effects import TIME_BYTES
from lavant.broker.machine.replay import replay
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, DeleteQueue, Done, FanOut, Peek, Peeked, Refused, Send, SendEntry
from lavant.broker.protocol.subscriptions import (
    Advertise,
    Advertised,
    AdvertisementsListed,
    Deliver,
    DescribeSubscription,
    EncryptedFilter,
    ListAdvertisements,
    ListSubscriptions,
    PublishOutcome,
    Subscribe,
    Subscribed,
    SubscriptionsListed,
    Unadvertise,
    Unsubscribe,
    UpdateSubscription,
    Webhook,
)
from lavant.broker.queues.accounting.quotas import QueueLimits
from lavant.broker.subscriptions.idempotency import RememberedRequest
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.broker.subscriptions.registry import Added, Removed
from lavant.core.errors import (
    CorruptSnapshot,
    DuplicateSubscription,
    InvalidValue,
    LimitExceeded,
    SubscriptionChanged,
    UnknownAdvertisement,
    UnknownQueue,
    UnknownSubscription,
)


class Asked:
    """A broker, asked at time 7."""

    def __init__(self, broker: BrokerState | None = None) -> None:
        self.broker = BrokerState() if broker is None else broker

    def __call__(self, request: Request) -> Answer:
        answer: Answer = self.broker.handle(request, 7)
        return answer

    def subscribe(self, filter: Any = "a > 1", name: str = "", **more: Any) -> Subscribed:
        answer = self(Subscribe(filter, name, **more))
        assert isinstance(answer, Subscribed)
        return answer

    def names(self, **which: Any) -> list[str]:
        answer = self(ListSubscriptions(**which))
        assert isinstance(answer, SubscriptionsListed)
        return [each.name for each in answer.subscriptions]

    def changes(self) -> list[str]:
        taken = [
            f"+{each.subscription.name}" if isinstance(each, Added) else f"-{each.subscription.name}"
            for each in self.broker.subscriptions.changes
        ]
        self.broker.subscriptions.changes.clear()
        return taken


def test_a_subscription_has_a_queue_of_its_own_that_goes_with_it() -> None:
    ask = Asked()
    made = ask.subscribe("price > 10", "dear", config=QueueConfig(visibility_ms=5))
    assert made.is_new
    assert ask.broker.changed
    assert made.subscription.owns_queue
    assert (made.subscription.queue, ask.broker.queues.config("dear").visibility_ms) == ("dear", 5)
    assert ask(Unsubscribe("dear")) == Done()
    assert not ask.broker.queues.exists("dear")
    assert ask.changes() == ["+dear", "-dear"]


def test_a_subscription_without_a_name_gets_one() -> None:
    ask = Asked()
    first, second = ask.subscribe(), ask.subscribe()
    assert first.subscription.name != second.subscription.name
    assert ask.names() == sorted([first.subscription.name, second.subscription.name])


def test_the_same_again_changes_nothing() -> None:
    ask = Asked()
    first = ask.subscribe("a > 1", "s")
    again = ask.subscribe("a > 1", "s")
    assert (again.subscription, again.is_new, ask.broker.changed) == (first.subscription, False, False)
    assert ask.changes() == ["+s"]


@pytest.mark.parametrize("other", [{"filter": "a > 2"}, {"queue": "elsewhere"}, {"webhook": Webhook("http://x.org")}])
def test_another_under_the_same_name_is_refused(other: dict[str, Any]) -> None:
    ask = Asked()
    ask.subscribe("a > 1", "s")
    with pytest.raises(DuplicateSubscription, match="'s' exists already"):
        ask.subscribe(**{"filter": "a > 1", "name": "s", **other})
    assert not ask.broker.queues.exists("elsewhere")


def test_an_encrypted_filter_differs_each_time_and_is_taken_for_the_same() -> None:
    ask = Asked()
    ask.subscribe(EncryptedFilter(2, bytes(16)), "s")
    assert not ask.subscribe(EncryptedFilter(2, bytes(15) + b"1"), "s").is_new
    with pytest.raises(DuplicateSubscription):
        ask.subscribe("a > 1", "s")


def test_several_share_a_queue_and_it_stays_until_the_last_is_gone() -> None:
    ask = Asked()
    ask.subscribe("a > 1", "first", queue="shared")
    ask.subscribe("a > 2", "second", queue="shared")
    ask(Unsubscribe("first"))
    assert ask.broker.queues.exists("shared")
    ask(Unsubscribe("second"))
    assert ask.broker.queues.exists("shared"), "it was there before the second came, so it is not the second's"


def test_a_queue_that_was_there_before_is_taken_as_it_is_and_stays() -> None:
    ask = Asked()
    ask(CreateQueue("orders", QueueConfig(visibility_ms=9)))
    assert not ask.subscribe("a > 1", "s", queue="orders").subscription.owns_queue
    assert ask.broker.queues.config("orders").visibility_ms == 9
    ask(Unsubscribe("s"))
    assert ask.broker.queues.exists("orders")


def test_no_subscription_takes_somebody_elses_queue_for_its_own() -> None:
    ask = Asked()
    ask(CreateQueue("orders", QueueConfig()))
    with pytest.raises(DuplicateSubscription, match="name it as the subscription's queue"):
        ask.subscribe("a > 1", "orders")


def test_subscriptions_end_with_their_queue() -> None:
    ask = Asked()
    ask.subscribe("a > 1", "s", queue="q")
    ask.subscribe("a > 2", "t", queue="q")
    ask.subscribe("a > 3", "u")
    ask(DeleteQueue("q"))
    assert ask.names() == ["u"]
    assert ask.changes() == ["+s", "+t", "+u", "-s", "-t"]
    ask(CreateQueue("q", QueueConfig()))
    assert ask.names() == ["u"]


def test_a_webhook_has_dead_letters_after_its_attempts() -> None:
    ask = Asked()
    ask.subscribe("a > 1", "s", webhook=Webhook("https://example.org/in", attempts_max=3))
    config = ask.broker.queues.config("s")
    assert (config.dead_letters, config.receives_max) == ("s-dead", 3)
    ask(Unsubscribe("s"))
    assert ask.broker.queues.exists("s-dead"), "dead letters are there to be looked at"
    ask.subscribe("a > 1", "s", webhook=Webhook("https://example.org/in", attempts_max=3))


def test_namespaces_do_not_see_each_other() -> None:
    ask = Asked()
    ask.subscribe("a > 1", "s", namespace="acme")
    ask.subscribe("a > 2", "s")
    assert ask.subscribe("a > 1", "s", namespace="acme").subscription.queue == "acme/s"
    assert ask.names() == ask.names(namespace="acme") == ["s"]
    assert ask.names(namespace="other") == []
    with pytest.raises(UnknownSubscription):
        ask(DescribeSubscription("s", "other"))


def test_listing_goes_page_by_page() -> None:
    ask = Asked()
    for name in ("b2", "a", "b1", "b3", "c"):
        ask.subscribe("a > 1", name)
    assert ask.names() == ["a", "b1", "b2", "b3", "c"]
    assert ask.names(prefix="b") == ["b1", "b2", "b3"]
    assert ask.names(prefix="b", after="b1", count=1) == ["b2"]
    assert ask.names(prefix="b", after="b3") == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": "a b"}, "subscription's name"),
        ({"name": "x" * 81}, "81 characters"),
        ({"queue": "other/queue"}, "queue's name"),
        ({"namespace": "a/b"}, "namespace"),
        ({"webhook": Webhook("ftp://x.org")}, "http://"),
        ({"webhook": Webhook("http://")}, "http://"),
        ({"webhook": Webhook("http://x.org", attempts_max=0)}, "attempts_max"),
        ({"webhook": Webhook("http://x.org", timeout_ms=1)}, "timeout_ms"),
    ],
)
def test_a_bad_request_changes_nothing(wrong: dict[str, Any], why: str) -> None:
    ask = Asked()
    with pytest.raises(InvalidValue, match=why):
        ask.subscribe("a > 1", **wrong)
    assert not ask.broker.changed
    assert ask.names() == []
    assert not ask.changes()


def test_there_is_a_limit() -> None:
    ask = Asked()
    ask.broker.subscriptions.limits = SubscriptionLimits(subscriptions_max=1, advertisements_max=1)
    ask.subscribe("a > 1", "s")
    with pytest.raises(LimitExceeded):
        ask.subscribe("a > 1", "t")
    assert not ask.broker.queues.exists("t")
    assert not ask.subscribe("a > 1", "s").is_new
    ask(Advertise("a > 1", "x"))
    ask(Advertise("a > 2", "x"))
    with pytest.raises(LimitExceeded):
        ask(Advertise("a > 1", "y"))


def test_what_nobody_has_cannot_be_removed() -> None:
    ask = Asked()
    with pytest.raises(UnknownSubscription):
        ask(Unsubscribe("s"))
    with pytest.raises(UnknownAdvertisement):
        ask(Unadvertise("s"))


def test_advertisements_come_change_and_go() -> None:
    ask = Asked()
    first = ask(Advertise("a > 1", "x"))
    assert isinstance(first, Advertised)
    assert first.is_new
    assert ask(Advertise("a > 1", "x")) == Advertised(first.advertisement, is_new=False)
    assert not ask.broker.changed
    ask(Advertise("a > 2", "x"))
    listed = ask(ListAdvertisements())
    assert isinstance(listed, AdvertisementsListed)
    assert [(each.name, each.filter) for each in listed.advertisements] == [("x", "a > 2")]
    ask(Unadvertise("x"))
    assert ask(ListAdvertisements()) == AdvertisementsListed([])


def test_what_was_delivered_is_in_the_queues_and_its_key_is_known() -> None:
    ask = Asked()
    ask.subscribe("a > 1", "s")
    one = (1).to_bytes(4, "little")
    ask(Deliver(FanOut([b"x"], one, one, bytes(4)), answered=[PublishOutcome("acme", "k", b"f", ["id"])]))
    assert ask.broker.changed
    peeked = ask(Peek("s"))
    assert isinstance(peeked, Peeked)
    assert [each.body for each in peeked.messages] == [b"x"]
    assert ask.broker.subscriptions.recent.find("acme", "k", 7) == RememberedRequest(7, b"f", ["id"])
    ask(Deliver(FanOut([], b"", b"", b"")))
    assert not ask.broker.changed


def test_a_snapshot_has_everything() -> None:
    ask = Asked()
    ask.subscribe("a > 1", "s", webhook=Webhook("http://x.org", secret="hidden"))
    ask.subscribe(EncryptedFilter(2, bytes(16)), "t", namespace="acme")
    ask.subscribe("a > 2", "gone")
    ask(Unsubscribe("gone"))
    ask(Advertise("a > 1", "x"))
    ask(Send("s", [SendEntry(b"1")]))
    ask(Deliver(FanOut([], b"", b"", b""), {"k": ["id", Refused("InvalidValue", "why")]}))
    ask(
        Deliver(
            FanOut([], b"", b"", b""),
            answered=[PublishOutcome("acme", "k", b"f", ["id"]), PublishOutcome("", "l", b"g", [])],
        )
    )
    chunks = list(ask.broker.snapshot())
    again = Asked(BrokerState.restore(chunks))
    assert list(again.broker.snapshot()) == chunks
    assert again.changes() == ["+s", "+t"]
    assert again.subscribe("a > 3", "new").subscription.number == ask.subscribe("a > 3", "new").subscription.number
    assert again.names() == ask.names()


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_half_a_snapshot_is_refused(cut: int) -> None:
    ask = Asked()
    ask.subscribe("a > 1", "s")
    ask(Advertise("a > 1", "x"))
    chunks = list(ask.broker.snapshot())
    with pytest.raises(CorruptSnapshot):
        BrokerState.restore(chunks[:-cut])
    with pytest.raises(CorruptSnapshot):
        BrokerState.restore([*chunks, chunks[-1]])


def test_removing_tells_which_subscription_it_was() -> None:
    ask = Asked()
    state = ask.subscribe("a > 1", "s").subscription
    ask(Unsubscribe("s"))
    assert ask.broker.subscriptions.changes == [Added(state, 1), Removed(state)]
    with pytest.raises(UnknownQueue):
        ask(Peek("s"))


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_webhook_whose_queue_is_refused_leaves_no_queue_for_dead_letters() -> None:
    ask = Asked()
    with pytest.raises(InvalidValue, match="visibility_ms"):
        ask.subscribe(name="hook", config=QueueConfig(visibility_ms=-5), webhook=Webhook("http://example.com"))
    assert not ask.broker.changed
    assert not ask.broker.queues.exists("hook-dead")
    assert ask.subscribe(name="next").subscription.number == 1
    assert ask.broker.queues.serial("next") == 1


@pytest.mark.parametrize(("queues_max", "is_refused"), [(1, True), (2, False)])
def test_both_queues_of_a_webhook_count_against_the_limit_before_one_is_created(
    queues_max: int, is_refused: bool
) -> None:
    ask = Asked()
    ask.broker.queues.limits = QueueLimits(queues_max=queues_max)
    try:
        ask.subscribe(name="hook", webhook=Webhook("http://example.com"))
    except LimitExceeded as error:
        found = str(error)
    else:
        found = ""
    assert ("2 more would exceed the limit of 1" in found) == is_refused
    assert ask.broker.queues.exists("hook") == ask.broker.queues.exists("hook-dead") == (not is_refused)


def test_a_journal_that_was_written_under_other_limits_is_replayed() -> None:
    """Limits of admission may be lowered from version to version; what was accepted is there nevertheless."""
    beyond = QueueConfig(visibility_ms=10**9, depth_max=10**12, message_bytes_max=1 << 40, labels={"k": "v" * 100_000})
    commands: list[Request] = [
        CreateQueue("x" * 500, beyond, {"tag": "v" * 1000}),
        Subscribe("a > 1", "y" * 300, namespace="n" * 100, webhook=Webhook("http://example.com", attempts_max=10**6)),
        Send("x" * 500, [SendEntry(b"one")] * 2000),
    ]
    for command in commands:
        with pytest.raises(LimitExceeded if isinstance(command, CreateQueue) else (InvalidValue, UnknownQueue)):
            Asked()(command)
    records = [(7).to_bytes(TIME_BYTES, "big") + msgspec.msgpack.encode(command) for command in commands]
    broker = replay(None, records)
    assert broker.queues.number == 2000
    assert len(broker.subscriptions) == 1
    with pytest.raises(InvalidValue):
        broker.handle(CreateQueue("z" * 500, beyond), 8)


def test_an_update_takes_a_new_number_and_only_one_of_two_that_read_the_same_wins() -> None:
    asked = Asked()
    before = asked.subscribe("a > 1", "s").subscription
    asked.broker.subscriptions.changes.clear()
    answer = asked(UpdateSubscription("s", "a > 2", number=before.number))
    assert isinstance(answer, Subscribed)
    assert answer.subscription == msgspec.structs.replace(before, number=before.number + 1, filter="a > 2")
    serial = asked.broker.queues.serial("s")
    assert asked.broker.subscriptions.changes == [Removed(before), Added(answer.subscription, serial, before.number)]
    with pytest.raises(SubscriptionChanged, match="its number is 2, not 1; read it again"):
        asked(UpdateSubscription("s", "a > 3", number=before.number))
    asked(UpdateSubscription("s", "a > 2"))
    assert not asked.broker.changed
