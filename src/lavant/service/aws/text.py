"""The text of SQS: UTF-8 without the characters that XML cannot hold.

Bodies are bytes in the queues. A body from another protocol that is not text is delivered in base64.
"""

from __future__ import annotations

import re
from base64 import b64encode

from lavant.service.aws.sqs.errors import SqsError, missing

_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.(.+)`)?")
_NULL = re.compile(r"Expected `.*`, got `null` - at `\$\.(.+)`")


def decoding_error(error: Exception) -> SqsError:
    """Converts the error of a decoder: a required member is missing or null, or has a wrong type."""
    text = str(error)
    absent = _MISSING.fullmatch(text)
    if absent is not None:
        name, place = absent.groups()
        return missing(name if place is None else f"{place}.{name}")
    null = _NULL.fullmatch(text)
    if null is not None:
        return missing(null[1])
    return SqsError("MalformedInput", f"The request cannot be read: {text}.")


_CONTROLS = bytes(code for code in range(0x20) if code not in b"\t\n\r")
_NONCHARACTERS = ("\ufffe".encode(), "\uffff".encode())


def is_text(body: bytes) -> bool:
    """Whether UTF-8 has only allowed characters: #x9, #xA, #xD, and from #x20 on all but #xFFFE and #xFFFF.

    >>> is_text("tab\\t, é and 🙂".encode()), is_text(b"bell\\x07"), is_text("\\uffff".encode())
    (True, False, False)
    """
    if len(body.translate(None, _CONTROLS)) != len(body):
        return False
    return _NONCHARACTERS[0] not in body and _NONCHARACTERS[1] not in body


def text_of(body: bytes) -> tuple[str, bool]:
    """Returns a body as text, and whether it is encoded in base64."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and is_text(body):
        return text, False
    return b64encode(body).decode(), True
