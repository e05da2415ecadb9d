"""The attributes of a queue, each declared once.

Validation, SQS, HTTP, the command line and `docs/reference/queue-attributes.md` read these declarations. Names and
defaults are those of the fields of `QueueConfig`, whose order is a wire and journal format.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lavant.broker.protocol.queue_config import (
    DELAY_MS_MAX,
    DEPTH_MAX,
    MESSAGE_BYTES_MAX,
    MESSAGE_BYTES_MIN,
    RECEIVES_MAX,
    RETENTION_MS_MAX,
    RETENTION_MS_MIN,
    SECOND_MS,
    VISIBILITY_MS_MAX,
    WAIT_MS_MAX,
    QueueConfig,
)

_NEW_QUEUE = QueueConfig()


class QueueAttribute(msgspec.Struct, frozen=True):
    name: str
    """In Python, in the native protocol and over HTTP."""
    type: type
    """int, bool, str or dict (of strings)."""
    text: str
    """One line of documentation."""
    sqs_name: str
    """Amazon's name; `Lavant.…` if SQS does not have the attribute."""
    least: int = 0
    most: int | None = None
    """The range of an int; None for other types."""
    unit: str = ""
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
        """How many of `unit` are 1 in SQS, which counts times in seconds."""
        return SECOND_MS if self.unit == "ms" else 1

    @property
    def flag(self) -> str:
        """The option of `lavant queue create` and `lavant queue set`."""
        return self.other_flag if self.other_flag else "--" + self.name.replace("_", "-")


QUEUE_ATTRIBUTES = (
    QueueAttribute(
        "order",
        str,
        "out-of-order or in-order; in-order delivers the messages of a group one after the other",
        "FifoQueue",
        other_flag="--in-order",
        is_fixed=True,
    ),
    QueueAttribute(
        "visibility_ms",
        int,
        "how long a received message is hidden from other consumers",
        "VisibilityTimeout",
        most=VISIBILITY_MS_MAX,
        unit="ms",
    ),
    QueueAttribute(
        "delay_ms", int, "how long a sent message stays hidden first", "DelaySeconds", most=DELAY_MS_MAX, unit="ms"
    ),
    QueueAttribute(
        "retention_ms",
        int,
        "how long a message is kept",
        "MessageRetentionPeriod",
        least=RETENTION_MS_MIN,
        most=RETENTION_MS_MAX,
        unit="ms",
    ),
    QueueAttribute(
        "wait_ms",
        int,
        "how long a receive waits for a message (long poll)",
        "ReceiveMessageWaitTimeSeconds",
        most=WAIT_MS_MAX,
        unit="ms",
    ),
    QueueAttribute(
        "message_bytes_max",
        int,
        "largest message, body and attributes",
        "MaximumMessageSize",
        least=MESSAGE_BYTES_MIN,
        most=MESSAGE_BYTES_MAX,
        unit="bytes",
    ),
    QueueAttribute(
        "depth_max",
        int,
        "messages in the queue; beyond, sends are refused",
        "Lavant.DepthMax",
        least=1,
        most=DEPTH_MAX,
        unit="messages",
    ),
    QueueAttribute(
        "in_flight_max",
        int,
        "messages received and not yet acknowledged; beyond, receives are refused",
        "Lavant.InFlightMax",
        least=1,
        most=DEPTH_MAX,
        unit="messages",
    ),
    QueueAttribute("dead_letters", str, "queue for messages that were received receives_max times", "RedrivePolicy"),
    QueueAttribute(
        "receives_max",
        int,
        "deliveries before a message is dead-lettered; goes with dead_letters",
        "RedrivePolicy",
        least=1,
        most=RECEIVES_MAX,
        unit="receives",
    ),
    QueueAttribute(
        "deduplicate_by_content",
        bool,
        "in-order queues: the SHA-256 of the body is the default deduplication name",
        "ContentBasedDeduplication",
        is_in_order_only=True,
    ),
    QueueAttribute(
        "deduplicate_within_group",
        bool,
        "in-order queues: deduplication names count within their group only",
        "DeduplicationScope",
        sqs_values=("queue", "messageGroup"),
        is_in_order_only=True,
    ),
    QueueAttribute(
        "labels",
        dict,
        "attributes of other protocols, kept and returned unchanged",
        "Lavant.Labels",
        other_flag="--label",
    ),
)
