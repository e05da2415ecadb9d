"""Every value of the client mirrors one of the protocol: same name, same fields, other unit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.protocol import jobs as job_protocol
from lavant.broker.protocol import queues as queue_protocol
from lavant.broker.protocol import subscriptions as subscription_protocol
from lavant.broker.protocol.queue_config import QueueConfig as StoredQueueConfig
from lavant.client.values import jobs, publisher, queues, subscriptions
from lavant.client.values.mirror import Mirror, from_protocol, original_of, to_protocol
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.seconds import seconds_name

MODULES = (queues, subscriptions, jobs, publisher)
MIRRORS: list[type[Mirror[Any]]] = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Mirror) and value is not Mirror
]
TIMES = st.integers(0, 10**13)


def built(kind: type[msgspec.Struct], **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of the protocol, with times within the calendar."""
    times = {name: TIMES for name in kind.__struct_fields__ if name.endswith("_ms")}
    return st.builds(kind, **times | others)


CONFIG = built(StoredQueueConfig)
FIGURES = built(queue_protocol.QueueFigures, oldest_sent_ms=st.none() | TIMES)
TASK = built(job_protocol.TaskView, attempts=st.lists(built(job_protocol.AttemptView), max_size=2))
WEBHOOK = st.none() | built(subscription_protocol.Webhook)
ORIGINALS: dict[type[Mirror[Any]], st.SearchStrategy[Any]] = {
    queues.Described: built(queue_protocol.Described, config=CONFIG, figures=FIGURES),
    queues.Delivery: built(queue_protocol.Delivery),
    queues.SendEntry: built(queue_protocol.SendEntry, delay_ms=st.none() | TIMES),
    subscriptions.SubscriptionState: built(subscription_protocol.SubscriptionState, webhook=WEBHOOK),
    jobs.JobView: built(job_protocol.JobView, tasks=st.lists(TASK, max_size=2), results=st.just({})),
}


@pytest.mark.parametrize("kind", MIRRORS, ids=lambda kind: kind.__name__)
def test_a_mirror_has_the_name_fields_and_defaults_of_its_original(kind: type[Mirror[Any]]) -> None:
    original = original_of(kind)
    assert kind.__name__ == original.__name__
    assert kind.__struct_fields__ == tuple(map(seconds_name, original.__struct_fields__))
    ours, theirs = msgspec.structs.fields(kind), msgspec.structs.fields(original)
    assert [each.required for each in ours] == [each.required for each in theirs]
    if not any(each.required for each in ours):
        assert to_protocol(kind()) == original()


@pytest.mark.parametrize("kind", ORIGINALS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_nothing_is_lost_on_the_way_to_a_program_and_back(kind: type[Mirror[Any]], data: st.DataObject) -> None:
    original = data.draw(ORIGINALS[kind])
    assert to_protocol(from_protocol(kind, original)) == original


def test_a_server_with_other_bounds_is_understood() -> None:
    config = from_protocol(queues.QueueConfig, StoredQueueConfig(visibility_ms=10**9))
    assert config.visibility_s == 10**6


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: queues.QueueConfig(visibility_s=-1), "visibility_s must be between 0 and 43200, got -1"),
        (lambda: queues.QueueConfig(retention_s=1), "retention_s must be between 60 and 1209600, got 1"),
        (lambda: queues.QueueConfig(delay_s="1 s"), "delay_s must be a number of seconds, got '1 s'"),  # type: ignore[arg-type]
        (lambda: queues.SendEntry(b"", delay_s=901), "delay_s must be between 0 and 900, got 901"),
        (lambda: subscriptions.Webhook("http://a", timeout_s=0), "timeout_s must be between 0.1 and 60, got 0"),
        (lambda: publisher.PublisherConfig(wait_s_max=0), "wait_s_max must be between 0.001 and 86400, got 0"),
        (
            lambda: publisher.PublisherConfig(backoff_s_min=2, backoff_s_max=1),
            "backoff_s_min must not be above backoff_s_max, got 2 and 1",
        ),
        (lambda: publisher.TuningConfig(poll_s_min=9), "poll_s_min must not be above poll_s_max, got 9 and 0.2"),
        (lambda: publisher.PublisherConfig(workers=0), "a publisher needs 0 ≤ workers_reserved < workers"),
    ],
)
def test_a_wrong_time_is_named_when_the_value_is_made(make: Any, said: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        make()
    assert said in str(refused.value)


def test_a_time_above_its_range_is_over_a_limit() -> None:
    with pytest.raises(LimitExceeded):
        queues.QueueConfig(wait_s=21)
