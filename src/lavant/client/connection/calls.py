"""Calls: a request, how its answer is read, and whether it may be repeated when the connection breaks.

Both clients and pipelines use them. A call is repeatable if a second time does no harm. A refusal becomes the
error that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from lavant.broker.protocol.commands import A_co, Answer, RequestFor
from lavant.broker.protocol.jobs import LeaseTasks
from lavant.broker.protocol.queue_config import WAIT_MS_MAX
from lavant.broker.protocol.queues import Done, Receive, Refused
from lavant.broker.protocol.registry import checked
from lavant.client.connection.errors import error_of, refused_request
from lavant.core.errors import PartlyRefused

T = TypeVar("T")


class Call(Generic[T]):
    """A request to a server."""

    __slots__ = ("_read", "is_repeatable", "request")

    def __init__(self, request: RequestFor[A_co], read: Callable[[A_co], T], *, is_repeatable: bool = True) -> None:
        self.request = request
        self._read: Callable[[Any], T] = read
        self.is_repeatable = is_repeatable

    def read(self, answer: Answer) -> T:
        """The result; raises the error of a refusal."""
        given = checked(self.request, answer)
        if type(given) is Refused:
            raise refused_request(self.request, given)
        return self._read(given)

    def of(self, request: RequestFor[Any]) -> Call[T]:
        """The same call for a part of the request."""
        return self if request is self.request else Call(request, self._read, is_repeatable=self.is_repeatable)

    def once(self) -> Call[T]:
        """The same call, to be sent once."""
        return Call(self.request, self._read, is_repeatable=False)

    @property
    def wait_ms(self) -> int:
        """How long the server may wait before it answers."""
        request = self.request
        if type(request) is Receive or type(request) is LeaseTasks:
            return WAIT_MS_MAX if request.wait_ms is None else request.wait_ms
        return 0


def done(answer: Done) -> None:
    """Reads an answer without content."""


def refuse_some(refused: Mapping[int, Refused]) -> None:
    """Raises `PartlyRefused` if entries of a batch were refused."""
    if refused:
        raise PartlyRefused({place: error_of(refusal) for place, refusal in sorted(refused.items())})
