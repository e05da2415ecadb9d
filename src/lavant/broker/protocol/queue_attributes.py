"""The attributes of a queue, each declared once.

Validation, SQS, HTTP, the command line and `docs/reference/queue-attributes.md` read these declarations. Names and
defaults are those of the fields of `QueueConfig`, whose order is a wire and journal format.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lavant.broker.protocol import queue_config as bounds

_NEW_QUEUE = bounds.QueueConfig()


class QueueAttribute(msgspec.Struct, frozen=True):
    name: str
    """In the native protocol and over HTTP; it says the unit: ms, bytes. In Python, `X_ms` is `X_s`, in seconds."""
    type: type
    """int, bool, str or dict (of strings)."""
    sqs_name: str
    """Amazon's name; `Lavant.…` if SQS does not have the attribute."""
    text: str
    """One line of documentation."""
    least: int = 0
    most: int | None = None
    """The range of an int; None for other types."""
    sqs_values: tuple[str, str] = ("false", "true")
    """How SQS writes a bool."""
    other_flag: str = ""
    is_fixed: bool = False
    """Whether it can be set only when the queue is created."""
    is_in_order_only: bool = False

    @property
    def default(self) -> Any:
        return getattr(_NEW_QUEUE, self.name)

    @property
    def sqs_unit(self) -> int:
        """What 1 in SQS stands for: SQS counts times in seconds."""
        return bounds.SECOND_MS if self.name.endswith("_ms") else 1

    @property
    def flag(self) -> str:
        """The option of `lavant queue create` and `lavant queue configure`."""
        return self.other_flag if self.other_flag else "--" + self.name.replace("_", "-")


QUEUE_ATTRIBUTES = (
    QueueAttribute(
        "order",
        str,
        "FifoQueue",
        "out-of-order or in-order; in-order delivers the messages of a group one after the other",
        other_flag="--in-order",
        is_fixed=True,
    ),
    QueueAttribute(
        "visibility_ms",
        int,
        "VisibilityTimeout",
        "how long a received message is hidden",
        most=bounds.VISIBILITY_MS_MAX,
    ),
    QueueAttribute(
        "delay_ms", int, "DelaySeconds", "how long a sent message stays hidden first", most=bounds.DELAY_MS_MAX
    ),
    QueueAttribute(
        "retention_ms",
        int,
        "MessageRetentionPeriod",
        "how long a message is kept",
        bounds.RETENTION_MS_MIN,
        bounds.RETENTION_MS_MAX,
    ),
    QueueAttribute(
        "wait_ms",
        int,
        "ReceiveMessageWaitTimeSeconds",
        "how long a receive waits for a message",
        most=bounds.WAIT_MS_MAX,
    ),
    QueueAttribute(
        "message_bytes_max",
        int,
        "MaximumMessageSize",
        "largest message, body and attributes",
        bounds.MESSAGE_BYTES_MIN,
        bounds.MESSAGE_BYTES_MAX,
    ),
    QueueAttribute(
        "depth_max", int, "Lavant.DepthMax", "messages in the queue; then sends are refused", 1, bounds.DEPTH_MAX
    ),
    QueueAttribute(
        "in_flight_max", int, "Lavant.InFlightMax", "messages in flight; then receives are refused", 1, bounds.DEPTH_MAX
    ),
    QueueAttribute("dead_letters", str, "RedrivePolicy", "queue for messages that were received receives_max times"),
    QueueAttribute(
        "receives_max", int, "RedrivePolicy", "deliveries before a message is dead-lettered", 1, bounds.RECEIVES_MAX
    ),
    QueueAttribute(
        "deduplicate_by_content",
        bool,
        "ContentBasedDeduplication",
        "in-order queues: the SHA-256 of the body is the default deduplication name",
        is_in_order_only=True,
    ),
    QueueAttribute(
        "deduplicate_within_group",
        bool,
        "DeduplicationScope",
        "in-order queues: deduplication names count within their group only",
        sqs_values=("queue", "messageGroup"),
        is_in_order_only=True,
    ),
    QueueAttribute(
        "labels",
        dict,
        "Lavant.Labels",
        "attributes of other protocols, kept and returned unchanged",
        other_flag="--label",
    ),
)
