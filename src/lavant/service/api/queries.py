"""What stands behind the question mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lavant.service.api.faults import bad_request


def integer(query: Mapping[str, str], name: str, *, default: int, lowest: int, highest: int) -> int:
    """
    >>> integer({"limit": "5"}, "limit", default=100, lowest=1, highest=1000)
    5
    """
    text = query.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = lowest - 1
    if not lowest <= value <= highest:
        raise bad_request(f"{name} must be an integer between {lowest} and {highest}, got {text[:40]!r}")
    return value


def page_end(names: Sequence[str], limit: int) -> str | None:
    """Where the next page begins; None if this one was not full."""
    return names[-1] if len(names) == limit else None
