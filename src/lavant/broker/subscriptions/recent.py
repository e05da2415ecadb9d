"""Requests to publish that came lately: one that comes once more, because its answer was lost, is not done twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lavant.broker.queues.commands import Refused

REMEMBERED_MS = 5 * 60_000
KEYS_MAX = 200_000
"""More within the time, and the oldest are forgotten early."""

Entries = list[str | Refused]


class RecentKeys:
    """What requests with a key were answered, for some minutes."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: dict[str, tuple[int, Entries]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def answer(self, key: str, now_ms: int) -> Entries | None:
        """What the request with this key was answered, if it came lately."""
        found = self._answers.get(key)
        return found[1] if found is not None and now_ms < found[0] + REMEMBERED_MS else None

    def remember(self, answers: Mapping[str, Entries], now_ms: int) -> None:
        for key, entries in answers.items():
            self._answers.pop(key, None)
            self._answers[key] = (now_ms, entries)
        if answers:
            self._forget(now_ms)

    def all(self) -> Iterable[tuple[str, int, Entries]]:
        """The oldest first."""
        return ((key, time_ms, entries) for key, (time_ms, entries) in self._answers.items())

    def restore(self, answers: Iterable[tuple[str, int, Entries]]) -> None:
        self._answers = {key: (time_ms, entries) for key, time_ms, entries in answers}

    def _forget(self, now_ms: int) -> None:
        while self._answers:
            key, (time_ms, _) = next(iter(self._answers.items()))
            if len(self._answers) <= KEYS_MAX and now_ms < time_ms + REMEMBERED_MS:
                return
            del self._answers[key]
