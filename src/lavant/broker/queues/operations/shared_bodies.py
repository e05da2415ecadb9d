"""Bodies shared by many messages, so that their memory is counted once.

    FanOut ──► share(body, 1000) ──► one object in 1000 queues, counted once
                                          │
    acknowledged in 999 queues ───────────┴──► still counted
    acknowledged in the last ─────────────────► free

Bodies are identified by content: two publications with the same body share one object. A body that is small, or shared
by few messages, is counted for each: tracking it would take more than it saves.
"""

from __future__ import annotations

from collections.abc import Iterable

from lavant.broker.queues.accounting.memory import SHARED_BODY
from lavant.broker.queues.message import Message

SAVED_BYTES_MIN = 384
"""The least that sharing must save."""


class _Shared:
    __slots__ = ("body", "messages")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.messages = 0
        """Messages that hold it."""


class SharedBodies:
    """All bodies worth sharing. Methods return bytes of memory."""

    __slots__ = ("_shared",)

    def __init__(self) -> None:
        self._shared: dict[bytes, _Shared] = {}

    def __len__(self) -> int:
        return len(self._shared)

    def share(self, body: bytes, messages: int) -> tuple[bytes, int]:
        """Return the object for so many new messages to hold, and the memory saved."""
        known = self._shared.get(body)
        if known is None:
            known = self._shared[body] = _Shared(body)
            saved = (messages - 1) * len(body) - SHARED_BODY
        else:
            saved = messages * len(body)
        known.messages += messages
        return known.body, saved

    def join(self, message: Message) -> int:
        """Memory saved because a message from another queue has a body that is shared already."""
        known = self._shared.get(message.body)
        if known is None:
            return 0
        message.body = known.body
        known.messages += 1
        return len(message.body)

    def release(self, messages: Iterable[Message]) -> int:
        """Memory that stays in use after these messages go, because others hold the same bodies."""
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
        """Share the bodies of restored messages and return the memory saved; `restored` must follow."""
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
        """Stop sharing bodies that are not worth it, once all messages are restored; return the net memory saved."""
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
