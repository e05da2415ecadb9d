"""Message attributes: their checks, their MD5, and their encoding in a queue.

The attributes of a message, and all else that SQS keeps beside its body, are one value that is opaque to the broker. It
includes the MD5 over all attributes, because most consumers ask for all or none.

    MD5 over, for each attribute by name:  length | name | length | data type | 1 (text) or 2 (binary) | length | value
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lavant.core.publications.trace_context import Attribute
from lavant.service.aws.sqs import limits
from lavant.service.aws.sqs.errors import SqsError
from lavant.service.aws.sqs.requests import MessageAttributes, MessageAttributeValue
from lavant.service.aws.text import is_text

TRACE_HEADER = "AWSTraceHeader"

_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_RESERVED = ("aws.", "amazon.")
_NUMBER = re.compile(r"\s*[+-]?(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]{1,4}))?\s*")


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
