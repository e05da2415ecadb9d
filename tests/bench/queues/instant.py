"""A server of SQS that does nothing: its answers are ready before they are asked for. What boto3 itself takes, is left.

`python -m tests.bench.queues.instant PORT`
"""

from __future__ import annotations

import asyncio
import sys
from hashlib import md5
from typing import cast

import msgspec
import uvloop
from tests.bench.queues.clients import BODY

_TARGET = b"x-amz-target: amazonsqs."
_LENGTH = b"content-length: "
_HEAD_END = b"\r\n\r\n"
_ID, _HANDLE = "17ccfaf3-9883-418c-9311-fa39732c3a09", "AAAAAAAAAAEAAAEAAAAAAaQMjuBdM3jk"
_MD5 = md5(BODY, usedforsecurity=False).hexdigest()
_ENTRIES = [str(number) for number in range(10)]


def _answer(content: object) -> bytes:
    body = b"" if content is None else msgspec.json.encode(content)
    head = (
        "HTTP/1.1 200 OK\r\ndate: Mon, 16 Nov 2026 12:00:00 GMT\r\ncontent-type: application/x-amz-json-1.0\r\n"
        f"x-amzn-requestid: {_ID}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _received(count: int) -> bytes:
    message = {"MessageId": _ID, "ReceiptHandle": _HANDLE, "MD5OfBody": _MD5, "Body": BODY.decode()}
    return _answer({"Messages": [message] * count})


ANSWERS = {
    b"createqueue": _answer({"QueueUrl": "http://127.0.0.1/000000000000/bench"}),
    b"sendmessage": _answer({"MessageId": _ID, "MD5OfMessageBody": _MD5}),
    b"sendmessagebatch": _answer(
        {"Successful": [{"Id": entry, "MessageId": _ID, "MD5OfMessageBody": _MD5} for entry in _ENTRIES], "Failed": []}
    ),
    b"deletemessage": _answer(None),
    b"deletemessagebatch": _answer({"Successful": [{"Id": entry} for entry in _ENTRIES], "Failed": []}),
}
_ONE, _TEN = _received(1), _received(len(_ENTRIES))


class _Connection(asyncio.Protocol):
    _data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """A request at a time, as boto3 sends them."""
        self._data += data
        head, end, body = self._data.partition(_HEAD_END)
        if not end or len(body) < int(_value(head.lower(), _LENGTH)):
            return
        self._data = b""
        action = _value(head.lower(), _TARGET)
        if action == b"receivemessage":
            self._transport.write(_TEN if b'"MaxNumberOfMessages": 10' in body else _ONE)
        else:
            self._transport.write(ANSWERS[action])


def _value(head: bytes, name: bytes) -> bytes:
    return head.partition(name)[2].partition(b"\r\n")[0]


async def serve(port: int) -> None:
    listener = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", port)
    await listener.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
