"""A queue's attributes: what clients may set, what they are given, and the queue's configuration between the two.

Attributes that say nothing to a queue of Lavant (policies, keys of encryption) are kept and given back as they came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from lavant.broker.protocol.queue_config import SECOND_MS, QueueConfig
from lavant.broker.protocol.queues import Described
from lavant.core.decoding import UNDECODABLE
from lavant.service.aws.sqs import limits
from lavant.service.aws.sqs.errors import SqsError
from lavant.service.aws.sqs.redrive import (
    REDRIVE_ALLOW_POLICY,
    REDRIVE_POLICY,
    check_allow_policy,
    parse_policy,
    show_policy,
)
from lavant.service.aws.text import is_text

_DIGITS_MAX = 10


class _Number(NamedTuple):
    field: str
    low: int
    high: int
    factor: int = SECOND_MS


_NUMBERS = {
    "DelaySeconds": _Number("delay_ms", 0, limits.DELAY_S_MAX),
    "MaximumMessageSize": _Number("message_bytes_max", limits.QUEUE_MESSAGE_BYTES_MIN, limits.MESSAGE_BYTES_MAX, 1),
    "MessageRetentionPeriod": _Number("retention_ms", limits.RETENTION_S_MIN, limits.RETENTION_S_MAX),
    "ReceiveMessageWaitTimeSeconds": _Number("wait_ms", 0, limits.WAIT_S_MAX),
    "VisibilityTimeout": _Number("visibility_ms", 0, limits.VISIBILITY_S_MAX),
}


def _check_policy(name: str, value: str) -> None:
    try:
        msgspec.json.decode(value, type=dict[str, object])
    except UNDECODABLE:
        raise _bad_value(name) from None


def _check_switch(name: str, value: str) -> None:
    if value not in ("true", "false"):
        raise _bad_value(name)


def _check_reuse(name: str, value: str) -> None:
    _integer(name, value, limits.KEY_REUSE_S_MIN, limits.KEY_REUSE_S_MAX)


def _check_throughput(name: str, value: str) -> None:
    if value not in ("perQueue", "perMessageGroupId"):
        raise _bad_value(name)


_KEPT: dict[str, Callable[[str, str], None]] = {
    "Policy": _check_policy,
    "KmsMasterKeyId": lambda name, value: None,
    "KmsDataKeyReusePeriodSeconds": _check_reuse,
    "SqsManagedSseEnabled": _check_switch,
    REDRIVE_ALLOW_POLICY: lambda name, value: check_allow_policy(value),
    "FifoThroughputLimit": _check_throughput,
}
_FIFO_ONLY = ("ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")
_READ_ONLY = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
)
NAMES = frozenset(
    {"All", "FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", REDRIVE_POLICY}
    | _NUMBERS.keys()
    | _KEPT.keys()
    | set(_READ_ONLY)
)


def new_config(attributes: dict[str, str], *, is_fifo: bool) -> QueueConfig:
    """The configuration of a queue that is created with these attributes."""
    rest = dict(attributes)
    if rest.pop("FifoQueue", None) not in (("true",) if is_fifo else (None,)):
        raise unknown_attribute("FifoQueue")
    return changed_config(QueueConfig(order="in-order" if is_fifo else "out-of-order"), rest)


def changed_config(config: QueueConfig, attributes: dict[str, str]) -> QueueConfig:
    """A queue's configuration after these attributes were set; all others stay."""
    for name, value in attributes.items():
        config = _changed(config, name, value)
    labels = config.labels
    if labels.get("SqsManagedSseEnabled") == "true" and "KmsMasterKeyId" in labels:
        raise SqsError(
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. "
            "You can either enable KMS SSE or SQS SSE.",
        )
    if labels.get("FifoThroughputLimit") == "perMessageGroupId" and not config.deduplicate_within_group:
        raise _bad_value("FifoThroughputLimit", "perMessageGroupId goes with the DeduplicationScope messageGroup only.")
    return config


def shown_attributes(described: Described, arn_of: Callable[[str], str], queue: str) -> dict[str, str]:
    """All attributes of a queue."""
    config, figures = described.config, described.figures
    shown = {
        "QueueArn": arn_of(queue),
        "ApproximateNumberOfMessages": str(figures.visible),
        "ApproximateNumberOfMessagesNotVisible": str(figures.in_flight),
        "ApproximateNumberOfMessagesDelayed": str(figures.delayed),
        "CreatedTimestamp": str(described.created_ms // SECOND_MS),
        "LastModifiedTimestamp": str(described.changed_ms // SECOND_MS),
    }
    return shown | settable_attributes(config, arn_of)


def settable_attributes(config: QueueConfig, arn_of: Callable[[str], str]) -> dict[str, str]:
    shown = {name: str(getattr(config, number.field) // number.factor) for name, number in _NUMBERS.items()}
    shown["SqsManagedSseEnabled"] = "false"
    if config.order == "in-order":
        shown["FifoQueue"] = "true"
        shown["ContentBasedDeduplication"] = "true" if config.deduplicate_by_content else "false"
        shown["DeduplicationScope"] = "messageGroup" if config.deduplicate_within_group else "queue"
        shown["FifoThroughputLimit"] = "perQueue"
    if config.dead_letters is not None and config.receives_max is not None:
        shown[REDRIVE_POLICY] = show_policy(arn_of(config.dead_letters), config.receives_max)
    return shown | {name: value for name, value in config.labels.items() if name in _KEPT}


def unknown_attribute(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name[:100]}.")


def _changed(config: QueueConfig, name: str, value: str) -> QueueConfig:
    is_fifo = config.order == "in-order"
    if name in _FIFO_ONLY and not is_fifo:
        raise unknown_attribute(name)
    number = _NUMBERS.get(name)
    if number is not None:
        return replace(config, **{number.field: _integer(name, value, number.low, number.high) * number.factor})
    if name in _KEPT:
        return replace(config, labels=_relabelled(config.labels, name, value))
    if name == REDRIVE_POLICY:
        if not value:
            return replace(config, dead_letters=None, receives_max=None)
        redrive = parse_policy(value)
        return replace(config, dead_letters=redrive.dead_letters, receives_max=redrive.receives_max)
    if name == "ContentBasedDeduplication":
        _check_switch(name, value)
        return replace(config, deduplicate_by_content=value == "true")
    if name == "DeduplicationScope":
        if value not in ("queue", "messageGroup"):
            raise _bad_value(name)
        return replace(config, deduplicate_within_group=value == "messageGroup")
    if name == "FifoQueue" and is_fifo:
        if value == "true":
            return config
        raise _bad_value(name, "Modifying queue type is not supported.")
    raise unknown_attribute(name)


def _relabelled(labels: dict[str, str], name: str, value: str) -> dict[str, str]:
    """An empty value takes the attribute away."""
    others = {key: kept for key, kept in labels.items() if key != name}
    if not value:
        return others
    if len(value) > limits.LABEL_CHARACTERS_MAX:
        raise _bad_value(name, f"It has {len(value)} characters, at most {limits.LABEL_CHARACTERS_MAX} are allowed.")
    if not is_text(value.encode()):
        raise _bad_value(name)
    _KEPT[name](name, value)
    return others | {name: value}


def _integer(name: str, value: str, low: int, high: int) -> int:
    if not value.isascii() or not value.isdecimal() or len(value) > _DIGITS_MAX or not low <= int(value) <= high:
        raise _bad_value(name, f"It must be a whole number from {low} to {high}.")
    return int(value)


def _bad_value(name: str, reason: str = "") -> SqsError:
    return SqsError(
        "InvalidAttributeValue", f"Invalid value for the parameter {name}." + (f" Reason: {reason}" if reason else "")
    )
