"""The tree of errors, by kind. Catch an error by its own class, by its kind, or all of them as `LavantError`.

Each error says what was wrong, shows the value, and suggests a remedy. The second level of the tree is the kind. It
decides how the error is answered over HTTP and SQS, unless the class says otherwise.

LavantError
├── Invalid                     the request cannot be accepted as it is; do not repeat it
│   ├── InvalidValue            an attribute, publication or id is malformed or out of range       (ValueError)
│   │   ├── LimitExceeded       well-formed, but larger than a limit allows
│   │   │   └── QuotaExceeded   no more of these may exist at once; also of the kind OverLimit
│   │   └── FilterSyntaxError   the text of a filter, with the position of the mistake
│   └── Infeasible              no allocation within the limits reaches the goal
├── Denied                      the API key may not do this
│   └── AccessDenied            the key is missing, unknown, or lacks a scope or namespace
├── Missing                     nothing has this name or id                                        (KeyError)
│   ├── UnknownSubscription
│   ├── UnknownAdvertisement
│   ├── UnknownNeighbour
│   ├── UnknownQueue
│   ├── UnknownMove
│   ├── UnknownTopic
│   ├── UnknownJobType
│   ├── UnknownJob
│   └── UnknownSchedule
├── Conflict                    contradicts the current state
│   ├── DuplicateSubscription   the id is taken
│   ├── SubscriptionChanged     the subscription was updated since it was read
│   ├── QueueExists             the name is taken by a queue with other settings
│   ├── IdempotencyConflict     the idempotency key belongs to a request with other content
│   ├── StaleReceipt            another consumer has received the message since
│   ├── NotInFlight             no consumer holds the message: its lease expired, or it is gone
│   ├── MoveRunning             the queue's messages are already being moved
│   ├── AttemptOver             the reported attempt at a task has already ended otherwise
│   ├── AtOtherBroker           another broker does this; `address` says where
│   │   ├── SubscriptionMoved   the subscription is there
│   │   ├── NotHead             this broker is an edge, and publishers belong to heads
│   │   └── NotEdge             this broker is a head, and subscribers belong to edges
│   ├── IdentityMismatch        a store or log was replaced, or belongs to another one
│   └── PublisherClosed         publications came after the publisher was closed
├── OverLimit                   a quota, rate or capacity is used up; try again when some is free
│   ├── Overloaded              too many requests; nothing of this one was accepted
│   ├── QueueFull               the queue holds `depth_max` messages
│   └── TooManyInFlight         `in_flight_max` messages are received and not yet acknowledged
├── Unavailable                 a server, disk or component cannot do its work now; try again later
│   ├── ConnectionLost          the connection broke; the request may have been carried out        (ConnectionError)
│   ├── MissingComponent        something outside of Lavant (Java, a cluster) is absent or silent
│   │   ├── ServerUnreachable   no server could be connected to; nothing was sent                  (ConnectionError)
│   │   └── NotReady            the server is still starting; nothing was done
│   ├── NoReply                 a request to a queue was not answered in time
│   ├── NotPublished            a broker did not accept a transfer, or the outcome is unknown
│   ├── SubscriptionMoving      the subscription is on its way to another broker; try again in a moment
│   ├── StorageFull             no room for more, on disk or in memory
│   └── StorageLocked           another process uses the directory
├── Internal                    Lavant, its data or a disk failed; a log says more
│   ├── InternalError           the server failed to answer a query; nothing was changed
│   ├── StorageFailed           the disk did not write or sync
│   ├── CorruptJournal          a journal is damaged, incomplete, or of another format
│   ├── CorruptSnapshot         a snapshot is damaged, incomplete, or of another format
│   ├── NewerFormat             a newer version of Lavant wrote the file            (CorruptJournal, CorruptSnapshot)
│   ├── FailedStream            a stream stopped; restarted, it continues from its checkpoint
│   └── WorkerStuck             a task's function does not end, so its worker does
├── PartlyRefused               some entries of a batch were refused, each for its own reason
└── PermanentFailure            raised by your task's function: another attempt would not help

Class names travel on the wire: an old client shows the name of an error that it does not know. Never rename a class.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Everything that msgspec raises on bytes from outside: also text that is not UTF-8, and values nested too deeply."""


class LavantError(Exception):
    """Base of everything that Lavant raises on purpose."""

    http_status: ClassVar[int] = 400
    http_retry_after_s: ClassVar[float | None] = None
    """The `Retry-After` header; None leaves it out."""
    sqs_fault: ClassVar[str] = "InternalFailure"
    """A key of `lavant.service.aws.sqs.errors.FAULTS`."""
    exit_code: ClassVar[int] = 2
    """Of the command line, if the error ends a command; docs/reference/cli.md has the table."""


def error_class(name: str) -> type[LavantError]:
    """Returns the class of this name. A name from a newer version gives LavantError.

    >>> error_class("UnknownQueue").http_status, error_class("FromTheFuture")
    (404, <class 'lavant.core.errors.LavantError'>)
    """
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, LavantError) else LavantError


def is_newer(digit: bytes, known: int) -> bool:
    """Whether the digit at the end of a file's magic is that of a newer format. If all that follows is as in the known
    format, the digit is damaged instead: check that first.

    >>> is_newer(b"2", 1), is_newer(b"1", 1), is_newer(b"x", 1), is_newer(b"", 1)
    (True, False, False, False)
    """
    return digit.isdigit() and int(digit) > known


def too_new(name: str, found: int | bytes, known: int) -> NewerFormat:
    """The error about a file that a newer version of Lavant wrote.

    >>> print(too_new("manifest", 2, 1))
    manifest has format 2, this version of Lavant reads up to format 1; use the version that wrote it, or a later one
    """
    return NewerFormat(
        f"{name} has format {int(found)}, this version of Lavant reads up to format {known}; "
        "use the version that wrote it, or a later one"
    )


def check_format(name: str, found: int, known: int, *, oldest: int) -> None:
    """Raise unless a snapshot has a format that this version reads."""
    if found > known:
        raise too_new(name, found, known)
    if found < oldest:
        raise CorruptSnapshot(
            f"{name} has format {found}, this version of Lavant reads {oldest} to {known}; restore it from a copy"
        )


class Invalid(LavantError):
    """The request cannot be accepted as it is."""

    sqs_fault = "InvalidParameterValue"


class Denied(LavantError):
    """The API key may not do this."""

    http_status = 403
    exit_code = 6
    sqs_fault = "AccessDenied"


class Missing(LavantError, KeyError):
    """Nothing has this name or id."""

    http_status = 404
    sqs_fault = "ResourceNotFoundException"
    exit_code = 5

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class Conflict(LavantError):
    """The request contradicts the current state."""

    http_status = 409
    exit_code = 6


class OverLimit(LavantError):
    """A quota, rate or capacity is used up for now."""

    http_status = 429
    sqs_fault = "OverLimit"
    exit_code = 6


class Unavailable(LavantError):
    """A server, disk or component cannot do its work now."""

    http_status = 503
    sqs_fault = "ServiceUnavailable"
    exit_code = 7


class Internal(LavantError):
    """Lavant, its data or a disk failed."""

    http_status = 500
    exit_code = 9


class InvalidValue(Invalid, ValueError):
    """A value that cannot be accepted."""


class LimitExceeded(InvalidValue):
    """A value that is well-formed but larger than a limit allows; the message names the limit."""

    sqs_fault = "OverLimit"


class QuotaExceeded(OverLimit, LimitExceeded):
    """No more of these may exist at once: remove one before you add another."""


class FilterSyntaxError(InvalidValue):
    """A filter that cannot be parsed: its text, a caret at the position, and what was expected there."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        self.text = text
        self.position = position
        self.problem = problem
        super().__init__(f"{problem}\n{_point_at(text, position)}")

    def __reduce__(self) -> tuple[type[FilterSyntaxError], tuple[str, int, str]]:
        return type(self), (self.text, self.position, self.problem)


class Infeasible(Invalid):
    """No allocation of consumers within the limits reaches the goal; the message says what would be needed."""

    exit_code = 8


class AccessDenied(Denied):
    """The server requires an API key, and the given one is missing, unknown, or lacks a scope or namespace."""


class UnknownSubscription(Missing):
    """No subscription has this id."""


class UnknownAdvertisement(Missing):
    """No advertisement has this name."""


class UnknownNeighbour(Missing):
    """There is no neighbouring broker of this name."""


class UnknownQueue(Missing):
    """No queue has this name."""

    sqs_fault = "QueueDoesNotExist"


class UnknownMove(Missing):
    """No move of messages has this number."""


class UnknownTopic(Missing):
    """No job type uses this topic."""


class UnknownJobType(Missing):
    """No job type has this name."""


class UnknownJob(Missing):
    """No job has this number, or it ended so long ago that it is forgotten."""


class UnknownSchedule(Missing):
    """No schedule has this name."""


class DuplicateSubscription(Conflict):
    """A subscription with this id already exists."""


class SubscriptionChanged(Conflict):
    """The subscription was updated by somebody else since it was read; nothing was changed."""

    http_status = 412


class QueueExists(Conflict):
    """A queue of this name already exists, with other settings."""

    sqs_fault = "QueueNameExists"


class IdempotencyConflict(Conflict):
    """The idempotency key was used by an earlier request with other content; nothing was done."""

    http_status = 422


class StaleReceipt(Conflict):
    """The receipt's lease was superseded: another consumer has received the message since."""


class NotInFlight(Conflict):
    """No consumer holds the message, so its lease cannot be extended: it expired, or the message is gone."""


class MoveRunning(Conflict):
    """The messages of this queue are already being moved."""

    sqs_fault = "InvalidParameterValue"


class AttemptOver(Conflict):
    """The reported attempt at a task has ended otherwise, or was never given to a worker."""


class AtOtherBroker(Conflict):
    """Another broker of the federation does this: `address` says where."""

    http_status = 307
    sqs_fault = "QueueMoved"

    def __init__(self, message: str, address: str = "") -> None:
        self.address = address
        super().__init__(message)

    def __reduce__(self) -> tuple[type[AtOtherBroker], tuple[str, str]]:
        return type(self), (str(self), self.address)


class SubscriptionMoved(AtOtherBroker):
    """The subscription and its queue are at another broker of the federation: `address` says where."""


class NotHead(AtOtherBroker):
    """This broker is an edge of the federation: publish at a head, `address` says where."""


class NotEdge(AtOtherBroker):
    """This broker is a head of the federation: subscribe at an edge, `address` says where."""


class IdentityMismatch(Conflict):
    """A store or log has been replaced by another one, or its companion belongs to another one."""


class PublisherClosed(Conflict):
    """The publisher was closed and accepts no more publications."""


class Overloaded(OverLimit):
    """More requests came than can be handled: nothing of this one was accepted; try again a little later."""

    http_retry_after_s = 1.0
    sqs_fault = "ThrottlingException"


class QueueFull(OverLimit):
    """A queue holds as many messages as its `depth_max` allows."""

    http_status = 503
    http_retry_after_s = 5.0


class TooManyInFlight(OverLimit):
    """A queue has as many messages in flight as its `in_flight_max` allows."""

    http_retry_after_s = 1.0


class ConnectionLost(Unavailable, ConnectionError):
    """The connection to a server broke before its answer came: it may or may not have carried out the request."""


class MissingComponent(Unavailable):
    """A component outside of Lavant is absent, too old, or does not answer."""


class ServerUnreachable(MissingComponent, ConnectionError):
    """No connection to a server could be made: nothing was sent."""


class NotReady(MissingComponent):
    """The server is still starting: nothing was done; try again a little later."""

    http_retry_after_s = 1.0


class NoReply(Unavailable):
    """No consumer has answered a request in time; the message may still be handled."""


class NotPublished(Unavailable):
    """A transfer failed, or its outcome is unknown; the broker may have said when to try again."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0, retry_after_ms: int | None = None) -> None:
        if retry_after_ms is not None:
            warnings.warn("retry_after_ms is now retry_after_s, in seconds", DeprecationWarning, stacklevel=2)
            retry_after_s = retry_after_ms / 1000
        self.retry_after_s = retry_after_s
        super().__init__(message)

    @property
    def retry_after_ms(self) -> int:
        warnings.warn("retry_after_ms is now retry_after_s, in seconds", DeprecationWarning, stacklevel=2)
        return round(self.retry_after_s * 1000)

    def __reduce__(self) -> tuple[Callable[..., NotPublished], tuple[str]]:
        return partial(type(self), retry_after_s=self.retry_after_s), (str(self),)


class SubscriptionMoving(Unavailable):
    """The subscription is on its way to another broker, and cannot be changed until it is there."""

    http_retry_after_s = 1.0


class StorageFull(Unavailable):
    """There is no room for more, on disk or in memory; the stored data is unchanged."""

    http_retry_after_s = 10.0


class StorageLocked(Unavailable):
    """Another process uses the directory."""


class InternalError(Internal):
    """The server failed to answer a query: nothing was changed, and its log says more."""


class StorageFailed(Internal):
    """The disk did not write or sync, so nothing more can be confirmed."""


class CorruptJournal(Internal):
    """A journal whose files are damaged, incomplete or of another format; nothing in it was changed."""


class CorruptSnapshot(Internal):
    """A snapshot whose files are damaged, incomplete or of another format version."""


class NewerFormat(CorruptJournal, CorruptSnapshot):
    """A newer version of Lavant wrote the file, which may be intact; nothing in it was changed."""


class FailedStream(Internal):
    """A stream stopped; its checkpoint is intact, and a restart continues from there."""


class WorkerStuck(Internal):
    """A task's function did not end in time and cannot be stopped, so the worker ends instead."""

    exit_code = 1


class PartlyRefused(LavantError):
    """Some entries of a batch were refused: `refused` has the error of each by index. The others were accepted."""

    exit_code = 6

    def __init__(self, refused: dict[int, LavantError]) -> None:
        self.refused = refused
        index, first = next(iter(refused.items()))
        more = f" (and {len(refused) - 1} more; see .refused)" if len(refused) > 1 else ""
        super().__init__(f"entry {index} of the batch was refused: {first}{more}")

    def __reduce__(self) -> tuple[type[PartlyRefused], tuple[dict[int, LavantError]]]:
        return type(self), (self.refused,)


class PermanentFailure(LavantError):
    """Raise it in a task's function if the task cannot be done and another attempt would not help."""


def _point_at(text: str, position: int, width: int = 76) -> str:
    """Returns the line of `text` at `position`, cut to `width` characters, with a caret below the position."""
    line_start = text.rfind("\n", 0, position) + 1
    line_end = text.find("\n", position)
    line = text[line_start : line_end if line_end >= 0 else len(text)].replace("\t", " ")
    column = position - line_start
    cut = max(0, min(column - width // 2, len(line) - width))
    excerpt = line[cut : cut + width]
    return f"  {'…' if cut else ''}{excerpt}\n  {' ' * (column - cut + (1 if cut else 0))}^"
