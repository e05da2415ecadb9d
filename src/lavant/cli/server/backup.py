"""`lavant backup`, `lavant restore`: a data directory as one file, and back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from lavant.cli.common import AsJson, CaFile, Key, Url, counted, report, time_of
from lavant.cli.server.check import byte_bar, contents_line
from lavant.core.addresses import QUEUES_URL
from lavant.core.errors import CorruptSnapshot, InvalidValue, LavantError, StorageFailed

if TYPE_CHECKING:
    from lavant.service.storage.backups.archive import BackupDescription


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file to write (a tar archive); it must not exist")],
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    data: Annotated[
        Path | None, typer.Option(help="data directory of a stopped server, instead of a running server")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Back up a running server, or the data directory of a stopped one.

    The backup is consistent: it holds everything that was confirmed before it began. The server goes on meanwhile. A
    server with keys wants one with the scope admin and no namespace.

    The file appears when it is complete and its checksums were compared. Keys, certificates and configuration are not
    in it.
    """
    from lavant.service.storage.backups.archive import verify  # noqa: PLC0415

    if file.exists():
        raise InvalidValue(f"{file} exists already; give a new file")
    with _written(file) as (partial, target):
        size_bytes = _download(url, key, ca_file, file, target) if data is None else _copy(data, file, target)
        target.close()
        with byte_bar(size_bytes, "verifying") as on_part:
            description = verify(partial, on_part)
    _show(f"{file}: {size_bytes:,} bytes", description, as_json=as_json, file=str(file), bytes=size_bytes)


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="file that `lavant backup` wrote")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="new or empty directory, for `lavant serve --data`")],
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a new directory, and check that a server can open it.

    Nothing is overwritten, and a backup that is damaged leaves nothing behind. Never run the restored server while the
    original runs: both would deliver the same messages.
    """
    import msgspec  # noqa: PLC0415

    from lavant.service.storage.backups.restore import restore as restore_directory  # noqa: PLC0415
    from lavant.service.storage.check import check, size_of  # noqa: PLC0415

    with byte_bar(file.stat().st_size if file.is_file() else 0, "restoring") as on_part:
        description = restore_directory(file, data, on_part)
    with byte_bar(size_of(data), "checking") as on_read:
        checked = check(data, on_read)
    if not checked.opens or checked.contents is None:
        raise CorruptSnapshot(f"{data} was restored, and does not open; `lavant check {data}` says why")
    contents = msgspec.to_builtins(checked.contents)
    _show(f"{data} opens", description, as_json=as_json, data=str(data), contents=contents)
    if not as_json:
        report(contents_line(checked.contents), as_json=False)


@contextmanager
def _written(file: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A file that gets its name when it is complete and durable; nothing is left if it fails."""
    from lavant.core.files import sync_directory  # noqa: PLC0415

    partial = file.with_name(f".{file.name}.partial")
    try:
        # Messages are in it: nobody else may read it.
        target = os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
    except OSError as error:
        raise InvalidValue(f"cannot write {file}: {error.strerror}") from None
    try:
        with _writing(file), target:
            yield partial, target
        partial.rename(file)
        sync_directory(file.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, LavantError):
            raise
        raise StorageFailed(f"{file} could not be written: {error.strerror}; nothing is left of it") from None


def _download(url: str, key: str, ca_file: Path | None, file: Path, target: BinaryIO) -> int:
    from lavant.cli.reports.fetch import opened  # noqa: PLC0415
    from lavant.service.storage.backups.archive import PART_BYTES  # noqa: PLC0415

    with opened(url, "/backup", key, ca_file) as response:
        size_bytes = int(response.headers["content-length"])
        with byte_bar(size_bytes, "backing up") as on_part:
            while part := response.read(PART_BYTES):
                with _writing(file):  # `opened` would take the disk's error for the server's
                    target.write(part)
                on_part(len(part))
    _sync(target)
    return size_bytes


def _copy(data: Path, file: Path, target: BinaryIO) -> int:
    from lavant.service.storage.backups.source import stopped_backup  # noqa: PLC0415

    with stopped_backup(data) as source, byte_bar(source.size_bytes, "backing up") as on_part:
        for part in source.parts():
            with _writing(file):  # otherwise it would be told as an error of the data directory
                target.write(part)
            on_part(len(part))
        with _writing(file):
            _sync(target)
        return source.size_bytes


def _sync(target: BinaryIO) -> None:
    target.flush()
    os.fsync(target.fileno())


def _show(text: str, description: BackupDescription, *, as_json: bool, **more: object) -> None:
    shown = {"position": description.position, "created_ms": description.created_ms, "lavant": description.lavant}
    records = counted(description.position, "record")
    report(
        f"{text}; {records} up to {time_of(description.created_ms)}, of Lavant {description.lavant}",
        as_json=as_json,
        **more,
        **shown,
    )
