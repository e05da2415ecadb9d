"""The requests of the SQS protocol: one type for each action, with the members of the service's model.

Decoding checks the types; the actions check the values. A member that is null counts as absent.
"""

from __future__ import annotations

import msgspec
from msgspec import field


class _Input(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """Members have Python names here and names of the protocol outside: `queue_url`, `QueueUrl`."""


class MessageAttributeValue(_Input, frozen=True):
    data_type: str
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: list[str] | None = None
    binary_list_values: list[bytes] | None = None


MessageAttributes = dict[str, MessageAttributeValue]


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class CreateQueueRequest(_Input, frozen=True):
    queue_name: str
    attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = field(default=None, name="tags")


class GetQueueUrl(_Input, frozen=True):
    queue_name: str


class ListQueuesRequest(_Input, frozen=True):
    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class QueueOnly(_Input, frozen=True):
    """DeleteQueue, PurgeQueue, ListQueueTags."""

    queue_url: str


class GetQueueAttributes(_Input, frozen=True):
    queue_url: str
    attribute_names: list[str] | None = None


class SetQueueAttributes(_Input, frozen=True):
    queue_url: str
    attributes: dict[str, str]


class ListDeadLetterSourceQueues(_Input, frozen=True):
    queue_url: str
    next_token: str | None = None
    max_results: int | None = None


class TagQueueRequest(_Input, frozen=True):
    queue_url: str
    tags: dict[str, str]


class UntagQueue(_Input, frozen=True):
    queue_url: str
    tag_keys: list[str]


class Permission(_Input, frozen=True):
    """AddPermission, RemovePermission."""

    queue_url: str
    label: str


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _NewMessage(_Input, frozen=True):
    message_body: str
    delay_seconds: int | None = None
    message_attributes: MessageAttributes | None = None
    message_system_attributes: MessageAttributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessage(_NewMessage, frozen=True, kw_only=True):
    queue_url: str


class SendMessageBatchRequestEntry(_NewMessage, frozen=True, kw_only=True):
    id: str


class SendMessageBatch(_Input, frozen=True):
    queue_url: str
    entries: list[SendMessageBatchRequestEntry]


class ReceiveMessage(_Input, frozen=True):
    queue_url: str
    attribute_names: list[str] | None = None
    """The older name of the next member; both may be given."""
    message_system_attribute_names: list[str] | None = None
    message_attribute_names: list[str] | None = None
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(_Input, frozen=True):
    queue_url: str
    receipt_handle: str


class DeleteMessageBatchRequestEntry(_Input, frozen=True):
    id: str
    receipt_handle: str


class DeleteMessageBatch(_Input, frozen=True):
    queue_url: str
    entries: list[DeleteMessageBatchRequestEntry]


class ChangeMessageVisibility(_Input, frozen=True):
    queue_url: str
    receipt_handle: str
    visibility_timeout: int


class ChangeMessageVisibilityBatchRequestEntry(_Input, frozen=True):
    id: str
    receipt_handle: str
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatch(_Input, frozen=True):
    queue_url: str
    entries: list[ChangeMessageVisibilityBatchRequestEntry]


# ── moves ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class StartMessageMoveTask(_Input, frozen=True):
    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class ListMessageMoveTasks(_Input, frozen=True):
    source_arn: str
    max_results: int | None = None


class CancelMessageMoveTask(_Input, frozen=True):
    task_handle: str
