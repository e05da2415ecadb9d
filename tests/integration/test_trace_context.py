"""Trace context against a real server: from HTTP, CloudEvents, SQS and the client, to consumers and webhooks."""

from __future__ import annotations

import asyncio
from contextlib import closing

import boto3
import pytest
from tests.integration.serving import Served
from tests.integration.sqs_serving import access
from tests.integration.talking_http import Talker
from tests.integration.webhook_receiver import Receiver

from lavant import Publication, Task, connect
from lavant.client.connection.retries import NO_RETRIES
from lavant.client.workers.backends.factory import open_backend
from lavant.core.publications.trace_context import (
    Attribute,
    MessageExtras,
    TraceContext,
    as_attributes,
    decode_extras,
    encode_extras,
    md5_of,
    of_message,
    of_publication,
    trace_context,
)

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WAIT_S = 20.0


def test_a_header_reaches_subscribers_and_webhooks(brisk: Served, talker: Talker) -> None:
    with Receiver() as receiver, connect(brisk.url) as client, client.subscribe("traced = 1") as traced:
        talker.subscribe("traced-hook", "traced = 1", webhook={"url": receiver.url})
        sent = talker.ask(
            "POST", "/publish", [{"traced": 1}, {"traced": 1, "n": 2}], traceparent=PARENT, tracestate="a=b"
        )
        assert sent.status == 202
        event = {
            "specversion": "1.0",
            "id": "1",
            "source": "/s",
            "type": "t",
            "data": {"traced": 1},
            "traceparent": PARENT,
        }
        assert talker.ask("POST", "/publish", event, kind="application/cloudevents+json").status == 202
        found = list(traced.notifications(count=3, timeout_s=WAIT_S))
        assert [each.trace for each in found] == [TraceContext(PARENT, "a=b")] * 2 + [TraceContext(PARENT)]
        assert found[1].attributes == {"traced": 1, "n": 2}
        got = receiver.wait_for(3)
        assert {each.headers["traceparent"] for each in got} == {PARENT}
        talker.ask("DELETE", "/subscriptions/traced-hook")


def test_a_bad_header_is_left_out_and_fails_nothing(brisk: Served, talker: Talker) -> None:
    with connect(brisk.url) as client, client.subscribe("untraced = 1") as untraced:
        for header in ("x", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", "ff" + PARENT[2:]):
            assert talker.ask("POST", "/publish", {"untraced": 1}, traceparent=header).status == 202
        assert talker.ask("POST", "/publish", {"untraced": 1, "@traceparent": 7}).status == 202
        found = list(untraced.notifications(count=4, timeout_s=WAIT_S))
        assert [each.trace for each in found] == [TraceContext()] * 4


def test_message_attributes_carry_it_through_a_queue(brisk: Served) -> None:
    with connect(brisk.url) as client:
        queue = client.create_queue("traced-queue")
        queue.send("tea", attributes=as_attributes(TraceContext(PARENT, "a=b")))
        with queue.consume() as consumer:
            [message] = consumer.messages(count=1, timeout_s=WAIT_S)
        assert message.trace == TraceContext(PARENT, "a=b")
        assert {each.name for each in decode_extras(message.delivery.attributes).attributes} == {
            "traceparent",
            "tracestate",
        }
        queue.delete()


def test_queues_and_jobs_of_the_http_interface_carry_it(brisk: Served, talker: Talker) -> None:
    headers = {"traceparent": PARENT, "tracestate": "a=b"}
    with connect(brisk.url) as client:
        queue = client.create_queue("traced-over-http")
        sent = talker.ask("POST", "/queues/traced-over-http/messages", {"messages": [{"text": "tea"}]}, **headers)
        assert sent.status == 201
        received = talker.ask("POST", "/queues/traced-over-http/receive", {"visibility_ms": 0}).json
        assert {name: received["messages"][0][name] for name in headers} == headers
        with queue.consume() as consumer:
            [message] = consumer.messages(count=1, timeout_s=WAIT_S)
        assert message.trace.headers() == headers
        queue.delete()
        client.define_jobs('topics = ["traced"]\n[jobs.traced]\nstart = "only"\ntasks.only = { topic = "traced" }\n')
        job = talker.ask("POST", "/jobs", {"type": "traced"}, **headers).json["job"]
        task = asyncio.run(_leased(brisk.url, "traced"))
        assert (task.job, task.trace.headers()) == (job, headers)
        client.cancel(job)
        assert client.job(job).trace.headers() == headers  # also of one that has ended


async def _leased(url: str, topic: str) -> Task:
    backend = await open_backend(url, "ann", key="", ca_file=None, timeout_s=WAIT_S, retries=NO_RETRIES)
    try:
        task = await backend.lease(topic)
        assert task is not None
        return task
    finally:
        await backend.close()


def test_consumers_of_sqs_see_it_as_attributes(brisk: Served) -> None:
    with (
        closing(boto3.client("sqs", **access(f"http://{brisk.host}:{brisk.port}"))) as sqs,
        connect(brisk.url) as client,
        client.subscribe("over_sqs = 1", name="over-sqs") as subscription,
    ):
        client.publish(Publication(attributes={"over_sqs": 1}, trace=TraceContext(PARENT, "a=b")))
        url = sqs.get_queue_url(QueueName=subscription.queue)["QueueUrl"]
        [found] = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"], WaitTimeSeconds=20)["Messages"]
        values = {name: each["StringValue"] for name, each in found["MessageAttributes"].items()}
        assert values == {"traceparent": PARENT, "tracestate": "a=b"}
        sqs.send_message(
            QueueUrl=url,
            MessageBody="tea",
            MessageAttributes={"traceparent": {"DataType": "String", "StringValue": PARENT}},
        )
        sqs.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
        [notification] = subscription.notifications(count=1, timeout_s=WAIT_S)
        assert notification.trace == TraceContext(PARENT)
        client.unsubscribe("over-sqs")


@pytest.mark.parametrize("state", ["", "a=b", "x" * 513, "ü"])
def test_contexts_are_read_as_they_were_written(state: str) -> None:
    context = trace_context(PARENT, state)
    assert context.parent == PARENT
    assert of_message(as_attributes(context)) == context
    assert of_publication(b'{"@traceparent":"%b"}' % PARENT.encode()).parent == PARENT
    assert of_publication(b'{"a":"@traceparent"}') == of_publication(b'[{"@traceparent":1}]') == TraceContext()
    others = [Attribute("n", "Number", b"1")]
    assert of_message(encode_extras(MessageExtras(others, md5_of(others)))) == of_message(b"\xff") == TraceContext()
