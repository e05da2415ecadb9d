"""However a connection to RabbitMQ ends, who waits for it is told so, in one way."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tests.unit.hanging_up import BETWEEN_FRAMES, IN_A_FRAME, REFUSED, SILENT, hanging_up

from lavant.amqp import Wire, call, declare
from lavant.core.errors import ConnectionLost, MissingComponent


@pytest.mark.parametrize("how", [SILENT, BETWEEN_FRAMES, IN_A_FRAME, REFUSED])
def test_a_call_under_way_is_told_that_the_connection_is_lost(how: str) -> None:
    async def scenario() -> None:
        async with hanging_up() as url:
            wire = await Wire.open(url, "test", heartbeat_s=1)
            channel = await wire.channel()
            with pytest.raises(ConnectionLost, match=f"queue {how}: "):
                await declare(channel, how)
            await wire.lost.wait()
            with pytest.raises(ConnectionLost):
                await declare(channel, "another")
            await wire.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_call_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(ConnectionLost, match="does not answer within"):
        asyncio.run(call(asyncio.sleep(60), 0.01))


def test_who_is_cancelled_ends_and_what_is_no_fault_of_rabbitmq_is_raised_as_it_is() -> None:
    async def scenario() -> None:
        calling = asyncio.create_task(call(asyncio.sleep(60)))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

        async def mistaken() -> None:
            raise ValueError("a mistake")

        with pytest.raises(ValueError, match="a mistake"):
            await call(mistaken())

    asyncio.run(scenario())


def test_a_connection_that_is_never_made_leaves_nothing_behind() -> None:
    """aio-pika closes what is forgotten, which it cannot when no event loop runs; warnings are errors."""

    async def scenario() -> None:
        async with hanging_up() as url:
            address = url
        with pytest.raises(MissingComponent, match="does not answer"):
            await Wire.open(address, "test")

    loop = asyncio.new_event_loop()
    loop.run_until_complete(scenario())
    gc.collect()
    loop.close()
