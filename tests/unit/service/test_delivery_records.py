"""Records of delivered publications: each fits into a segment of the journal."""

from __future__ import annotations

from unittest.mock import patch

from tests.unit.service.runtime.hall import Hall
from tests.unit.service.wiring import in_loop

from lavant.broker.protocol.subscriptions import Publish, Published, Subscribe
from lavant.service.runtime.ingest import ingest as access


@in_loop
async def test_publications_that_are_too_large_for_one_record_become_several() -> None:
    hall = Hall()
    await hall.ask(Subscribe("a > 0", "all"))
    before = hall.store.position
    with patch.object(access, "DELIVERED_BYTES_MAX", 1000):
        answer = await hall.ask(Publish([b'{"a": %d, "b": "%b"}' % (n, b"x" * 400) for n in range(1, 9)]))
    assert isinstance(answer, Published)
    assert all(isinstance(entry, str) for entry in answer.entries)
    assert await hall.values("all") == [b"%d" % n for n in range(1, 9)]
    assert hall.store.position - before == 8
    await hall.close()
