"""From what a server refuses with to the error that it stands for."""

from __future__ import annotations

from lavant.broker.queues.commands import Refused
from lavant.core import errors
from lavant.core.errors import LavantError


def error_of(refused: Refused) -> LavantError:
    """The error whose class has the name that the refusal carries; a name that this client does not know is told.

    >>> error_of(Refused("LimitExceeded", "the batch has 1001 entries, at most 1000 are allowed"))
    LimitExceeded('the batch has 1001 entries, at most 1000 are allowed')
    """
    kind = getattr(errors, refused.code, None)
    if isinstance(kind, type) and issubclass(kind, LavantError):
        try:
            return kind(refused.reason)
        except TypeError:  # an error that is made of more than its text
            pass
    return LavantError(f"{refused.code}: {refused.reason}")
