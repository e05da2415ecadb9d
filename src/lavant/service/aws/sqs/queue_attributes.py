"""Converts between the queue attributes of SQS and a queue's configuration.

`lavant.broker.protocol.queue_attributes` declares the attributes. Those that Amazon does not have begin with `Lavant.`.
Attributes that mean nothing to Lavant (policies, encryption keys) are kept as labels and returned unchanged.

RedrivePolicy         of a source: {"deadLetterTargetArn": ARN, "maxReceiveCount": 1 to 1000}
RedriveAllowPolicy    of a dead-letter queue: {"redrivePermission": "allowAll" | "denyAll" | "byQueue",
                      "sourceQueueArns": up to 10 ARNs, with byQueue only}
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from lavant.broker.protocol.queue_attributes import QUEUE_ATTRIBUTES, QueueAttribute
from lavant.broker.protocol.queue_config import RECEIVES_MAX, SECOND_MS, QueueConfig
from lavant.broker.protocol.queues import Described
from lavant.core.errors import UNDECODABLE
from lavant.core.validation.choices import with_choices
from lavant.service.aws.sqs import limits
from lavant.service.aws.sqs.errors import SqsError, bad_value
from lavant.service.aws.sqs.names import queue_of_arn
from lavant.service.aws.text import is_text

REDRIVE_POLICY = "RedrivePolicy"
REDRIVE_ALLOW_POLICY = "RedriveAllowPolicy"


class Redrive(NamedTuple):
    dead_letters: str
    receives_max: int


class _Policy(msgspec.Struct, rename="camel"):
    dead_letter_target_arn: str | None = None
    max_receive_count: int | str | None = None


class _AllowPolicy(msgspec.Struct, rename="camel"):
    redrive_permission: Literal["allowAll", "denyAll", "byQueue"]
    source_queue_arns: list[str] = []


_decode_policy = msgspec.json.Decoder(_Policy).decode
_decode_allow_policy = msgspec.json.Decoder(_AllowPolicy).decode


def parse_policy(text: str) -> Redrive:
    """Returns the name of the dead-letter queue, and the number of receives after which it is used.

    >>> parse_policy('{"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:123456789012:dead", "maxReceiveCount": "3"}')
    Redrive(dead_letters='dead', receives_max=3)
    """
    try:
        policy = _decode_policy(text)
    except UNDECODABLE as error:
        raise bad_value(REDRIVE_POLICY, text, f"Redrive policy is not valid JSON: {error}.") from None
    for name, value in (
        ("deadLetterTargetArn", policy.dead_letter_target_arn),
        ("maxReceiveCount", policy.max_receive_count),
    ):
        if value is None:
            raise bad_value(REDRIVE_POLICY, text, f"Redrive policy does not contain mandatory attribute: {name}.")
    try:
        dead_letters = queue_of_arn(str(policy.dead_letter_target_arn), REDRIVE_POLICY)
    except SqsError:
        raise bad_value(REDRIVE_POLICY, text, "Invalid value for deadLetterTargetArn.") from None
    count = str(policy.max_receive_count)
    if not (count.isascii() and count.isdecimal()) or not 1 <= int(count[:9]) <= RECEIVES_MAX:
        raise bad_value(
            REDRIVE_POLICY,
            text,
            f"Invalid value for maxReceiveCount: {count[:20]}, "
            f"valid values are from 1 to {RECEIVES_MAX} both inclusive.",
        )
    return Redrive(dead_letters, int(count))


def show_policy(arn: str, receives_max: int) -> str:
    return msgspec.json.encode({"deadLetterTargetArn": arn, "maxReceiveCount": receives_max}).decode()


def check_allow_policy(text: str) -> None:
    policy = _allow_policy(text)
    if (policy.redrive_permission == "byQueue") != bool(policy.source_queue_arns):
        raise bad_value(REDRIVE_ALLOW_POLICY, text, "sourceQueueArns go with the permission byQueue, and only with it.")
    if len(policy.source_queue_arns) > limits.REDRIVE_SOURCES_MAX:
        raise bad_value(
            REDRIVE_ALLOW_POLICY, text, f"sourceQueueArns can have up to {limits.REDRIVE_SOURCES_MAX} elements."
        )


def is_allowed(allow_policy: str | None, source: str) -> bool:
    """Whether a dead-letter queue with this policy accepts messages of this source."""
    if allow_policy is None:
        return True
    policy = _allow_policy(allow_policy)
    if policy.redrive_permission == "byQueue":
        return source in (queue_of_arn(arn, REDRIVE_ALLOW_POLICY) for arn in policy.source_queue_arns)
    return policy.redrive_permission == "allowAll"


def _allow_policy(text: str) -> _AllowPolicy:
    try:
        policy = _decode_allow_policy(text)
    except UNDECODABLE as error:
        why = f"It is not a redrive allow policy: {with_choices(error, _AllowPolicy)}."
        raise bad_value(REDRIVE_ALLOW_POLICY, text, why) from None
    for arn in policy.source_queue_arns:
        queue_of_arn(arn, REDRIVE_ALLOW_POLICY)
    return policy


_DIGITS_MAX = 10


_NUMBERS = {each.sqs_name: each for each in QUEUE_ATTRIBUTES if each.type is int and each.sqs_name != REDRIVE_POLICY}
_SWITCHES = {each.sqs_name: each for each in QUEUE_ATTRIBUTES if each.type is bool}
LABELS = "Lavant.Labels"
"""The labels that are not attributes of SQS, as a JSON object."""


def _check_policy(name: str, value: str) -> None:
    try:
        msgspec.json.decode(value, type=dict[str, object])
    except UNDECODABLE:
        raise _bad_value(name) from None


def _check_switch(name: str, value: str) -> None:
    if value not in ("true", "false"):
        raise _bad_value(name)


def _check_reuse(name: str, value: str) -> None:
    _parse_integer(name, value, limits.KEY_REUSE_S_MIN, limits.KEY_REUSE_S_MAX)


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
_FIFO_ONLY = {each.sqs_name for each in QUEUE_ATTRIBUTES if each.is_in_order_only} | {"FifoThroughputLimit"}
_READ_ONLY = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
)
NAMES = frozenset({"All", *(each.sqs_name for each in QUEUE_ATTRIBUTES), *_KEPT, *_READ_ONLY})


def new_config(attributes: dict[str, str], *, is_fifo: bool) -> QueueConfig:
    """Returns the configuration of a queue that is created with these attributes."""
    rest = dict(attributes)
    if rest.pop("FifoQueue", None) not in (("true",) if is_fifo else (None,)):
        raise unknown_attribute("FifoQueue")
    return changed_config(QueueConfig(order="in-order" if is_fifo else "out-of-order"), rest)


def changed_config(config: QueueConfig, attributes: dict[str, str]) -> QueueConfig:
    """Returns a configuration with these attributes set, and all others as they were."""
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


def all_attributes(described: Described, arn_of: Callable[[str], str], queue: str) -> dict[str, str]:
    figures = described.figures
    read_only = {
        "QueueArn": arn_of(queue),
        "ApproximateNumberOfMessages": str(figures.visible),
        "ApproximateNumberOfMessagesNotVisible": str(figures.in_flight),
        "ApproximateNumberOfMessagesDelayed": str(figures.delayed),
        "CreatedTimestamp": str(described.created_ms // SECOND_MS),
        "LastModifiedTimestamp": str(described.changed_ms // SECOND_MS),
    }
    return read_only | settable_attributes(described.config, arn_of)


def settable_attributes(config: QueueConfig, arn_of: Callable[[str], str]) -> dict[str, str]:
    attributes = {name: str(getattr(config, each.name) // each.sqs_unit) for name, each in _NUMBERS.items()}
    attributes["SqsManagedSseEnabled"] = "false"
    if config.order == "in-order":
        attributes["FifoQueue"] = "true"
        attributes |= {name: each.sqs_values[getattr(config, each.name)] for name, each in _SWITCHES.items()}
        attributes["FifoThroughputLimit"] = "perQueue"
    if config.dead_letters is not None and config.receives_max is not None:
        attributes[REDRIVE_POLICY] = show_policy(arn_of(config.dead_letters), config.receives_max)
    kept = {name: value for name, value in config.labels.items() if name in _KEPT}
    if len(kept) < len(config.labels):
        others = {name: value for name, value in config.labels.items() if name not in _KEPT}
        attributes[LABELS] = json.dumps(others, separators=(",", ":"))  # ASCII, so that XML can hold any character
    return attributes | kept


def unknown_attribute(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name[:100]}.")


def _changed(config: QueueConfig, name: str, value: str) -> QueueConfig:
    is_fifo = config.order == "in-order"
    if name in _FIFO_ONLY and not is_fifo:
        raise unknown_attribute(name)
    if name in _NUMBERS or name in _SWITCHES:
        attribute = _NUMBERS[name] if name in _NUMBERS else _SWITCHES[name]
        return replace(config, **{attribute.name: _parse(attribute, value)})
    if name in _KEPT:
        return replace(config, labels=_relabelled(config.labels, name, value))
    if name == LABELS:
        kept = {label: text for label, text in config.labels.items() if label in _KEPT}
        return replace(config, labels=_parse_labels(value) | kept)
    if name == REDRIVE_POLICY:
        if not value:
            return replace(config, dead_letters=None, receives_max=None)
        redrive = parse_policy(value)
        return replace(config, dead_letters=redrive.dead_letters, receives_max=redrive.receives_max)
    if name == "FifoQueue" and is_fifo:
        if value == "true":
            return config
        raise _bad_value(name, "Modifying queue type is not supported.")
    raise unknown_attribute(name)


def _relabelled(labels: dict[str, str], name: str, value: str) -> dict[str, str]:
    """Returns the labels with one set; an empty value removes it."""
    others = {key: kept for key, kept in labels.items() if key != name}
    if not value:
        return others
    if len(value) > limits.LABEL_CHARACTERS_MAX:
        raise _bad_value(name, f"It has {len(value)} characters, at most {limits.LABEL_CHARACTERS_MAX} are allowed.")
    if not is_text(value.encode()):
        raise _bad_value(name)
    _KEPT[name](name, value)
    return others | {name: value}


def _parse(attribute: QueueAttribute, value: str) -> Any:
    name = attribute.sqs_name
    if attribute.most is not None:
        unit = attribute.sqs_unit
        return _parse_integer(name, value, attribute.least // unit, attribute.most // unit) * unit
    if value not in attribute.sqs_values:
        raise _bad_value(name)
    return bool(attribute.sqs_values.index(value))


def _parse_integer(name: str, value: str, low: int, high: int) -> int:
    if not value.isascii() or not value.isdecimal() or len(value) > _DIGITS_MAX or not low <= int(value) <= high:
        raise _bad_value(name, f"It must be a whole number from {low} to {high}, not {value[:40]!r}.")
    return int(value)


def _parse_labels(value: str) -> dict[str, str]:
    try:
        labels = msgspec.json.decode(value if value else "{}", type=dict[str, str])
    except UNDECODABLE:
        raise _bad_value(LABELS, "It must be a JSON object of strings.") from None
    for label in labels:
        if label in _KEPT:
            raise _bad_value(LABELS, f"{label} is an attribute of SQS; set it by its own name.")
    return labels


def _bad_value(name: str, reason: str = "") -> SqsError:
    because = f" Reason: {reason}" if reason else ""
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.{because}")
