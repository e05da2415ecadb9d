"""A key on disk: JSON that says what it is, readable by its owner only, never overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lavant.client.encryption.schema import Schema
from lavant.core.decoding import UNDECODABLE
from lavant.core.errors import InvalidValue

FORMAT = "lavant-aspe-key-1"


class KeyFile(msgspec.Struct, frozen=True):
    """What the file holds. Doubles are written with all their digits, so the key that is read is the one written."""

    schema: Schema
    matrix: list[list[float]]
    format: str = FORMAT

    def __repr__(self) -> str:
        return f"KeyFile(of {', '.join(self.schema.names)})"

    def write(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InvalidValue(
                f"{path} exists; a key is never overwritten, since what it encrypted would be lost: choose another name"
            ) from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(self), indent=2))
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, path: Path) -> KeyFile:
        try:
            file = msgspec.json.decode(path.read_bytes(), type=cls)
        except UNDECODABLE as error:  # its text names the place, never the content
            raise InvalidValue(f"{path} is not a key of Lavant: {error}; restore it from a copy") from None
        if file.format != FORMAT:
            raise InvalidValue(f"{path} has format {file.format!r}, expected {FORMAT!r}: it is of another version")
        if len({len(row) for row in file.matrix}) != 1:
            raise InvalidValue(f"{path} holds a matrix whose rows differ in length; restore it from a copy")
        return file
