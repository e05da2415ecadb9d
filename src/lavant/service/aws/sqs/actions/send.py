"""Actions that send messages."""

from __future__ import annotations

import re
from collections.abc import Collection
from hashlib import md5
from typing import NamedTuple

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.queues import DescribeQueue, Refused, Send, SendEntry
from lavant.core.publications.trace_context import Attribute, MessageExtras, encode_extras, md5_of
from lavant.service.aws.sqs import limits, requests, results
from lavant.service.aws.sqs.actions.batches import check_batch, check_exists, failed
from lavant.service.aws.sqs.context import SqsCall, SqsContext
from lavant.service.aws.sqs.errors import SqsError, bad_value, entry_refusal, missing
from lavant.service.aws.sqs.handles import sequence_number
from lavant.service.aws.sqs.message_attributes import (
    TRACE_HEADER,
    accepted,
    accepted_trace_header,
    bytes_of,
)
from lavant.service.aws.sqs.names import is_fifo, queue_of_url
from lavant.service.aws.text import is_text

_IDENTIFIER = re.compile(rf"[!-~]{{1,{limits.IDENTIFIER_CHARACTERS_MAX}}}")
_NO_ATTRIBUTES: list[Attribute] = []
_OTHER_TYPE = "The request include parameter that is not valid for this queue type."


class _Draft(NamedTuple):
    """A valid message, and the checksums for its sender."""

    entry: SendEntry
    size_bytes: int
    md5_of_body: str
    md5_of_attributes: str | None
    md5_of_system_attributes: str | None


async def send_message(context: SqsContext, call: SqsCall, request: requests.SendMessage) -> results.SendMessageResult:
    queue = queue_of_url(request.queue_url)
    draft = _draft(queue, request)
    if draft.size_bytes > limits.MESSAGE_BYTES_MAX:
        raise SqsError(
            "InvalidParameterValue",
            "One or more parameters are invalid. "
            f"Reason: Message must be shorter than {limits.MESSAGE_BYTES_MAX} bytes.",
        )
    await _check_deduplication(context, queue, [draft])
    sent = (await context.ask(Send(queue, [draft.entry]))).entries[0]
    if isinstance(sent, Refused):
        raise entry_refusal(sent)
    return results.SendMessageResult(*_members(context, queue, draft, sent.number))


async def send_message_batch(
    context: SqsContext, call: SqsCall, request: requests.SendMessageBatch
) -> results.SendMessageBatchResult:
    check_batch(request.entries, "SendMessageBatchRequestEntry")
    queue = queue_of_url(request.queue_url)
    if is_fifo(queue) and any(not entry.message_group_id for entry in request.entries):
        raise SqsError("InvalidParameterValue", "The request must contain the parameter MessageGroupId.")
    successful: list[results.SendMessageBatchResultEntry] = []
    errors: dict[str, SqsError] = {}
    drafts: dict[str, _Draft] = {}
    for entry in request.entries:
        try:
            drafts[entry.id] = _draft(queue, entry)
        except SqsError as error:
            errors[entry.id] = error
    _check_batch_size(drafts.values())
    await _check_deduplication(context, queue, drafts.values())
    if not drafts:
        await check_exists(context, queue)
        return results.SendMessageBatchResult([], [failed(entry_id, error) for entry_id, error in errors.items()])
    sent = await context.ask(Send(queue, [draft.entry for draft in drafts.values()]))
    for (entry_id, draft), answer in zip(drafts.items(), sent.entries, strict=True):
        if isinstance(answer, Refused):
            errors[entry_id] = entry_refusal(answer)
        else:
            members = _members(context, queue, draft, answer.number)
            successful.append(results.SendMessageBatchResultEntry(entry_id, *members))
    return results.SendMessageBatchResult(
        successful, [failed(entry.id, errors[entry.id]) for entry in request.entries if entry.id in errors]
    )


def _members(
    context: SqsContext, queue: str, draft: _Draft, number: int
) -> tuple[str, str, str | None, str | None, str | None]:
    """The members of the result for one message."""
    sequence = sequence_number(number) if is_fifo(queue) else None
    md5s = (draft.md5_of_body, draft.md5_of_attributes, draft.md5_of_system_attributes)
    return context.handles.message_id(number), *md5s, sequence


def _draft(queue: str, message: requests.SendMessage | requests.SendMessageBatchRequestEntry) -> _Draft:
    body = message.message_body.encode()
    if not body:
        raise missing("MessageBody")
    if not is_text(body):
        raise SqsError(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
            "#xE000 to #xFFFD | #x10000 to #x10FFFF",
        )
    attributes, trace_header = _NO_ATTRIBUTES, ""
    if message.message_attributes:
        attributes = accepted(message.message_attributes)
    if message.message_system_attributes:
        trace_header = accepted_trace_header(message.message_system_attributes)
    md5_of_attributes = md5_of(attributes) if attributes else b""
    group = _group(queue, message.message_group_id)
    extras = MessageExtras(attributes, md5_of_attributes, trace_header, "" if is_fifo(queue) else group)
    return _Draft(
        SendEntry(
            body,
            encode_extras(extras),
            _delay_ms(queue, message.delay_seconds),
            group if is_fifo(queue) else "",
            _deduplication(queue, message.message_deduplication_id),
        ),
        len(body) + bytes_of(attributes),
        md5(body, usedforsecurity=False).hexdigest(),
        md5_of_attributes.hex() if attributes else None,
        md5_of([Attribute(TRACE_HEADER, "String", trace_header.encode())]).hex() if trace_header else None,
    )


def _group(queue: str, group: str | None) -> str:
    """Standard queues accept and return a group too; it does not order their messages."""
    if not group:
        if is_fifo(queue):
            raise missing("MessageGroupId")
        return ""
    return _identifier("MessageGroupId", group)


def _deduplication(queue: str, deduplication: str | None) -> str:
    if not deduplication:
        return ""
    if not is_fifo(queue):
        raise bad_value("MessageDeduplicationId", deduplication, _OTHER_TYPE)
    return _identifier("MessageDeduplicationId", deduplication)


def _identifier(parameter: str, value: str) -> str:
    if _IDENTIFIER.fullmatch(value) is None:
        raise bad_value(
            parameter,
            value,
            f"{parameter} can only include alphanumeric and punctuation characters. "
            f"1 to {limits.IDENTIFIER_CHARACTERS_MAX} in length.",
        )
    return value


def _delay_ms(queue: str, delay_s: int | None) -> int | None:
    if delay_s is None:
        return None
    if not 0 <= delay_s <= limits.DELAY_S_MAX:
        raise bad_value("DelaySeconds", delay_s, f"DelaySeconds must be >= 0 and <= {limits.DELAY_S_MAX}.")
    if is_fifo(queue):
        if delay_s:
            raise bad_value("DelaySeconds", delay_s, _OTHER_TYPE)
        return None
    return delay_s * SECOND_MS


def _check_batch_size(drafts: Collection[_Draft]) -> None:
    size_bytes = sum(draft.size_bytes for draft in drafts)
    if size_bytes > limits.BATCH_BYTES_MAX:
        raise SqsError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {limits.BATCH_BYTES_MAX} bytes. You have sent {size_bytes} bytes.",
        )


async def _check_deduplication(context: SqsContext, queue: str, drafts: Collection[_Draft]) -> None:
    """Checks that a message of a FIFO queue has a deduplication id, or that the queue deduplicates by content."""
    if not is_fifo(queue) or all(draft.entry.deduplication for draft in drafts):
        return
    described = await context.ask(DescribeQueue(queue))
    if not described.config.deduplicate_by_content:
        raise SqsError(
            "InvalidParameterValue",
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
            "explicitly",
        )
