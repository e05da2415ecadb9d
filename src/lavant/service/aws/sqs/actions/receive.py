"""The action that receives messages."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import md5

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.queues import Delivery, Receive
from lavant.core.publications.trace_context import (
    Attribute,
    MessageExtras,
    as_attributes,
    decode_extras,
    md5_of,
    of_publication,
)
from lavant.service.aws.sqs import limits, requests, results
from lavant.service.aws.sqs.context import SqsCall, SqsContext
from lavant.service.aws.sqs.errors import bad_value
from lavant.service.aws.sqs.handles import sequence_number
from lavant.service.aws.sqs.names import is_fifo, queue_of_url
from lavant.service.aws.sqs.queue_attributes import unknown_attribute
from lavant.service.aws.text import text_of

ENCODING_ATTRIBUTE = Attribute("lavant.encoding", "String", b"base64")
"""Marks a body that is not text and is delivered in base64."""

_SYSTEM_NAMES = frozenset(
    {
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
    }
)


async def receive_message(
    context: SqsContext, call: SqsCall, request: requests.ReceiveMessage
) -> results.ReceiveMessageResult:
    queue = queue_of_url(request.queue_url)
    count, visibility_ms, wait_ms = _checked(request)
    system_names = _system_names(request.attribute_names, request.message_system_attribute_names)
    received = await context.ask(Receive(queue, count, visibility_ms, wait_ms), call.connection)
    return results.ReceiveMessageResult(
        [
            _message(context, queue, delivery, system_names, request.message_attribute_names)
            for delivery in received.deliveries
        ]
    )


def _checked(request: requests.ReceiveMessage) -> tuple[int, int | None, int | None]:
    """Returns the number of messages, their visibility timeout, and the wait time."""
    count, visibility_s, wait_s = request.max_number_of_messages, request.visibility_timeout, request.wait_time_seconds
    if count is None:
        count = 1
    elif not 1 <= count <= limits.RECEIVE_COUNT_MAX:
        raise bad_value("MaxNumberOfMessages", count, f"Must be between 1 and {limits.RECEIVE_COUNT_MAX}, if provided.")
    if visibility_s is not None and not 0 <= visibility_s <= limits.VISIBILITY_S_MAX:
        raise bad_value(
            "VisibilityTimeout", visibility_s, f"Must be between 0 and {limits.VISIBILITY_S_MAX}, if provided."
        )
    if wait_s is not None and not 0 <= wait_s <= limits.WAIT_S_MAX:
        raise bad_value("WaitTimeSeconds", wait_s, f"Must be >= 0 and <= {limits.WAIT_S_MAX}, if provided.")
    return (
        count,
        None if visibility_s is None else visibility_s * SECOND_MS,
        None if wait_s is None else wait_s * SECOND_MS,
    )


def _system_names(older: list[str] | None, newer: list[str] | None) -> frozenset[str]:
    if not older and not newer:
        return frozenset()
    names = {*(older if older is not None else ()), *(newer if newer is not None else ())}
    if "All" in names:
        return _SYSTEM_NAMES
    for name in sorted(names):
        if name not in _SYSTEM_NAMES:
            raise unknown_attribute(name)
    return frozenset(names)


def _message(
    context: SqsContext, queue: str, delivery: Delivery, system_names: frozenset[str], wanted: list[str] | None
) -> results.SqsMessage:
    text, is_encoded = text_of(delivery.body)
    extras = decode_extras(delivery.attributes)
    if wanted and not delivery.attributes:
        extras = decode_extras(as_attributes(of_publication(delivery.body)))
    attributes, checksum = _attributes(extras, wanted)
    if is_encoded:
        attributes = sorted([*attributes, ENCODING_ATTRIBUTE], key=lambda attribute: attribute.name)
        checksum = md5_of(attributes)
    return results.SqsMessage(
        context.handles.message_id(delivery.receipt.number),
        context.handles.receipt_handle(queue, delivery.receipt),
        md5(text.encode() if is_encoded else delivery.body, usedforsecurity=False).hexdigest(),
        text,
        _system_attributes(context, queue, delivery, extras, system_names) if system_names else {},
        checksum.hex() if attributes else None,
        {attribute.name: _result(attribute) for attribute in attributes},
    )


def _attributes(extras: MessageExtras, wanted: list[str] | None) -> tuple[list[Attribute], bytes]:
    """Returns the attributes that the consumer asks for, by name, and their MD5."""
    if not wanted or not extras.attributes:
        return [], b""
    if "All" in wanted or ".*" in wanted or "*" in wanted:
        return extras.attributes, extras.md5
    names, prefixes = set(wanted), tuple(name[:-2] for name in wanted if name.endswith(".*"))
    chosen = [
        attribute
        for attribute in extras.attributes
        if attribute.name in names or (prefixes and attribute.name.startswith(prefixes))
    ]
    return chosen, md5_of(chosen)


def _result(attribute: Attribute) -> results.ResultAttributeValue:
    if attribute.is_binary:
        return results.ResultAttributeValue(attribute.type, binary_value=attribute.value)
    return results.ResultAttributeValue(attribute.type, attribute.value.decode())


def _system_attributes(
    context: SqsContext, queue: str, delivery: Delivery, extras: MessageExtras, names: Iterable[str]
) -> dict[str, str]:
    group = delivery.group if delivery.group else extras.group
    known = {
        "SenderId": context.settings.account,
        "SentTimestamp": str(delivery.sent_ms),
        "ApproximateReceiveCount": str(delivery.receive_count),
        "ApproximateFirstReceiveTimestamp": str(delivery.first_received_ms),
        "SequenceNumber": sequence_number(delivery.receipt.number) if is_fifo(queue) else "",
        "MessageDeduplicationId": delivery.deduplication,
        "MessageGroupId": group,
        "AWSTraceHeader": extras.trace_header,
        "DeadLetterQueueSourceArn": "" if delivery.origin is None else context.arn(delivery.origin),
    }
    return {name: value for name, value in known.items() if value and name in names}
