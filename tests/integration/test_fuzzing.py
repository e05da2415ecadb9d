"""Hostile input to every protocol front of a real server. What is fuzzed is taken from the declarations of the
application: a new route, action or command is fuzzed by itself."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from tests.integration.frames import FrameClient
from tests.integration.fuzzing import (
    NASTY,
    OPERATOR,
    TENANT,
    Case,
    Target,
    damaged,
    encoded,
    fuzz,
    hang_up,
    seed_of_today,
    several,
    text_of,
)
from tests.unit.service.auth.test_authorization import INTERNAL, REQUESTS
from tests.unit.service.test_access_matrix import HTTP, PUBLIC, SQS

from lavant.broker.protocol.frames import PREFACE, Hello
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.subscriptions import Publish, Subscribe, Unsubscribe, Webhook
from lavant.core.frames import frame
from lavant.service.http.operation import EVENTS, STREAM, Operation
from lavant.service.http.routes.operations import OPERATIONS

HOST = "localhost"
COUNTS = [pytest.param(300, id="short"), pytest.param(30_000, id="long", marks=pytest.mark.soak)]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "X"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target(tmp_path_factory.mktemp("fuzzed"), "--webhooks-to-private-networks") as server:
        yield server
        assert server.stop() == 0


# ── Lavant's own protocol ─────────────────────────────────────────────────────────────────────────────────────────────

COMMANDS = [msgspec.to_builtins(request) for request in [*(each for each, _ in REQUESTS), *INTERNAL]]


async def greeting(target: Target, chance: random.Random) -> bytes:
    """Before anybody is let in."""
    way = chance.random()
    token: Any = chance.choice([b"", TENANT.encode(), b"x" * 5000, 7, None, "text", [b""]])
    hello = bytes(frame(chance.choice([0, 0, 1, 2**32 - 1]), ["hello", token]))
    if way < 0.3:
        return await target.exchange(chance, PREFACE, struct.pack(">II", chance.choice([0, 4, 5, 4097, 2**31]), 0))
    if way < 0.5:
        return await target.exchange(chance, PREFACE + chance.randbytes(chance.randrange(200)))
    return await target.exchange(chance, damaged(PREFACE, chance), damaged(hello, chance))


async def command(target: Target, chance: random.Random) -> bytes:
    """From somebody who is known."""
    key = chance.choice([TENANT, OPERATOR])
    frames = []
    for _ in range(chance.randint(1, 4)):
        sent: Any = several(chance.choice(COMMANDS), chance)
        with_text = msgspec.msgpack.encode(_without_surrogates(sent))
        if key == OPERATOR:  # who may change what belongs to others
            with_text = with_text.replace(b"other", b"apart")
        number = chance.choice([1, 1, 2, 0, 2**32 - 1])
        length = len(with_text) + 4 if chance.random() < 0.95 else chance.choice([0, 5, 2**26, 2**32 - 1])
        frames.append(struct.pack(">II", length, number) + damaged(with_text, chance))
    return await target.exchange(chance, PREFACE + bytes(frame(0, Hello(key.encode()))), *frames)


def _without_surrogates(value: Any) -> Any:
    """MessagePack holds no half characters, and no large integers."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value)
    if isinstance(value, list | tuple):
        return [_without_surrogates(each) for each in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(each) for name, each in value.items()}
    return value


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

SINGLE = [each for each in OPERATIONS if each.way not in (EVENTS, STREAM)]
STREAMS = [each for each in OPERATIONS if each.way == EVENTS]
SOCKETS = [each for each in OPERATIONS if each.way == STREAM]


def http_request(method: str, path: str, headers: dict[str, str], body: bytes, chance: random.Random) -> bytes:
    given = {"Host": HOST, **headers}
    way = chance.random()
    if way < 0.75:
        given["Content-Length"] = str(len(body)) if way < 0.7 else text_of(chance.choice(NASTY))
    elif way < 0.95:
        given["Transfer-Encoding"] = "chunked"
        place = chance.randrange(len(body) + 1)
        parts = [part for part in (body[:place], body[place:]) if part]
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    if chance.random() < 0.2:
        name = chance.choice(["Expect", "Connection", "Upgrade", "Host", "Cookie", "X-Y", "Content-Encoding"])
        given[name] = text_of(chance.choice([*NASTY, "100-continue", "close", "upgrade", "h2c", "gzip"]))
    lines = [f"{method} {path} {chance.choice(['HTTP/1.1'] * 20 + ['HTTP/1.0', 'HTTP/2.0', 'HTTP/9.9', ''])}"]
    lines += [f"{name}: {value}" for name, value in given.items()]
    return damaged("\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body, chance)


def path_of(operation: Operation, chance: random.Random) -> str:
    """With nasty names in it, and nasty parameters behind it."""
    path = operation.path
    for part in ("{name}", "{number}"):
        value = chance.choice(["s", "1", *map(text_of, NASTY)])
        path = path.replace(part, quote(value.encode("latin-1"), safe="" if chance.random() < 0.7 else "/?&=%"))
    named = [each.name for each in operation.parameters if each.where == "query"]
    chosen = [(name, text_of(chance.choice([*NASTY, "10", "a = 1"]))) for name in named if chance.random() < 0.6]
    if chance.random() < 0.1:
        chosen.append(("x", "y"))
    return path + ("?" + urlencode(chosen, encoding="latin-1", errors="replace") if chosen else "")


def headers_of(operation: Operation, chance: random.Random) -> dict[str, str]:
    key = chance.choice([TENANT] * 8 + [OPERATOR] * 3 + ["", "wrong", "é", "x" * 5000])
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    for each in operation.parameters:
        if each.where == "header" and chance.random() < 0.5:
            headers[each.name] = text_of(chance.choice([*NASTY, "1", "key-1"]))
    if chance.random() < 0.2:  # a CloudEvent in the binary mode
        for name in ("ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time", "ce-x"):
            if chance.random() < 0.8:
                headers[name] = chance.choice(["1.0", "1", "/a", text_of(chance.choice(NASTY))])
    return headers


async def route(target: Target, chance: random.Random) -> bytes:
    operation = chance.choice(SINGLE)
    headers = headers_of(operation, chance)
    content = b""
    if operation.bodies:
        body = chance.choice(operation.bodies)
        headers["Content-Type"] = body.content_type if chance.random() < 0.9 else text_of(chance.choice(NASTY))
        example = body.example
        content = example.encode() if isinstance(example, str) else encoded(several(example, chance))
        content = damaged(content, chance)
    elif chance.random() < 0.2:
        content = encoded(chance.choice(NASTY))
    method = operation.method if chance.random() < 0.9 else chance.choice(METHODS)
    requests = [
        http_request(method, path_of(operation, chance), headers, content, chance)
        for _ in range(chance.choice([1, 1, 1, 3]))
    ]
    return await target.exchange(chance, *requests)


async def operations_path(target: Target, chance: random.Random) -> bytes:
    path = chance.choice([*PUBLIC, "//metrics", "/metrics/../healthz", "/%6detrics", "*", "http://localhost/healthz"])
    if chance.random() < 0.3:
        path += "?" + urlencode([("a", text_of(chance.choice(NASTY)))], encoding="latin-1", errors="replace")
    headers = {"Authorization": text_of(chance.choice([*NASTY, f"Bearer {OPERATOR}", "Basic x"]))}
    return await target.exchange(chance, http_request(chance.choice(METHODS), path, headers, b"", chance))


async def events(target: Target, chance: random.Random) -> bytes:
    """Streams of events, and what a client says that it had last."""
    operation = chance.choice(STREAMS)
    headers = {**headers_of(operation, chance), "Accept": "text/event-stream"}
    headers["Last-Event-ID"] = text_of(chance.choice([*NASTY, "1", "2", "18446744073709551615"]))
    path = path_of(operation, chance)
    return await target.exchange(chance, http_request("GET", path, headers, b"", chance))


# ── WebSockets ────────────────────────────────────────────────────────────────────────────────────────────────────────

ACKNOWLEDGEMENT = {"ack": [1, 2], "nack": [3]}


def socket_frame(chance: random.Random) -> bytes:
    """Of any kind; masked, as those of clients are, most of the time."""
    opcode = chance.choice([0, 1, 1, 1, 1, 2, 8, 9, 10, 3, 15])
    if opcode == 8:
        payload = chance.choice([b"", b"\x03", struct.pack(">H", chance.choice([1000, 1005, 999, 5000])) + b"bye"])
    elif opcode in (1, 2):
        payload = damaged(encoded(several(ACKNOWLEDGEMENT, chance)), chance)
    else:
        payload = chance.randbytes(chance.choice([0, 4, 125, 126]))
    first = (0x80 if chance.random() < 0.9 else 0) | (0x70 if chance.random() < 0.03 else 0) | opcode
    size = len(payload) if chance.random() < 0.95 else chance.choice([2**20 + 1, 2**40, 2**63])
    if size < 126:
        length = bytes([size])
    else:
        length = b"\x7e" + struct.pack(">H", size) if size < 65536 else b"\x7f" + struct.pack(">Q", size)
    if chance.random() < 0.05:
        return bytes([first]) + length + payload
    mask = chance.randbytes(4)
    masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
    return bytes([first, length[0] | 0x80]) + length[1:] + mask + masked


async def web_socket(target: Target, chance: random.Random) -> bytes:
    """That ends oddly: in its handshake, between frames, inside of one, while the server sends."""
    operation = chance.choice(SOCKETS)
    name = chance.choice(["s", "s", "s", "none"])
    path = operation.path.replace("{name}", name) + ("" if "{name}" in operation.path else "?filter=price%20%3E%200")
    headers = {
        "Authorization": f"Bearer {chance.choice([TENANT] * 5 + ['wrong'])}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": chance.choice(["13"] * 9 + ["8"]),
        "Sec-WebSocket-Key": base64.b64encode(chance.randbytes(16)).decode() if chance.random() < 0.95 else "x",
    }
    lines = [f"GET {path} HTTP/1.1", f"Host: {HOST}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    handshake = "\r\n".join(lines).encode()
    reader, writer = await asyncio.open_connection(target.host, target.port)
    received = b""
    try:
        writer.write(handshake if chance.random() < 0.9 else damaged(handshake, chance))
        if chance.random() < 0.8:
            async with asyncio.timeout(5):
                received += await reader.read(1 << 16)
        for _ in range(chance.randint(0, 6)):
            writer.write(socket_frame(chance))
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.01]))
        if chance.random() < 0.2 and writer.can_write_eof():
            writer.write_eof()
        async with asyncio.timeout(chance.choice([0.001, 0.05])):
            while part := await reader.read(1 << 16):
                received += part
    except (TimeoutError, OSError):
        pass
    finally:
        hang_up(writer, chance)
    return received


async def web_socket_while_publishing(target: Target, chance: random.Random) -> bytes:
    """Something is sent to the sockets all the time."""
    body = encoded({"price": chance.randint(1, 9), "text": "x" * chance.choice([1, 1, 60_000])})
    headers = {"Authorization": f"Bearer {TENANT}", "Content-Type": "application/json"}
    lines = ["POST /publish HTTP/1.1", f"Host: {HOST}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    quiet = random.Random(1)
    publishing = target.exchange(quiet, "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body)
    published, received = await asyncio.gather(publishing, web_socket(target, chance))
    return published + received


# ── SQS ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def form_of(members: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Members as the query protocol has them, more or less."""
    if isinstance(members, dict):
        named = [(f"{prefix}.{text_of(name)}" if prefix else text_of(name), each) for name, each in members.items()]
    elif isinstance(members, list):
        named = [(f"{prefix}.{place}", each) for place, each in enumerate(members[:200], start=1)]
    else:
        return [(prefix, text_of(members))]
    return [pair for name, each in named for pair in form_of(each, name)]


async def sqs_action(target: Target, chance: random.Random) -> bytes:
    action = chance.choice(sorted(SQS))
    full = {"MessageAttributes": {"a": {"DataType": "String", "StringValue": "x"}}, "Attributes": {"DelaySeconds": "1"}}
    members = several({**SQS[action][1], **(full if chance.random() < 0.3 else {})}, chance)
    is_json = chance.random() < 0.6
    path = chance.choice(["/", "/", "/000000000000/q", "/q/../x"])
    if is_json:
        body = damaged(encoded(members), chance)
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
    else:
        form = [("Action", action), *form_of(members)]
        body = damaged(urlencode(form, encoding="latin-1", errors="replace").encode(), chance)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
    name = chance.choice([TENANT] * 8 + [OPERATOR, "nobody"])
    request = AWSRequest("POST", f"http://{HOST}{path}", headers, body)
    signer = SigV4Auth
    if not is_json and chance.random() < 0.3:  # presigned, with everything in the address
        request = AWSRequest("GET", f"http://{HOST}{path}", {}, params=form)
        body, signer = b"", SigV4QueryAuth
    signer(Credentials(name.upper(), name), "sqs", "us-east-1").add_auth(request)
    signed = {each: value for each, value in request.headers.items() if each != "Host"}
    if chance.random() < 0.1:
        chosen = chance.choice(sorted(signed) or ["X"])
        signed[chosen] = text_of(chance.choice(NASTY))
    raw_path = request.url.partition(HOST)[2]
    return await target.exchange(chance, http_request(request.method, raw_path, signed, body, chance))


# ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────────────

CASES: list[Case] = [
    greeting, command, route, operations_path, events, web_socket, web_socket_while_publishing, sqs_action,
]  # fmt: skip


def test_nothing_that_is_declared_is_left_out() -> None:
    assert {(each.method, each.path) for each in [*SINGLE, *STREAMS, *SOCKETS]} == set(HTTP)
    assert len(COMMANDS) == len(REQUESTS) + len(INTERNAL)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_front_stands_whatever_is_sent(target: Target, case: Case, count: int) -> None:
    seed = os.environ.get("FUZZ_SEED")
    fuzz(target, case, count, None if seed is None else int(seed))


# ── what webhooks answer ──────────────────────────────────────────────────────────────────────────────────────────────


def hostile_answer(chance: random.Random) -> bytes:
    """What a webhook may say; some of it is an answer."""
    length = chance.choice([*(f"Content-Length: {number}" for number in (2, 10**11, 2**64)), CHUNKED, ""])
    headers = [length, f"Retry-After: {text_of(chance.choice([*NASTY, '0', '1', 'Thu, 01 Jan 1970 00:00:00 GMT']))}"]
    if chance.random() < 0.2:
        headers += chance.choice([["Connection: close"], ["Upgrade: h2c", "Connection: Upgrade"], ["X: y"] * 3000])
    status = chance.choice(["200 OK", "204", "500 Oops", "302 Found", "103 Early Hints", "999", "-1", "", "429 Slow"])
    head = "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode("latin-1", "replace")
    body = chance.choice([b"", b"ok", b"x" * 200_000, b"2\r\nok\r\n0\r\n\r\n", b"ffffffff\r\n"])
    return damaged(chance.choice([head + body, head * 3, chance.randbytes(100), b""]), chance)


CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize("count", [pytest.param(60, id="short"), pytest.param(3000, id="long", marks=pytest.mark.soak)])
def test_whatever_a_webhook_answers_is_survived(target: Target, count: int) -> None:
    seed = seed_of_today()
    asked = 0
    connections: set[asyncio.Task[Any]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            while await reader.read(1 << 16):
                asked += 1
                chance = random.Random(f"{seed} {asked}")
                writer.write(hostile_answer(chance))
                if chance.random() < 0.5:
                    break
        except OSError:
            pass
        finally:
            hang_up(writer, random.Random(asked))

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        config = QueueConfig(visibility_ms=30_000)
        with FrameClient(target.port, TENANT) as client:
            for number in range(4):
                webhook = Webhook(url, timeout_ms=200, attempts_max=3)
                client.ask(Subscribe("hooked = 1", f"hooked-{number}", config=config, webhook=webhook))
            async with asyncio.timeout(120):
                while asked < count:
                    client.ask(Publish([encoded({"hooked": 1, "n": asked})]))
                    await asyncio.sleep(0.01)
            for number in range(4):
                client.ask(Unsubscribe(f"hooked-{number}"))
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    asyncio.run(run())
    target.check(count)
