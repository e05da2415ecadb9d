"""Message attributes: their checks, their MD5, and their encoding in a queue.

The attributes of a message, and all else that SQS keeps beside its body, are one value that is opaque to the broker. It
includes the MD5 over all attributes, because most consumers ask for all or none.

    MD5 over, for each attribute by name:  length | name | length | data type | 1 (text) or 2 (binary) | length | value
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import md5

import msgspec

from lavant.core.errors import UNDECODABLE
from lavant.service.aws.sqs import limits
from lavant.service.aws.sqs.errors import SqsError
from lavant.service.aws.sqs.requests import MessageAttributes, MessageAttributeValue
from lavant.service.aws.text import is_text

TRACE_HEADER = "AWSTraceHeader"

_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_RESERVED = ("aws.", "amazon.")
_NUMBER = re.compile(r"\s*[+-]?(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]{1,4}))?\s*")


class Attribute(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    type: str
    value: bytes
    """Text is in UTF-8."""

    @property
    def is_binary(self) -> bool:
        return self.type.startswith("Binary")


class MessageExtras(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="sqs"):
    """The data that SQS keeps with a message. The tag tells it from data of other protocols."""

    attributes: list[Attribute]
    md5: bytes
    """Over all attributes."""
    trace_header: str = ""
    group: str = ""
    """The message group in a standard queue; in FIFO queues the broker keeps it."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(MessageExtras).decode
NOTHING = MessageExtras([], b"")


def encode_extras(extras: MessageExtras) -> bytes:
    """Encodes the data; empty for most messages."""
    return b"" if extras == NOTHING else _encode(extras)


def decode_extras(data: bytes) -> MessageExtras:
    """Decodes the data of a message; empty if another protocol has sent it."""
    if not data:
        return NOTHING
    try:
        return _decode(data)
    except UNDECODABLE:
        return NOTHING


def accepted(attributes: MessageAttributes) -> list[Attribute]:
    """Checks the attributes of a sent message and returns them sorted by name."""
    if len(attributes) > limits.ATTRIBUTES_MAX:
        raise _invalid(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{limits.ATTRIBUTES_MAX}]."
        )
    return [_accepted(name, attributes[name]) for name in sorted(attributes)]


def accepted_trace_header(attributes: MessageAttributes) -> str:
    """Checks the only system attribute that a sender may set."""
    for name in attributes:
        if name != TRACE_HEADER:
            raise _invalid(f"Message system attribute name '{name}' is invalid. Only {TRACE_HEADER} can be sent.")
    if not attributes:
        return ""
    attribute = attributes[TRACE_HEADER]
    if attribute.data_type != "String" or not attribute.string_value or not is_text(attribute.string_value.encode()):
        raise _invalid(f"Message system attribute '{TRACE_HEADER}' must contain a non-empty value of type 'String'.")
    return attribute.string_value


def bytes_of(attributes: Iterable[Attribute]) -> int:
    """Returns their share of the message's size."""
    return sum(len(attribute.name) + len(attribute.type.encode()) + len(attribute.value) for attribute in attributes)


def md5_of(attributes: Iterable[Attribute]) -> bytes:
    """Computes the MD5 that SDKs compare over sent or received attributes.

    >>> md5_of([Attribute("Foo", "String", b"Bar")]).hex()
    'ae7155c6026991b6d54b11589678bf9c'
    """
    hashing = md5(usedforsecurity=False)
    for attribute in attributes:
        name, type_, value = attribute.name.encode(), attribute.type.encode(), attribute.value
        hashing.update(len(name).to_bytes(4, "big") + name + len(type_).to_bytes(4, "big") + type_)
        hashing.update(b"\x02" if attribute.is_binary else b"\x01")
        hashing.update(len(value).to_bytes(4, "big") + value)
    return hashing.digest()


def _accepted(name: str, attribute: MessageAttributeValue) -> Attribute:
    _check_name(name)
    type_ = attribute.data_type
    kind = type_.partition(".")[0]
    if kind not in ("String", "Number", "Binary") or len(type_) > limits.ATTRIBUTE_TYPE_CHARACTERS_MAX:
        raise _invalid(
            f"The message attribute '{name}' has an invalid message attribute type, "
            "the set of supported type prefixes is Binary, Number, and String."
        )
    if not is_text(type_.encode()):
        raise _invalid(f"The type of message attribute '{name}' contains invalid characters.")
    if attribute.string_list_values or attribute.binary_list_values:
        raise SqsError("UnsupportedOperation", f"The message attribute '{name}' has a list value, which is reserved.")
    value = attribute.binary_value if kind == "Binary" else attribute.string_value
    other = attribute.string_value if kind == "Binary" else attribute.binary_value
    if not value or other:
        raise _invalid(f"Message (user) attribute '{name}' must contain a non-empty value of type '{type_}'.")
    if isinstance(value, bytes):
        return Attribute(name, type_, value)
    _check_text(name, kind, value)
    return Attribute(name, type_, value.encode())


def _check_name(name: str) -> None:
    if (
        len(name) > limits.ATTRIBUTE_NAME_CHARACTERS_MAX
        or _NAME.fullmatch(name) is None
        or name.lower().startswith(_RESERVED)
    ):
        raise _invalid(
            f"Message (user) attribute name '{name[:300]}' is invalid. It can have up to "
            f"{limits.ATTRIBUTE_NAME_CHARACTERS_MAX} alphanumeric characters, underscores, hyphens and single periods "
            "between them, and cannot start with AWS. or Amazon."
        )


def _check_text(name: str, kind: str, value: str) -> None:
    if kind == "Number" and not _is_number(value):
        raise _invalid(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    if not is_text(value.encode()):
        raise SqsError("InvalidMessageContents", f"Message (user) attribute '{name}' contains invalid characters.")


def _is_number(text: str) -> bool:
    """Whether it has at most 38 significant digits and lies between 10^-128 and 10^126, or is zero.

    >>> [_is_number(text) for text in ("-1.50", "1e126", "1e127", "9" * 39, "ten")]
    [True, True, False, False, False]
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return False
    whole, fraction, bare_fraction, exponent = (group if group is not None else "" for group in match.groups())
    fraction += bare_fraction
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return True
    magnitude = len(digits) - len(fraction) - 1 + int(exponent if exponent else "0")
    return len(digits.rstrip("0")) <= limits.NUMBER_DIGITS_MAX and (
        limits.NUMBER_EXPONENT_MIN <= magnitude <= limits.NUMBER_EXPONENT_MAX
    )


def _invalid(message: str) -> SqsError:
    return SqsError("InvalidParameterValue", message)
