"""Prepares a stream of files: subscriptions in slices and publications in a log, below its output.

    work/subscriptions, work/log, rejected.jsonl      made from the input
    work/inputs.json                                  identifies that input by content; written last

Without `inputs.json` the others do not count, and are made again. So an input that is refused, or a process that is
killed, leaves nothing that would keep the same command from running once the input is corrected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from lavant.broker.slices import SliceReader
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.broker.storage.log.identity import log_identity
from lavant.core.errors import UNDECODABLE, InvalidValue
from lavant.core.files import replace_file
from lavant.core.identities import UNKNOWN, derived_identity
from lavant.core.publications.publication import Rejected
from lavant.pipeline.stream.inputs import files_of, load_publications, load_subscriptions
from lavant.pipeline.stream.sinks import count_reasons, reasons_text


class Inputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of an output directory: contents of files, identities of stores and logs, how they are read."""

    subscriptions: str
    publications: str
    scheme: str
    slices: int
    format: int = 2


class Prepared(NamedTuple):
    """Where the stream reads, and why lines of the input are not in the log."""

    store: Path
    log: Path
    refused: list[str]


def prepare(subscriptions: Path, publications: Path, output: Path, *, scheme: str, slices: int) -> Prepared:
    """Make the store and the log, unless they exist already. A refusal changes nothing."""
    work, refused = output / "work", output / "rejected.jsonl"
    inputs = Inputs(_content(subscriptions), _content(publications), scheme, slices)
    store = subscriptions if _is_store(subscriptions) else work / "subscriptions"
    log = publications if _is_log(publications) else work / "log"
    if not _is_prepared(work, inputs):
        made = [path for path in (work / "subscriptions", work / "log", refused) if path not in (store, log)]
        made += [path for path in (store, log) if path not in (subscriptions, publications)]
        with _all_or_nothing(output, made):
            if store != subscriptions:
                load_subscriptions(subscriptions, store, scheme=scheme, slices=slices)
            rejected = [] if log == publications else _load(publications, log, scheme)
            replace_file(refused, [msgspec.json.encode(each._asdict()) + b"\n" for each in rejected])
            replace_file(work / "inputs.json", [msgspec.json.encode(inputs)])
    lines = refused.read_bytes().splitlines() if refused.exists() else []
    return Prepared(store, log, [msgspec.json.decode(line, type=_Line).reason for line in lines])


class _Line(msgspec.Struct):
    reason: str


def _is_store(path: Path) -> bool:
    return (path / "store.json").exists()


def _is_log(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.log"))


def _content(path: Path) -> str:
    """Identifies what a stream's results depend on; a store or a log that grows stays the same."""
    if _is_store(path):
        return SliceReader(path).identity
    if _is_log(path):
        identity = log_identity(path)
        return identity if identity != UNKNOWN else derived_identity(str(path.absolute()))
    return derived_identity(*(part for file in files_of(path) for part in (file.name, _digest(file))))


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise InvalidValue(f"cannot read {path}: {error.strerror}") from None


def _is_prepared(work: Path, inputs: Inputs) -> bool:
    """Whether everything exists; raises if it belongs to another input, which would be silently ignored."""
    known = work / "inputs.json"
    if not known.exists():
        return False
    try:
        found = msgspec.json.decode(known.read_bytes(), type=Inputs)
    except UNDECODABLE:
        raise InvalidValue(
            f"{known} is damaged, or of an earlier version of Lavant; choose another output directory"
        ) from None
    if found != inputs:
        raise InvalidValue(
            f"{work.parent} holds the results of other inputs: the content of the files, the store or the log differs, "
            "or the scheme or number of slices; choose another output directory"
        )
    return True


def _load(publications: Path, log: Path, scheme: str) -> list[Rejected]:
    with LogWriter(log, durable=False) as writer:
        rejected = load_publications(publications, writer, scheme=scheme)
    if rejected and LogReader(log).end() == 0:
        reasons = reasons_text(count_reasons(each.reason for each in rejected))
        raise InvalidValue(f"{publications}: all {len(rejected)} publications were refused, {reasons}")
    return rejected


@contextmanager
def _all_or_nothing(output: Path, made: list[Path]) -> Iterator[None]:
    """A failure leaves nothing behind, not even directories that did not exist before."""
    work = output / "work"
    new = [directory for directory in (work, output, *output.parents) if not directory.exists()]
    for path in made:  # left by a process that was killed
        remove_tree(path)
    work.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in made:
            remove_tree(path)
        for directory in new:
            directory.rmdir()
        raise


def remove_tree(path: Path) -> None:
    """Remove the leftovers of an earlier attempt."""
    if path.is_symlink():
        raise InvalidValue(f"{path} is a link; give an output directory of its own")
    if path.is_file():
        path.unlink()
    elif path.exists():
        for each in sorted(path.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() and not each.is_symlink() else each.unlink()
        path.rmdir()
