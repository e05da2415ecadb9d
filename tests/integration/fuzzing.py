"""Fuzzing a real server: hostile input of every kind, and what must hold whatever was sent.

The server lives and answers a known request, its log has no traceback, no answer has the status 500, its memory stays
bounded, and the namespace of somebody else is as it was.

A case is made of a seed and a number, and a failure prints both.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import struct
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.integration.frames import FrameClient
from tests.integration.serving import LAVANT, Served

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, DescribeQueue, ListQueues, Peek, Send, SendEntry
from lavant.broker.protocol.subscriptions import ListSubscriptions, Subscribe
from lavant.service.auth.keys import KeyEntry, entry_text, sha256_of
from lavant.service.aws.credentials import Credential, credential_text

SCOPES = ("publish", "subscribe", "admin")
OPERATOR, TENANT, OTHER = "operator", "tenant", "other"
"""Keys and credentials, each with its name as secret; the last two have namespaces of these names."""
AT_ONCE = 16
ANSWER_S_MAX = 0.3
"""Longer is not waited for an answer: polls and streams take as long as they like."""
MEMORY_KB_MAX = 600_000
STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")

Case = Callable[["Target", random.Random], Awaitable[bytes]]
"""Sends something and returns what came back."""


class Target(Served):
    """A server with two tenants; the second has what must not change."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.data = directory / "data"
        self._log_file = (directory / "log").open("w+b")
        keys, credentials = directory / "keys.toml", directory / "credentials"
        names = {OPERATOR: "", TENANT: TENANT, OTHER: OTHER}
        keys.write_text(
            "".join(
                entry_text(KeyEntry(name=name, sha256=sha256_of(name), scopes=list(SCOPES), namespace=namespace))
                for name, namespace in names.items()
            )
        )
        credentials.write_text(
            "".join(
                credential_text(Credential(name=name, access_key=name.upper(), secret=name, namespace=namespace))
                for name, namespace in names.items()
            )
        )
        self._start(
            [
                str(LAVANT), "serve", "--port", "0", "--data", str(self.data), "--keys-file", str(keys),
                "--credentials-file", str(credentials), *options,
            ]
        )  # fmt: skip
        with FrameClient(self.port, OTHER) as client:
            client.ask(CreateQueue("canary", QueueConfig()))
            client.ask(Send("canary", [SendEntry(b"%d" % number) for number in range(5)]))
            client.ask(Subscribe("canary = 1", "canary", queue="canary"))
        self._before = self._state()
        self._seen = 0
        """Of the log."""

    def _popen(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log_file, text=True)

    def _close(self) -> None:
        super()._close()
        self._log_file.close()

    def prepare(self) -> None:
        """What most cases speak of; some of them delete it."""
        with FrameClient(self.port, TENANT) as client:
            client.ask(CreateQueue("q", QueueConfig()))
            client.ask(Subscribe("price > 0", "s", config=QueueConfig(depth_max=500)))

    def errors(self) -> str:
        return Path(self._log_file.name).read_text(errors="replace")

    def check(self, cases: int) -> None:
        """What must hold after everything that was sent."""
        assert self.process.poll() is None, f"the server ended: {self.errors()[-3000:]}"
        assert self._state() == self._before, "the state of another namespace has changed"
        with self.http("/healthz") as response:
            assert response.status == 200
        log = self.errors()[self._seen :]
        self._seen += len(log)
        assert "Traceback" not in log, log[max(0, log.index("Traceback") - 300) :][:12000]
        assert log.count("\n") <= cases + 50, f"{cases} cases, and so many lines: {log[-2000:]}"
        assert self.memory_kb_max() < MEMORY_KB_MAX

    def _state(self) -> list[Any]:
        questions = [ListQueues(), DescribeQueue("canary"), Peek("canary", 100), ListSubscriptions()]
        with FrameClient(self.port, OTHER) as client:
            return client.ask_all(questions)

    # ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def exchange(self, chance: random.Random, *pieces: bytes) -> bytes:
        """Send pieces, read for a while, and hang up in one way or another; what came back."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        received = b""
        try:
            for piece in pieces:
                writer.write(piece)
                if chance.random() < 0.1:
                    await asyncio.sleep(chance.random() / 100)
            if chance.random() < 0.05:
                return b""  # gone before anything can be answered
            if chance.random() < 0.1 and writer.can_write_eof():
                writer.write_eof()
            async with asyncio.timeout(ANSWER_S_MAX):
                while part := await reader.read(1 << 16):
                    received += part
        except (TimeoutError, OSError):
            pass
        finally:
            hang_up(writer, chance)
        return received


def hang_up(writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """By a reset, or as it should be."""
    if chance.random() < 0.5:
        raw = writer.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()


def seed_of_today() -> int:
    """The same in continuous integration, another one each time elsewhere."""
    return 1 if os.environ.get("CI") else random.randrange(1 << 32)


def fuzz(target: Target, case: Case, count: int, seed: int | None = None) -> None:
    """Send so many cases, some at a time, and look at what must hold."""
    seed = seed_of_today() if seed is None else seed

    async def run() -> None:
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                answered = await case(target, random.Random(f"{seed} {number}"))
                for status in STATUS.findall(answered):
                    assert status != b"500", f"seed {seed}, case {number}: {answered[:2000]!r}"

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))

    try:
        target.prepare()
        asyncio.run(run())
        target.check(count)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


# ── what is sent ──────────────────────────────────────────────────────────────────────────────────────────────────────

NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**70), 0.5, -0.0, 1e308,
    "", " ", "\x00", "a\x00b", "\n", "\r\n", "q", "canary", "other/canary", "../other", "%2e%2e", "é", "𝄞", "\ud800",
    "a" * 81, "x" * 300, "0" * 5000, "null", "[]", "{}", "a = 1", "not " * 40, "(" * 50, "price > ", "' or 1=1",
    [], {}, [[]], [None], [1, "a", None], {"": ""}, {"a": {"b": {"c": []}}}, ["x"] * 1001,
]  # fmt: skip


def deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def mutated(value: Any, chance: random.Random) -> Any:
    """The value with something in it replaced, left out, added or doubled."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        way = chance.random()
        if way < 0.15:
            return {each: content for each, content in value.items() if each != name}
        if way < 0.25:
            return {**value, str(chance.choice(NASTY))[:50]: chance.choice(NASTY)}
        return {**value, name: mutated(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        if chance.random() < 0.2:
            return [*value, *value]
        return [*value[:place], mutated(value[place], chance), *value[place + 1 :]]
    if chance.random() < 0.02:
        return deep(chance.choice([10, 60, 200]))
    return chance.choice(NASTY)


def several(value: Any, chance: random.Random) -> Any:
    """As it is now and then, mostly with one to three changes."""
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        value = mutated(value, chance)
    return value


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Some of its bytes changed, cut off, or doubled; mostly it is left alone."""
    way = chance.random()
    if way < 0.6 or not data:
        return data
    place = chance.randrange(len(data))
    if way < 0.75:
        return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
    if way < 0.85:
        return data[:place]
    if way < 0.87:
        return data[:place] + chance.choice([b"[", b'{"a":', b"\x91"]) * 20_000
    if way < 0.95:
        return data[:place] + chance.randbytes(chance.randrange(20)) + data[place:]
    return data + data[place:]


def encoded(value: Any) -> bytes:
    """In JSON, whatever it is."""
    return json.dumps(value).encode()


def text_of(value: Any) -> str:
    """As it stands in a query or a header: no line breaks, all else as it comes."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode("latin-1").replace("\r", " ").replace("\n", " ")[:3000]
