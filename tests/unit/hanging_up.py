"""As much of RabbitMQ as a client needs to open channels, and an end that a test chooses for each queue it declares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pamqp import commands as spec
from pamqp import frame as frames
from pamqp.base import Frame
from pamqp.common import FieldTable

_PROTOCOL_HEADER_BYTES = 8
_FRAME_HEADER_BYTES = 7
_PROPERTIES: FieldTable = {"capabilities": {"publisher_confirms": True, "basic.nack": True}}

SILENT, BETWEEN_FRAMES, IN_A_FRAME, REFUSED = "silent", "between frames", "in a frame", "refused"
"""The names of queues that end the connection so, instead of being declared; `REFUSED` ends its channel alone."""

_ANSWERS: dict[str, Frame] = {
    "Connection.StartOk": spec.Connection.Tune(channel_max=100, frame_max=131_072, heartbeat=0),
    "Connection.Open": spec.Connection.OpenOk(),
    "Connection.Close": spec.Connection.CloseOk(),
    "Channel.Open": spec.Channel.OpenOk(),
    "Confirm.Select": spec.Confirm.SelectOk(),
}


@asynccontextmanager
async def hanging_up() -> AsyncIterator[str]:
    """Its address."""
    serving: set[asyncio.Task[None]] = set()  # a task that nobody holds may be gone before it ends

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(_serve(reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"amqp://guest:guest@127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(_PROTOCOL_HEADER_BYTES)
    writer.write(frames.marshal(spec.Connection.Start(server_properties=_PROPERTIES), 0))
    try:
        while not writer.is_closing():
            header = await reader.readexactly(_FRAME_HEADER_BYTES)
            length = int.from_bytes(header[3:])
            _, number, asked = frames.unmarshal(header + await reader.readexactly(length + 1))
            if isinstance(asked, spec.Queue.Declare):
                await _end(asked.queue, number, writer)
            elif asked.name in _ANSWERS:
                writer.write(frames.marshal(_ANSWERS[asked.name], number))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _end(how: str, number: int, writer: asyncio.StreamWriter) -> None:
    if how == SILENT:
        await asyncio.Event().wait()
    elif how == REFUSED:
        writer.write(frames.marshal(spec.Channel.Close(404, "no such queue", 50, 10), number))
    elif how == IN_A_FRAME:
        writer.write(frames.marshal(spec.Queue.DeclareOk(how, 0, 0), number)[:-3])
        writer.close()
    else:  # so many frames that the client has not read the last one when it learns of the end
        writer.write(frames.marshal(spec.Basic.Ack(1), number) * 100)
        writer.close()
