"""Why a request could not be decoded, in the protocol's words."""

from __future__ import annotations

import re

from lavant.service.sqs.faults import SqsError, missing

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
