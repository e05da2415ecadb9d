"""The format of a backup: a tar archive with a description first and checksums last.

    backup.json                      format, version of Lavant, time, last record, and all files with their sizes
    manifest, snapshot-…, segment-…  the journal up to that record
    spark/NAME/log/…                 publication logs of the Spark engine
    SHA256SUMS                       as `sha256sum` writes and checks them

An archive is written and read from its beginning to its end, so it can be streamed, and its size is known in advance.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import msgspec

from lavant.core.errors import UNDECODABLE, CorruptSnapshot, InvalidValue, too_new

FORMAT = 1
DESCRIPTION, CHECKSUMS = "backup.json", "SHA256SUMS"
PART_BYTES = 1 << 20
DESCRIPTION_BYTES_MAX = 16 << 20
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)
_DIGEST_CHARACTERS = 64

OnPart = Callable[[int], None]
"""Called with the size of each part that was read or written, in bytes."""


class BackupEntry(msgspec.Struct, frozen=True):
    name: str
    bytes: int


class BackupDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The first file of a backup."""

    format: int = FORMAT
    lavant: str
    """The version that made it."""
    created_ms: int
    journal_id: str
    position: int
    """The last record in it."""
    files: list[BackupEntry]


class SourceFile(NamedTuple):
    """A file to be archived: bytes, or so many bytes of an open file."""

    name: str
    size_bytes: int
    content: bytes | int
    """The bytes, or a descriptor."""


class Backup:
    """A backup to be written. It keeps its files open, so nobody can remove what is in it; close it."""

    def __init__(
        self, files: list[SourceFile], *, version: str, created_ms: int, journal_id: int, position: int
    ) -> None:
        self.description = BackupDescription(
            lavant=version,
            created_ms=created_ms,
            journal_id=f"{journal_id:016x}",
            position=position,
            files=[BackupEntry(file.name, file.size_bytes) for file in files],
        )
        first = msgspec.json.encode(self.description)
        self._files = [SourceFile(DESCRIPTION, len(first), first), *files]
        self._time_s = created_ms // 1000

    @property
    def size_bytes(self) -> int:
        """Of the archive."""
        sizes = [(file.name, file.size_bytes) for file in self._files]
        sums = sum(_DIGEST_CHARACTERS + 3 + len(name.encode()) for name, _ in sizes)
        padded = (len(self._head(name, size)) + size + -size % _BLOCK for name, size in (*sizes, (CHECKSUMS, sums)))
        return sum(padded) + len(_END)

    def parts(self) -> Iterator[bytes]:
        """The archive, part by part."""
        sums: list[bytes] = []
        for file in self._files:
            digest = hashlib.sha256()
            yield from self._member(file.name, file.size_bytes, _digested(_parts_of(file), digest.update))
            sums.append(_checksum_line(digest.hexdigest(), file.name))
        text = b"".join(sums)
        yield from self._member(CHECKSUMS, len(text), iter([text]))
        yield _END

    def close(self) -> None:
        for file in self._files:
            if isinstance(file.content, int):
                os.close(file.content)
        self._files = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _head(self, name: str, size_bytes: int) -> bytes:
        head = tarfile.TarInfo(name)
        head.size, head.mtime, head.mode = size_bytes, self._time_s, 0o600
        return head.tobuf(tarfile.GNU_FORMAT)

    def _member(self, name: str, size_bytes: int, parts: Iterator[bytes]) -> Iterator[bytes]:
        yield self._head(name, size_bytes)
        yield from parts
        if size_bytes % _BLOCK:
            yield bytes(-size_bytes % _BLOCK)


def _checksum_line(digest: str, name: str) -> bytes:
    return f"{digest}  {name}\n".encode()


def _parts_of(file: SourceFile) -> Iterator[bytes]:
    if isinstance(file.content, bytes):
        yield file.content
        return
    position = 0
    while position < file.size_bytes:
        part = os.pread(file.content, min(PART_BYTES, file.size_bytes - position), position)
        if not part:
            raise CorruptSnapshot(f"{file.name} ends at byte {position}, and {file.size_bytes} were expected")
        position += len(part)
        yield part


def _digested(parts: Iterator[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for part in parts:
        update(part)
        yield part


class ArchiveReader:
    """Reads an archive, and checks everything in it: raises `CorruptSnapshot` where it is damaged or cut off.

    `files` must be read to its end; only then the checksums have been compared.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._path = path
        try:
            self._archive = tarfile.open(fileobj=file, mode="r|", bufsize=PART_BYTES)  # noqa: SIM115  the caller closes the file
            first = self._archive.next()
        except tarfile.TarError:
            first = None
        if first is None or first.name != DESCRIPTION or not first.size <= DESCRIPTION_BYTES_MAX:
            raise InvalidValue(f"{path} is not a backup; give a file that `lavant backup` wrote")
        described = b"".join(self._content(first))
        self._digests = [_checksum_line(hashlib.sha256(described).hexdigest(), DESCRIPTION)]
        self.description = self._described(described)

    def files(self) -> Iterator[tuple[BackupEntry, Iterator[bytes]]]:
        """Each file, and its content, which has to be read before the next file."""
        for entry in self.description.files:
            member = self._next(entry.name, entry.bytes)
            digest = hashlib.sha256()
            yield entry, _digested(self._content(member), digest.update)
            self._digests.append(_checksum_line(digest.hexdigest(), entry.name))
        expected = b"".join(self._digests)
        found = b"".join(self._content(self._next(CHECKSUMS, len(expected))))
        for line, wanted in zip(found.splitlines(), expected.splitlines(), strict=False):
            if line != wanted:
                raise self._damaged(f"the checksum of {wanted.split(b'  ', 1)[1].decode()} differs")
        if found != expected:
            raise self._damaged("its checksums are incomplete")

    def _described(self, data: bytes) -> BackupDescription:
        try:
            found = msgspec.json.decode(data, type=_Format).format
            if found > FORMAT:
                raise InvalidValue(str(too_new(str(self._path), found, FORMAT)))
            return msgspec.json.decode(data, type=BackupDescription)
        except UNDECODABLE as error:
            raise self._damaged(f"{DESCRIPTION} cannot be read ({error})") from None

    def _next(self, name: str, size_bytes: int) -> tarfile.TarInfo:
        try:
            member = self._archive.next()
        except (tarfile.TarError, EOFError, OSError) as error:
            raise self._damaged(str(error)) from None
        if member is None:
            raise self._damaged(f"it ends before {name}")
        if member.name != name or member.size != size_bytes or not member.isreg():
            raise self._damaged(f"{name} with {size_bytes:,} bytes should be where {member.name!r} is")
        return member

    def _content(self, member: tarfile.TarInfo) -> Iterator[bytes]:
        content = self._archive.extractfile(member)
        assert content is not None
        left = member.size
        while left:
            try:
                part = content.read(min(PART_BYTES, left))
            except (tarfile.TarError, EOFError, OSError) as error:
                raise self._damaged(f"{member.name}: {error}") from None
            if not part:
                raise self._damaged(f"it ends within {member.name}")
            left -= len(part)
            yield part

    def _damaged(self, problem: str) -> CorruptSnapshot:
        return CorruptSnapshot(f"the backup {self._path} is damaged: {problem}; take another copy of it")


class _Format(msgspec.Struct):
    format: int


def verify(path: Path, on_part: OnPart = lambda size: None) -> BackupDescription:
    """Read a backup to its end, and compare all checksums."""
    with path.open("rb") as file:
        reader = ArchiveReader(file, path)
        for _, parts in reader.files():
            for part in parts:
                on_part(len(part))
        return reader.description
