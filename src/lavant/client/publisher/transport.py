"""The interface through which a publisher sends publications to a broker."""

from __future__ import annotations

from typing import Protocol

from lavant.core.publications.publication import Publication


class Transport(Protocol):
    """Several threads call it at the same time."""

    def publish(self, batch: list[Publication]) -> None:
        """Returns when the broker has all publications; it should recognise by their ids those that it had already.

        Raises `NotPublished` if the broker may not have them: the same batch comes again, after at least
        `retry_after_ms`. Any other error counts as that, except `PartlyRefused` with nothing but `InvalidValue` in it:
        those are refused for good, and the broker has all others. Must end at some time, so it needs a timeout.
        """
        ...
