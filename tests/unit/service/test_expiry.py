"""What the end of a temporary subscription means for whoever matches."""

from __future__ import annotations

from tests.unit.service.runtime.hall import Hall, publications
from tests.unit.service.wiring import in_loop, until

from lavant.broker.machine.leases import STEP_MS_MAX
from lavant.broker.protocol.subscriptions import Publish, Subscribe
from lavant.broker.subscriptions.limits import LEASE_MS


@in_loop
async def test_temporary_subscriptions_that_have_ended_match_no_more() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 0", "s", "shared", lease_ms=LEASE_MS))
    await hall.ask(Subscribe("a > 5", "t", "shared"))
    for _ in range(LEASE_MS // STEP_MS_MAX):
        hall.service._clock.advance(STEP_MS_MAX)
        hall.service._tick()
    changes = hall.service.ingest._subscriptions.changes
    assert len(changes) == 1
    await until(lambda: not changes)  # the engine learns of it although nobody asks for anything
    await hall.ask(Publish(publications(1, 9)))
    assert await hall.values("shared") == [b"9"]
    await hall.close()
