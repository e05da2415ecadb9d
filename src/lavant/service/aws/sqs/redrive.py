"""Redrive policies: the dead-letter queue of a queue, and the sources that a dead-letter queue accepts.

RedrivePolicy         of a source: {"deadLetterTargetArn": ARN, "maxReceiveCount": 1 to 1000}
RedriveAllowPolicy    of a dead-letter queue: {"redrivePermission": "allowAll" | "denyAll" | "byQueue",
                      "sourceQueueArns": up to 10 ARNs, with byQueue only}
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from lavant.broker.protocol.queue_config import RECEIVES_MAX
from lavant.core.errors import UNDECODABLE
from lavant.service.aws.sqs import limits
from lavant.service.aws.sqs.errors import SqsError, bad_value
from lavant.service.aws.sqs.names import queue_of_arn

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
        raise bad_value(REDRIVE_ALLOW_POLICY, text, f"It is not a redrive allow policy: {error}.") from None
    for arn in policy.source_queue_arns:
        queue_of_arn(arn, REDRIVE_ALLOW_POLICY)
    return policy
