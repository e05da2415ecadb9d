"""How publications get to a broker."""

from __future__ import annotations

from typing import Protocol

from lavant.core.publications.publication import Publication


class Transport(Protocol):
    """Called from several threads at the same time."""

    def publish(self, batch: list[Publication]) -> None:
        """Return when the broker has all of them; it should know by their ids those that it has already.

        Raises `NotPublished` if it has not, or may not have: then the same batch comes again, after a pause of at least
        `retry_after_ms`. Any other error counts as that, but for `PartlyRefused` with nothing but `InvalidValue` in it:
        those are refused for good, and the broker has all others. Has to end at some time, so it needs a timeout of its
        own.
        """
        ...
