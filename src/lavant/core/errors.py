"""The one tree of errors. Each says what was wrong, the value, and what to do about it.

LavantError
├── InvalidValue            an attribute, publication or id that cannot be accepted      (also a ValueError)
│   ├── LimitExceeded       well-formed, but larger than an explicit limit allows
│   │   └── QuotaExceeded   there are as many of a thing as may be
│   └── FilterSyntaxError   a filter's text, with the place of the mistake
├── DuplicateSubscription   the id is taken
├── UnknownSubscription     nobody has that id                                           (also a KeyError)
├── UnknownAdvertisement    no advertisement has that name                               (also a KeyError)
├── IdempotencyConflict     the key of a request belongs to another one; nothing of it was done
├── Overloaded              more came than can be done; nothing of it was accepted, try later
├── CorruptSnapshot         files that are damaged, incomplete, or of another format
├── IdentityMismatch        a store or log is not the one that it was, or not the one that belongs to something
├── PartlyRefused           some entries of a batch were refused, the others were accepted
├── NotPublished            a broker did not take a transfer, or nobody knows whether it did; it goes again later
├── PublisherClosed         publications came after the publisher was closed
├── AccessDenied            the server wants a token, and this is not it
├── ConnectionLost          the server is gone; whether it did what it was asked is not known
├── CorruptJournal          a journal's files are damaged, incomplete, or of another format
├── StorageFull             no room for more, on disk or in memory
├── StorageLocked           another process uses the directory
├── StorageFailed           the disk did not write what it was given
├── Infeasible              no allocation within the limits reaches the goal
├── MissingComponent        something outside of Lavant (Java, a cluster) is not there or does not answer
│   └── NotReady            a server is there, and has not finished starting; nothing was done, try later
├── FailedStream            a stream stopped; started again, it goes on from its checkpoint
├── UnknownQueue            no queue has that name                                       (also a KeyError)
├── QueueExists             the name is taken by a queue with other settings
├── QueueFull               the queue holds as many messages as it may
├── TooManyInFlight         as many messages as may be are received and not yet acknowledged
├── StaleReceipt            somebody else has received the message since
├── NotInFlight             nobody has the message: its lease ran out, or it is gone
├── UnknownMove             no move of messages has that number                          (also a KeyError)
├── MoveRunning             the queue's messages are being moved already
├── UnknownTopic            no job type goes to that topic                               (also a KeyError)
├── UnknownJobType          no job type has that name                                    (also a KeyError)
├── UnknownJob              no job has that number, or it is forgotten                   (also a KeyError)
├── AttemptOver             somebody reports an attempt at a task that has ended otherwise
├── InternalError           the server made a mistake at a question; nothing was changed, and its log says more
├── PermanentFailure        raised by a task's function: it is of no use to try again
└── WorkerStuck             a task's function does not end, so its worker does
"""

from __future__ import annotations

from collections.abc import Callable


class LavantError(Exception):
    """Base of everything that Lavant raises on purpose."""


class InvalidValue(LavantError, ValueError):
    """A value that cannot be accepted."""


class LimitExceeded(InvalidValue):
    """A value that is well-formed but larger than a limit allows; the message names the limit."""


class QuotaExceeded(LimitExceeded):
    """There are as many of a thing as there may be: one has to go before another can come."""


class FilterSyntaxError(InvalidValue):
    """A filter that cannot be read: its text, a caret under the place, and what was expected there."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        self.text = text
        self.position = position
        self.problem = problem
        super().__init__(f"{problem}\n{_point_at(text, position)}")

    def __reduce__(self) -> tuple[type[FilterSyntaxError], tuple[str, int, str]]:
        return type(self), (self.text, self.position, self.problem)


class DuplicateSubscription(LavantError):
    """A subscription with this id exists already."""


class UnknownSubscription(LavantError, KeyError):
    """No subscription has this id."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class UnknownAdvertisement(LavantError, KeyError):
    """No advertisement has this name."""

    def __str__(self) -> str:
        return str(self.args[0])


class IdempotencyConflict(LavantError):
    """A request came with the key of an earlier one that asked for something else: nothing of it was done."""


class Overloaded(LavantError):
    """More came than can be done at the moment: nothing of it was accepted, and it may come again a little later."""


class CorruptSnapshot(LavantError):
    """A snapshot whose files are damaged, incomplete or of another format version."""


class IdentityMismatch(LavantError):
    """A store or log has been replaced by another one since, or what goes with it belongs to another one."""


class PartlyRefused(LavantError):
    """Some entries of a batch were refused: `refused` says which, by their place, and why. The others were accepted."""

    def __init__(self, refused: dict[int, LavantError]) -> None:
        self.refused = refused
        place, first = next(iter(refused.items()))
        more = f" (and {len(refused) - 1} more; see .refused)" if len(refused) > 1 else ""
        super().__init__(f"entry {place} of the batch was refused: {first}{more}")

    def __reduce__(self) -> tuple[type[PartlyRefused], tuple[dict[int, LavantError]]]:
        return type(self), (self.refused,)


class NotPublished(LavantError):
    """A transfer that failed, or of which nobody knows; the broker may have said when to come again."""

    def __init__(self, message: str, *, retry_after_ms: int = 0) -> None:
        self.retry_after_ms = retry_after_ms
        super().__init__(message)

    def __reduce__(self) -> tuple[Callable[..., NotPublished], tuple[str, int]]:
        return _not_published, (str(self), self.retry_after_ms)


class PublisherClosed(LavantError):
    """The publisher was closed, and takes no more publications."""


class AccessDenied(LavantError):
    """The server wants a token, and got none or another."""


class ConnectionLost(LavantError):
    """The connection to a server broke before its answer came: it may or may not have done what it was asked."""


class CorruptJournal(LavantError):
    """A journal whose files are damaged, incomplete or of another format; nothing of it was changed."""


class StorageFull(LavantError):
    """There is no room for more, on disk or in memory; what is there is as it was."""


class StorageLocked(LavantError):
    """Another process uses the directory."""


class StorageFailed(LavantError):
    """The disk did not write or sync what it was given, so nothing more can be confirmed."""


class Infeasible(LavantError):
    """No allocation of consumers within the limits reaches the goal; the message says what would be needed."""


class MissingComponent(LavantError):
    """Something outside of Lavant that it needs here is not there, too old, or does not answer."""


class NotReady(MissingComponent):
    """A server that has not finished starting: nothing was done, and it may be asked again a little later."""


class FailedStream(LavantError):
    """A stream stopped; its checkpoint is whole, and it goes on from there when it is started again."""


class UnknownQueue(LavantError, KeyError):
    """No queue has this name."""

    def __str__(self) -> str:
        return str(self.args[0])


class QueueExists(LavantError):
    """A queue of this name exists already, with other settings."""


class QueueFull(LavantError):
    """A queue holds as many messages as its settings allow."""


class TooManyInFlight(LavantError):
    """A queue has as many messages in flight as its settings allow."""


class StaleReceipt(LavantError):
    """A receipt of a lease that was superseded: somebody else has received the message since."""


class NotInFlight(LavantError):
    """A message that nobody has, so that nobody can keep it longer: its lease ran out, or it is gone."""


class UnknownMove(LavantError, KeyError):
    """No move of messages has this number."""

    def __str__(self) -> str:
        return str(self.args[0])


class MoveRunning(LavantError):
    """The messages of this queue are being moved already."""


class UnknownTopic(LavantError, KeyError):
    """No job type goes to this topic."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownJobType(LavantError, KeyError):
    """No job type has this name."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownJob(LavantError, KeyError):
    """No job has this number, or it ended so long ago that it is forgotten."""

    def __str__(self) -> str:
        return str(self.args[0])


class AttemptOver(LavantError):
    """An attempt at a task that has ended otherwise than is reported, or was given to nobody."""


class InternalError(LavantError):
    """The server made a mistake when it answered a question: nothing was changed, and its log says more."""


class PermanentFailure(LavantError):
    """Raised by the function of a task: what it was given cannot be done, and another attempt would not help."""


class WorkerStuck(LavantError):
    """A function has not ended when the time for its task was up, and cannot be stopped; the worker ends instead."""


def _not_published(message: str, retry_after_ms: int) -> NotPublished:
    return NotPublished(message, retry_after_ms=retry_after_ms)


def _point_at(text: str, position: int, width: int = 76) -> str:
    """The line of `text` around `position` with a caret below it, cut to `width` characters."""
    line_start = text.rfind("\n", 0, position) + 1
    line_end = text.find("\n", position)
    line = text[line_start : line_end if line_end >= 0 else len(text)].replace("\t", " ")
    column = position - line_start
    cut = max(0, min(column - width // 2, len(line) - width))
    shown = line[cut : cut + width]
    return f"  {'…' if cut else ''}{shown}\n  {' ' * (column - cut + (1 if cut else 0))}^"
