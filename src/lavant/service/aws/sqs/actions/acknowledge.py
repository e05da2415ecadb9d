"""Actions on received messages: delete them, or change their visibility timeout.

A receipt is stale if another consumer holds the lease now. Deleting with a stale receipt succeeds without effect in a
standard queue; in a FIFO queue it is an error, because the order of the other messages depends on it.
"""

from __future__ import annotations

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    Refused,
    VisibilityChange,
)
from lavant.core.errors import NotInFlight, StaleReceipt
from lavant.service.aws.sqs import limits, requests, results
from lavant.service.aws.sqs.actions.batches import check_batch, check_exists, failed
from lavant.service.aws.sqs.context import SqsCall, SqsContext
from lavant.service.aws.sqs.errors import SqsError, bad_value, entry_refusal
from lavant.service.aws.sqs.names import is_fifo, queue_of_url


async def delete_message(context: SqsContext, call: SqsCall, request: requests.DeleteMessage) -> None:
    queue = queue_of_url(request.queue_url)
    receipt = context.handles.receipt(queue, request.receipt_handle)
    answer = await context.ask(Acknowledge(queue, [receipt]))
    for refused in answer.refused.values():
        _check_deleted(queue, request.receipt_handle, refused)


async def delete_message_batch(
    context: SqsContext, call: SqsCall, request: requests.DeleteMessageBatch
) -> results.BatchResult:
    check_batch(request.entries, "DeleteMessageBatchRequestEntry")
    queue = queue_of_url(request.queue_url)
    errors: dict[str, SqsError] = {}
    receipts = {}
    for entry in request.entries:
        try:
            receipts[entry.id] = context.handles.receipt(queue, entry.receipt_handle)
        except SqsError as error:
            errors[entry.id] = error
    handles = {entry.id: entry.receipt_handle for entry in request.entries}
    if not receipts:
        await check_exists(context, queue)
        return _batch_result(list(handles), errors)
    answer = await context.ask(Acknowledge(queue, list(receipts.values())))
    for place, entry_id in enumerate(receipts):
        if place in answer.refused:
            try:
                _check_deleted(queue, handles[entry_id], answer.refused[place])
            except SqsError as error:
                errors[entry_id] = error
    return _batch_result(list(handles), errors)


async def change_message_visibility(
    context: SqsContext, call: SqsCall, request: requests.ChangeMessageVisibility
) -> None:
    queue = queue_of_url(request.queue_url)
    change = _change(context, queue, request.receipt_handle, request.visibility_timeout)
    answer = await context.ask(ChangeVisibility(queue, [change]))
    for refused in answer.refused.values():
        raise _not_changed(request.receipt_handle, refused)


async def change_message_visibility_batch(
    context: SqsContext, call: SqsCall, request: requests.ChangeMessageVisibilityBatch
) -> results.BatchResult:
    check_batch(request.entries, "ChangeMessageVisibilityBatchRequestEntry")
    queue = queue_of_url(request.queue_url)
    errors: dict[str, SqsError] = {}
    changes = {}
    for entry in request.entries:
        try:
            changes[entry.id] = _change(context, queue, entry.receipt_handle, entry.visibility_timeout)
        except SqsError as error:
            errors[entry.id] = error
    handles = {entry.id: entry.receipt_handle for entry in request.entries}
    if not changes:
        await check_exists(context, queue)
        return _batch_result(list(handles), errors)
    answer = await context.ask(ChangeVisibility(queue, list(changes.values())))
    for place, entry_id in enumerate(changes):
        if place in answer.refused:
            errors[entry_id] = _not_changed(handles[entry_id], answer.refused[place])
    return _batch_result(list(handles), errors)


def _change(context: SqsContext, queue: str, handle: str, visibility_s: int | None) -> VisibilityChange:
    receipt = context.handles.receipt(queue, handle)
    if visibility_s is None:
        visibility_s = 0
    if not 0 <= visibility_s <= limits.VISIBILITY_S_MAX:
        raise bad_value(
            "VisibilityTimeout", visibility_s, f"VisibilityTimeout must be between 0 and {limits.VISIBILITY_S_MAX}."
        )
    return VisibilityChange(receipt, visibility_s * SECOND_MS)


def _check_deleted(queue: str, handle: str, refused: Refused) -> None:
    if refused.code != StaleReceipt.__name__:
        raise entry_refusal(refused)
    if is_fifo(queue):
        raise bad_value("ReceiptHandle", handle, "The receipt handle has expired.")


def _not_changed(handle: str, refused: Refused) -> SqsError:
    if refused.code == NotInFlight.__name__:
        return SqsError("MessageNotInflight", refused.reason)
    if refused.code == StaleReceipt.__name__:
        return bad_value(
            "ReceiptHandle", handle, "Message does not exist or is not available for visibility timeout change."
        )
    return entry_refusal(refused)


def _batch_result(ids: list[str], errors: dict[str, SqsError]) -> results.BatchResult:
    return results.BatchResult(
        [results.BatchResultEntry(entry_id) for entry_id in ids if entry_id not in errors],
        [failed(entry_id, errors[entry_id]) for entry_id in ids if entry_id in errors],
    )
