"""The history of a world's clients: what they asked and heard, by the world's own clock."""

from __future__ import annotations

from collections.abc import Mapping

from lavant.broker.queues.checking import History, Operation, Violation, check
from lavant.broker.queues.config import QueueConfig
from lavant.broker.serving.commands import Request
from lavant.simulation.kernel import Host, World
from lavant.simulation.kernel.distributions import MS
from lavant.simulation.queues.client import Began, Ended
from lavant.simulation.queues.protocol import Session


class Recorder:
    """Takes the notes of all clients."""

    def __init__(self, world: World, configs: Mapping[str, QueueConfig]) -> None:
        self.restarts_ms: list[int] = []
        self._world = world
        self._configs = dict(configs)
        self._under_way: dict[tuple[str, Session, int], tuple[int, Request]] = {}
        self._operations: list[Operation] = []

    def note(self, host: Host, value: Began | Ended) -> None:
        now_ms = self._now_ms
        key = host.name, value.session, value.number
        if isinstance(value, Began):
            self._under_way[key] = now_ms, value.request
            return
        start_ms, request = self._under_way.pop(key)
        self._world.count(f"answers {type(value.answer).__name__}")
        self._operations.append(
            Operation(client=host.name, start_ms=start_ms, request=request, end_ms=now_ms, answer=value.answer)
        )

    def restarted(self) -> None:
        self.restarts_ms.append(self._now_ms)

    def violations(self, left: dict[int, str] | None, *, clock_ppm: int, clock_jumps_ms: int) -> list[Violation]:
        """What is wrong with all that was recorded until now."""
        unanswered = [
            Operation(client=name, start_ms=start_ms, request=request)
            for (name, _, _), (start_ms, request) in self._under_way.items()
        ]
        history = History(
            configs=self._configs,
            operations=self._operations + unanswered,
            restarts_ms=self.restarts_ms,
            left=left,
            clock_ppm=clock_ppm,
            clock_jumps_ms=clock_jumps_ms,
        )
        return check(history)

    @property
    def _now_ms(self) -> int:
        return self._world.now_us // MS
