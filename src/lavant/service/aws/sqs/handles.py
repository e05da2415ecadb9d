"""Message ids and opaque handles that stand for the broker's numbers.

    message id        a UUID, made of the message's number; the same in every delivery and after every restart
    receipt handle    base64url(number | lease | check over them and the queue)
    task handle       base64url(task | check)
    page token        base64url(check | name)

A handle of another server, queue or namespace fails its check. The check finds mistakes; permissions are checked in
`lavant.service.auth.authorization`.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b

from lavant.broker.protocol.namespaces import in_namespace
from lavant.broker.protocol.queues import Receipt
from lavant.service.aws.sqs.errors import SqsError, bad_value

_CHECK_BYTES = 8
_RECEIPT = struct.Struct(">QQ")
_TASK = struct.Struct(">Q")
SEQUENCE_BASE = 10**19
"""Sequence numbers have twenty digits, so they sort as text too."""


class Handles:
    """Encodes and decodes ids and handles.

    >>> handles = Handles(b"pepper")
    >>> handles.message_id(7)
    'aea68c6f-cd20-4241-8ea8-7e167e467567'
    >>> handle = handles.receipt_handle("orders", Receipt(7, 1 << 40))
    >>> handles.receipt("orders", handle)
    Receipt(number=7, lease=1099511627776)
    """

    def __init__(self, salt: bytes, namespace: str = "") -> None:
        self._namespace = namespace
        self._message = blake2b(digest_size=16, key=salt, person=b"message")
        self._receipt = blake2b(digest_size=_CHECK_BYTES, key=salt, person=b"receipt")
        self._task = blake2b(digest_size=_CHECK_BYTES, key=salt, person=b"task")
        self._page = blake2b(digest_size=_CHECK_BYTES, key=salt, person=b"page")

    def message_id(self, number: int) -> str:
        hashing = self._message.copy()
        hashing.update(number.to_bytes(8, "big"))
        digits = hashing.hexdigest()
        # Version 4, variant 10, as a UUID must have.
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"

    def receipt_handle(self, queue: str, receipt: Receipt) -> str:
        content = _RECEIPT.pack(receipt.number, receipt.lease)
        return urlsafe_b64encode(content + self._check_of(self._receipt, content, self._full(queue))).decode()

    def receipt(self, queue: str, handle: str) -> Receipt:
        try:
            raw = urlsafe_b64decode(handle)
            content = raw[: _RECEIPT.size]
            number, lease = _RECEIPT.unpack(content)
        except (ValueError, struct.error):
            raise _invalid_receipt() from None
        if raw[_RECEIPT.size :] != self._check_of(self._receipt, content, self._full(queue)):
            raise _invalid_receipt()
        return Receipt(number, lease)

    def task_handle(self, task: int) -> str:
        content = _TASK.pack(task)
        return urlsafe_b64encode(content + self._check_of(self._task, content, self._full(""))).decode()

    def task(self, handle: str) -> int:
        try:
            raw = urlsafe_b64decode(handle)
            content = raw[: _TASK.size]
            task: int = _TASK.unpack(content)[0]
        except (ValueError, struct.error):
            raise _invalid_task() from None
        if raw[_TASK.size :] != self._check_of(self._task, content, self._full("")):
            raise _invalid_task()
        return task

    def page_token(self, name: str) -> str:
        content = name.encode()
        return urlsafe_b64encode(self._check_of(self._page, content, self._full("")) + content).decode()

    def page(self, token: str) -> str:
        """Returns the name after which the page starts."""
        try:
            raw = urlsafe_b64decode(token)
            name = raw[_CHECK_BYTES:].decode()
        except ValueError:
            raise _invalid_page(token) from None
        if raw[:_CHECK_BYTES] != self._check_of(self._page, raw[_CHECK_BYTES:], self._full("")):
            raise _invalid_page(token)
        return name

    def _full(self, queue: str) -> str:
        return in_namespace(self._namespace, queue)

    @staticmethod
    def _check_of(kind: blake2b, content: bytes, queue: str = "") -> bytes:
        hashing = kind.copy()
        hashing.update(content)
        hashing.update(queue.encode())
        return hashing.digest()


def sequence_number(number: int) -> str:
    """Returns the sequence number of a message in a FIFO queue; later messages have larger ones."""
    return str(SEQUENCE_BASE + number)


def _invalid_receipt() -> SqsError:
    return SqsError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")


def _invalid_task() -> SqsError:
    return SqsError("InvalidParameterValue", "Value for parameter TaskHandle is invalid.")


def _invalid_page(token: str) -> SqsError:
    return bad_value("NextToken", token, "It must be one that an answer contained.")
