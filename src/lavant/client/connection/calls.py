"""Calls: a request, how its answer is read, and whether it may be repeated when a connection breaks.

Both clients, and pipelines, are made of these. A call may be repeated if a second time does no harm. An answer that
refuses becomes the error it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.jobs import LeaseTasks
from lavant.broker.protocol.queue_config import WAIT_MS_MAX
from lavant.broker.protocol.queues import Done, Receive, Refused
from lavant.client.connection.errors import error_of
from lavant.core.errors import PartlyRefused

T = TypeVar("T")
_Kind = TypeVar("_Kind")


class Call(Generic[T]):
    """Something to be asked of a server."""

    __slots__ = ("is_repeatable", "read", "request")

    def __init__(self, request: Request, read: Callable[[Answer], T], *, is_repeatable: bool = True) -> None:
        self.request = request
        self.read = read
        self.is_repeatable = is_repeatable

    @property
    def wait_ms(self) -> int:
        """How long the server may wait before it answers."""
        request = self.request
        if type(request) is Receive or type(request) is LeaseTasks:
            return WAIT_MS_MAX if request.wait_ms is None else request.wait_ms
        return 0


def expect(answer: Answer, kind: type[_Kind]) -> _Kind:
    """The answer, if it is of the kind that belongs to the request; the error that it refuses with, if it does."""
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, Refused):
        raise error_of(answer)
    raise AssertionError(f"the server answered {type(answer).__name__} where {kind.__name__} belongs")


def done(answer: Answer) -> None:
    expect(answer, Done)


def refuse_some(refused: Mapping[int, Refused]) -> None:
    """Raise if some entries of a batch were refused."""
    if refused:
        raise PartlyRefused({place: error_of(refusal) for place, refusal in sorted(refused.items())})
