"""Validation of queue names, settings, tags and the size of requests."""

from __future__ import annotations

import re

from lavant.broker.protocol.queue_attributes import QUEUE_ATTRIBUTES
from lavant.broker.protocol.queue_config import (
    BATCH_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    LABEL_CHARACTERS_MAX,
    LABELS_MAX,
    NAME_CHARACTERS_MAX,
    TAG_KEY_CHARACTERS_MAX,
    TAG_VALUE_CHARACTERS_MAX,
    TAGS_MAX,
    VISIBILITY_MS_MAX,
    WAIT_MS_MAX,
    QueueConfig,
)
from lavant.broker.protocol.queues import Receive, Refused
from lavant.core.errors import AtOtherBroker, InvalidValue, LavantError, LimitExceeded
from lavant.core.validation.choices import check_choice


def refusal(error: LavantError) -> Refused:
    """An error as an answer to one entry.

    >>> from lavant.core.errors import QueueFull
    >>> refusal(QueueFull("there is no room"))
    Refused(code='QueueFull', reason='there is no room')
    """
    address = error.address if isinstance(error, AtOtherBroker) else ""
    return Refused(type(error).__name__, str(error), address)


_NAME = re.compile(r"([A-Za-z0-9_-]+/)?[A-Za-z0-9_.-]+")
"""With an optional namespace."""
_PART = re.compile(r"[A-Za-z0-9_./-]*")
_ORDERS = ("out-of-order", "in-order")


def check_range(what: str, value: int, lowest: int, highest: int) -> None:
    """
    >>> check_range("count", 0, 1, 10)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: count must be between 1 and 10, got 0
    """
    if not lowest <= value <= highest:
        error = LimitExceeded if value > highest else InvalidValue
        raise error(f"{what} must be between {lowest} and {highest}, got {value}")


def check_name(name: str) -> None:
    if len(name) > NAME_CHARACTERS_MAX:
        raise LimitExceeded(
            f"a queue's name has {len(name)} characters, at most {NAME_CHARACTERS_MAX} are allowed; "
            f"shorten {name[:NAME_CHARACTERS_MAX]!r}…"
        )
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(f"a queue's name consists of letters, digits and any of _ - . (not {name!r})")


def check_part_of_name(what: str, part: str) -> None:
    """Check a prefix of queue names, or a name to list after; it may be empty.

    >>> check_part_of_name("prefix", "a b")
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: prefix is part of a name, which has letters, digits and any of _ - . / (not 'a b')
    """
    if len(part) > NAME_CHARACTERS_MAX:
        raise LimitExceeded(f"{what} has {len(part)} characters, but no name has more than {NAME_CHARACTERS_MAX}")
    if _PART.fullmatch(part) is None:
        raise InvalidValue(f"{what} is part of a name, which has letters, digits and any of _ - . / (not {part!r})")


def check_tags(tags: dict[str, str]) -> None:
    if len(tags) > TAGS_MAX:
        raise LimitExceeded(f"a queue has at most {TAGS_MAX} tags, got {len(tags)}; remove some")
    for key, value in tags.items():
        check_range(f"the length of tag {key[:40]!r}", len(key), 1, TAG_KEY_CHARACTERS_MAX)
        check_range(f"the length of the value of tag {key[:40]!r}", len(value), 0, TAG_VALUE_CHARACTERS_MAX)


def check_config(config: QueueConfig) -> None:
    """Check all that does not depend on other queues."""
    check_choice("a queue's order", config.order, _ORDERS)
    for attribute in QUEUE_ATTRIBUTES:
        value = getattr(config, attribute.name)
        if attribute.most is not None and value is not None:
            check_range(f"a queue's {attribute.name}", value, attribute.least, attribute.most)
    if (config.dead_letters is None) != (config.receives_max is None):
        raise InvalidValue(
            f"dead_letters and receives_max go together, got {config.dead_letters!r} and {config.receives_max}; "
            "set both or none"
        )
    if config.order != "in-order" and (config.deduplicate_by_content or config.deduplicate_within_group):
        raise InvalidValue("only in-order queues de-duplicate; set order to in-order, or omit deduplicate_…")
    characters = sum(len(key) + len(value) for key, value in config.labels.items())
    check_range("the number of a queue's labels", len(config.labels), 0, LABELS_MAX)
    check_range("the length of a queue's labels", characters, 0, LABEL_CHARACTERS_MAX)


def check_receive(request: Receive) -> None:
    if not 1 <= request.count <= BATCH_ENTRIES_MAX:  # repeats check_range, since a call costs more
        check_range("count", request.count, 1, BATCH_ENTRIES_MAX)
    if request.visibility_ms is not None:
        check_range("visibility_ms", request.visibility_ms, 0, VISIBILITY_MS_MAX)
    if request.wait_ms is not None:
        check_range("wait_ms", request.wait_ms, 0, WAIT_MS_MAX)


def check_batch(count: int, bytes_sent: int = 0) -> None:
    """Check the number of entries of a batch and their total size."""
    if count == 0:
        raise InvalidValue("a batch has no entries; send at least one")
    if count > BATCH_ENTRIES_MAX:
        raise LimitExceeded(
            f"a batch has {count} entries, at most {BATCH_ENTRIES_MAX} are allowed; send several batches"
        )
    if bytes_sent > BATCH_BYTES_MAX:
        raise LimitExceeded(
            f"a batch has {bytes_sent} bytes, at most {BATCH_BYTES_MAX} are allowed; send several batches"
        )
