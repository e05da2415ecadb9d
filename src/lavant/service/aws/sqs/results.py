"""The results of the SQS protocol: one type for each action that has one, as in the service's model.

Empty members are omitted, as by Amazon: clients check whether `Messages` or `Failed` is present.
"""

from __future__ import annotations

import msgspec
from msgspec import field


class _Output(msgspec.Struct, frozen=True, gc=False, rename="pascal", omit_defaults=True):
    pass


class BatchResultErrorEntry(_Output, frozen=True):
    id: str
    sender_fault: bool
    code: str
    message: str


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class QueueUrlResult(_Output, frozen=True):
    """CreateQueue, GetQueueUrl."""

    queue_url: str


class ListQueuesResult(_Output, frozen=True):
    queue_urls: list[str] = []
    next_token: str | None = None


class GetQueueAttributesResult(_Output, frozen=True):
    attributes: dict[str, str] = {}


class ListDeadLetterSourceQueuesResult(_Output, frozen=True):
    queue_urls: list[str] = field(name="queueUrls")
    next_token: str | None = None


class ListQueueTagsResult(_Output, frozen=True):
    tags: dict[str, str] = {}


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class SendMessageResult(_Output, frozen=True):
    message_id: str
    md5_of_message_body: str = field(name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = field(default=None, name="MD5OfMessageAttributes")
    md5_of_message_system_attributes: str | None = field(default=None, name="MD5OfMessageSystemAttributes")
    sequence_number: str | None = None


class SendMessageBatchResultEntry(_Output, frozen=True):
    id: str
    message_id: str
    md5_of_message_body: str = field(name="MD5OfMessageBody")
    md5_of_message_attributes: str | None = field(default=None, name="MD5OfMessageAttributes")
    md5_of_message_system_attributes: str | None = field(default=None, name="MD5OfMessageSystemAttributes")
    sequence_number: str | None = None


class SendMessageBatchResult(_Output, frozen=True):
    successful: list[SendMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


class ResultAttributeValue(_Output, frozen=True):
    data_type: str
    string_value: str | None = None
    binary_value: bytes | None = None


class SqsMessage(_Output, frozen=True):
    message_id: str
    receipt_handle: str
    md5_of_body: str = field(name="MD5OfBody")
    body: str
    attributes: dict[str, str] = {}
    md5_of_message_attributes: str | None = field(default=None, name="MD5OfMessageAttributes")
    message_attributes: dict[str, ResultAttributeValue] = {}


class ReceiveMessageResult(_Output, frozen=True):
    messages: list[SqsMessage] = []


class BatchResultEntry(_Output, frozen=True):
    """A successful entry of DeleteMessageBatch or ChangeMessageVisibilityBatch."""

    id: str


class BatchResult(_Output, frozen=True):
    """DeleteMessageBatch, ChangeMessageVisibilityBatch."""

    successful: list[BatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


# ── moves ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class StartMessageMoveTaskResult(_Output, frozen=True):
    task_handle: str


class ListMessageMoveTasksResultEntry(_Output, frozen=True):
    status: str
    source_arn: str
    approximate_number_of_messages_moved: int
    approximate_number_of_messages_to_move: int
    started_timestamp: int
    task_handle: str | None = None
    """Only while the move runs: it serves to cancel it."""
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    failure_reason: str | None = None


class ListMessageMoveTasksResult(_Output, frozen=True):
    results: list[ListMessageMoveTasksResultEntry] = []


class CancelMessageMoveTaskResult(_Output, frozen=True):
    approximate_number_of_messages_moved: int
