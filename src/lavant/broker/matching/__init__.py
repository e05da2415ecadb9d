"""Matchers, which find the subscriptions that match a publication: one interface; scan, plain and encrypted."""

from lavant.broker.matching.encrypted.matcher import EncryptedMatcher
from lavant.broker.matching.interface import Matcher, MatcherStatistics, Matches
from lavant.broker.matching.plain.matcher import PlainMatcher
from lavant.broker.matching.scan import ScanMatcher

MATCHERS = {matcher.scheme: matcher for matcher in (ScanMatcher, PlainMatcher, EncryptedMatcher)}
"""By the scheme that files and deltas carry."""

__all__ = ["MATCHERS", "EncryptedMatcher", "Matcher", "MatcherStatistics", "Matches", "PlainMatcher", "ScanMatcher"]
