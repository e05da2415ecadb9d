"""Matchers, which find the subscriptions that match a publication: one interface; scan, plain and encrypted.

A matcher is loaded when it is first used: clients that encrypt import values from here, and have no compiler installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lavant.broker.matching.encrypted.matcher import EncryptedMatcher
    from lavant.broker.matching.interface import Matcher, MatcherStatistics, Matches
    from lavant.broker.matching.plain.matcher import PlainMatcher
    from lavant.broker.matching.scan import ScanMatcher

    MATCHERS: dict[str, type[ScanMatcher | PlainMatcher | EncryptedMatcher]]
    """By the scheme that files and deltas carry."""

_HOMES = {
    "EncryptedMatcher": "encrypted.matcher",
    "Matcher": "interface",
    "MatcherStatistics": "interface",
    "Matches": "interface",
    "PlainMatcher": "plain.matcher",
    "ScanMatcher": "scan",
}
_MATCHERS = ("ScanMatcher", "PlainMatcher", "EncryptedMatcher")

__all__ = ["MATCHERS", "EncryptedMatcher", "Matcher", "MatcherStatistics", "Matches", "PlainMatcher", "ScanMatcher"]


def __getattr__(name: str) -> Any:
    found: Any
    if name == "MATCHERS":
        found = {matcher.scheme: matcher for matcher in map(__getattr__, _MATCHERS)}
    elif name in _HOMES:
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
