"""Bodies that many messages hold together, so that their memory is counted once.

    Spread ──► share(body, 1000) ──► one object in 1000 queues, counted once
                                          │
    acknowledged in 999 queues ───────────┴──► still counted
    acknowledged in the last ─────────────────► free

Bodies are told apart by their content: two publications with the same body hold one object. A body that few messages
share, or that is small, is counted for each of them: to keep track would take more than it saves.
"""

from __future__ import annotations

from collections.abc import Iterable

from lavant.broker.queues.accounting.memory import SHARED_BODY
from lavant.broker.queues.message import Message

SAVED_BYTES_MIN = 384
"""So much sharing must save."""


class _Shared:
    __slots__ = ("body", "messages")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.messages = 0
        """How many hold it."""


class SharedBodies:
    """All bodies of a hub that are worth it. Methods return bytes of memory."""

    __slots__ = ("_shared",)

    def __init__(self) -> None:
        self._shared: dict[bytes, _Shared] = {}

    def __len__(self) -> int:
        return len(self._shared)

    def share(self, body: bytes, messages: int) -> tuple[bytes, int]:
        """The object that so many new messages are to hold, and what it saves to count it once."""
        known = self._shared.get(body)
        if known is None:
            known = self._shared[body] = _Shared(body)
            saved = (messages - 1) * len(body) - SHARED_BODY
        else:
            saved = messages * len(body)
        known.messages += messages
        return known.body, saved

    def join(self, message: Message) -> int:
        """A message that comes from another queue: what it saves if its body is held already."""
        known = self._shared.get(message.body)
        if known is None:
            return 0
        message.body = known.body
        known.messages += 1
        return len(message.body)

    def release(self, messages: Iterable[Message]) -> int:
        """Messages that may hold such bodies are about to go: how much of their content others hold on to."""
        kept = 0
        for message in messages:
            shared = self._shared.get(message.body)
            if shared is not None:
                kept += len(message.body)
                shared.messages -= 1
                if shared.messages == 1:
                    del self._shared[message.body]
                    kept -= SHARED_BODY
        return kept

    def restore(self, messages: Iterable[Message]) -> int:
        """Messages of a snapshot hold what others do that came before; what that saves. `restored` must follow."""
        saved = 0
        for message in messages:
            if message.body:
                known = self._shared.get(message.body)
                if known is None:
                    known = self._shared[message.body] = _Shared(message.body)
                else:
                    message.body = known.body
                    saved += len(message.body)
                known.messages += 1
        return saved

    def restored(self) -> int:
        """All messages are here: those that are not worth it are counted for each message. What that saves, in all."""
        saved = 0
        worthy: dict[bytes, _Shared] = {}
        for body, shared in self._shared.items():
            if is_worth_sharing(len(body), shared.messages):
                worthy[body] = shared
                saved -= SHARED_BODY
            else:
                saved -= (shared.messages - 1) * len(body)
        self._shared = worthy
        return saved


def is_worth_sharing(size_bytes: int, messages: int) -> bool:
    return (messages - 1) * size_bytes >= SAVED_BYTES_MIN
