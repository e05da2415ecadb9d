"""The line of publications and changes, where memory is full, and where a lane is not needed any more."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.unit.service.runtime.hall import Hall, publications
from tests.unit.service.wiring import in_loop

from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Deliver, Publish, Subscribe
from lavant.broker.queues.accounting.quotas import QueueLimits
from lavant.broker.subscriptions.log_offsets import FORGOTTEN, LogOffset
from lavant.service.engines.interface import Retired
from lavant.service.engines.local import LocalEngine
from lavant.service.runtime.ingest.ingest import NOTHING


class RetiringEngine(LocalEngine):
    """Lets go of a lane after each step."""

    def __init__(self, retired: Retired) -> None:
        super().__init__(slices=1)
        self._retired = [retired]

    def retire(self) -> list[Retired]:
        retired, self._retired = self._retired, []
        return retired


@in_loop
async def test_a_lane_that_retires_leaves_nothing_on_disk_and_is_forgotten_by_the_journal() -> None:
    with TemporaryDirectory() as folder:
        directory = Path(folder, "plain-acme")
        (directory / "log").mkdir(parents=True)
        hall = Hall(RetiringEngine(Retired("plain-acme", directory)))
        lanes = hall.broker.subscriptions.log_offsets
        hall.broker.handle(Deliver(NOTHING, accepted={"plain-acme": 3}, delivered={"plain-acme": 3}), 1)
        await hall.ask(Subscribe("a > 1", "large"))
        await hall.close()
        assert lanes.all() == [(FORGOTTEN, LogOffset(3, 3))]
        assert not directory.exists()


@in_loop
async def test_where_memory_is_full_nothing_is_published_and_repetitions_are_answered() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 1", "large"))
    first = await hall.ask(Publish(publications(2), "key"))
    hall.queues.limits = QueueLimits(memory_max=hall.queues.memory_held)
    for request in (Publish(publications(2)), Publish(publications(0)), Subscribe("a > 2", "larger")):
        answer = await hall.ask(request)
        assert isinstance(answer, Refused)
        assert answer.code == "StorageFull"
    assert await hall.ask(Publish(publications(2), "key")) == first
    assert len(await hall.bodies("large")) == 1
    await hall.close()
