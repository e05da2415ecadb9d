"""All rules over one history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from lavant.broker.queues.checking.acknowledgements import check_acknowledgements
from lavant.broker.queues.checking.duplicates import check_duplicates
from lavant.broker.queues.checking.evidence import Evidence
from lavant.broker.queues.checking.history import History, Violation
from lavant.broker.queues.checking.identity import check_identity
from lavant.broker.queues.checking.leases import check_leases
from lavant.broker.queues.checking.losses import check_losses
from lavant.broker.queues.checking.ordering import check_ordering

VIOLATIONS_MAX = 20
"""Of each rule; one mistake often shows in very many places."""

Rule: TypeAlias = Callable[[Evidence], Iterator[Violation]]
RULES: tuple[Rule, ...] = (
    check_identity,
    check_leases,
    check_acknowledgements,
    check_ordering,
    check_duplicates,
    check_losses,
)


def check(history: History) -> list[Violation]:
    """What cannot be, rule by rule; nothing if all is well.

    >>> from lavant.broker.queues.checking import Operation
    >>> from lavant.broker.queues.commands import *
    >>> from lavant.broker.queues.config import QueueConfig
    >>> send = Operation(
    ...     client="ann", start_ms=0, end_ms=1, request=Send("q", [Entry(b"tea")]), answer=Sent([SentEntry(1)])
    ... )
    >>> print(*check(History(configs={"q": QueueConfig()}, operations=[send], left={})))
    what was confirmed is not lost: message 1 was never received and is gone, though ann's Send (0 ms to 1 ms) sent it
    >>> check(History(configs={"q": QueueConfig()}, operations=[send], left={1: "q"}))
    []
    """
    evidence = Evidence(history)
    return [violation for rule in RULES for violation in islice(rule(evidence), VIOLATIONS_MAX)]
