"""Which bytes are text to SQS: UTF-8 without the characters that XML cannot hold.

Bodies are bytes in the queues. One that was sent in another protocol and is no text is delivered in base64.
"""

from __future__ import annotations

import re
from base64 import b64encode

from lavant.service.aws.sqs.errors import SqsError, missing

_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.(.+)`)?")
_NULL = re.compile(r"Expected `.*`, got `null` - at `\$\.(.+)`")


def decoding_error(error: Exception) -> SqsError:
    """From the message of a decoder: a member that is missing or null where one must be, or is of a wrong type."""
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
    """A body as text, and whether it had to be put into base64 for that."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and is_text(body):
        return text, False
    return b64encode(body).decode(), True
