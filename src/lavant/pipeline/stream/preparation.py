"""Prepares a stream of files: subscriptions in slices and publications in a log, below its output.

    work/subscriptions, work/log, rejected.jsonl      made from the input
    work/inputs.json                                  identifies that input by content; written last

Without `inputs.json` the others do not count, and are made again. So an input that is refused, or a process that is
killed, leaves nothing that would keep the same command from running once the input is corrected.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from lavant.broker.slices import SliceReader
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.broker.storage.log.identity import log_identity
from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.broker.storage.objects.files import StoredFile
from lavant.core.errors import UNDECODABLE, InvalidValue
from lavant.core.files import is_uri, local_path
from lavant.core.identities import UNKNOWN, derived_identity
from lavant.core.publications.publication import Rejected
from lavant.pipeline.stream.inputs import files_of, load_publications, load_subscriptions, open_input
from lavant.pipeline.stream.sinks import count_reasons, reasons_text

Place = str | Path
MADE = ("work/subscriptions", "work/log")
REFUSED = "rejected.jsonl"
INPUTS = "work/inputs.json"


class Inputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs of an output directory: contents of files, identities of stores and logs, how they are read."""

    subscriptions: str
    publications: str
    scheme: str
    slices: int
    format: int = 2


class Prepared(NamedTuple):
    """Where the stream reads, and why lines of the input are not in the log."""

    store: Place
    log: Place
    refused: list[str]


def check_places(subscriptions: Place, publications: Place, output: Place) -> None:
    """Raise in one line for what is missing or cannot be used; nothing is read or made."""
    for place in (subscriptions, publications, output):
        open_storage(place)  # refuses an unknown kind
    check_subscriptions(subscriptions)
    if not _is_log(publications):
        for file in files_of(publications):
            _check_readable(file)
    if not is_uri(str(output)):
        check_directory(local_path(output))


def check_subscriptions(place: Place) -> None:
    """Raise in one line if this is neither a slice store nor a file that can be read."""
    if _is_store(place):
        SliceReader(place)
    elif not is_uri(str(place)) and local_path(place).is_dir():
        raise InvalidValue(f"{place} is a directory and no slice store; give a file of subscriptions, or a store")
    else:
        _check_readable(StoredFile.at(place))


def check_directory(path: Path) -> None:
    """Raise in one line if this is no directory to write to, and none can be made there."""
    found = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not found.is_dir():
        raise InvalidValue(f"{path} cannot be a directory: {found} is a file; choose another")
    if not os.access(found, os.W_OK | os.X_OK):
        raise InvalidValue(f"cannot write to {path}: {found} does not permit it; choose another directory")


def _check_readable(file: StoredFile) -> None:
    if file.storage.path(file.name) is not None:
        open_input(file).close()
    elif not file.exists():
        raise InvalidValue(f"there is no file {file}")


def prepare(subscriptions: Place, publications: Place, output: Place, *, scheme: str, slices: int) -> Prepared:
    """Make the store and the log, unless they exist already. A refusal changes nothing."""
    inputs = Inputs(_content(subscriptions), _content(publications), scheme, slices)
    store = subscriptions if _is_store(subscriptions) else _below(output, "work/subscriptions")
    log = publications if _is_log(publications) else _below(output, "work/log")
    storage = open_storage(output)
    if not _is_prepared(storage, inputs):
        given = {open_storage(place).address for place in (subscriptions, publications)}
        made = [name for name in (*MADE, REFUSED, INPUTS) if storage.below(name).address not in given]
        with all_or_nothing(output, made):
            if store != subscriptions:
                load_subscriptions(subscriptions, store, scheme=scheme, slices=slices)
            rejected = [] if log == publications else _load(publications, log, scheme)
            storage.write(REFUSED, [msgspec.json.encode(each._asdict()) + b"\n" for each in rejected])
            storage.write(INPUTS, [msgspec.json.encode(inputs)])
    lines = storage.read(REFUSED).splitlines() if storage.size(REFUSED) is not None else []
    return Prepared(store, log, [msgspec.json.decode(line, type=_Line).reason for line in lines])


class _Line(msgspec.Struct):
    reason: str


def _below(output: Place, name: str) -> Place:
    """A place below the output, of its kind."""
    return open_storage(output).below(name).address if is_uri(str(output)) else local_path(output) / name


def _is_store(place: Place) -> bool:
    return open_storage(place).size("store.json") is not None


def _is_log(place: Place) -> bool:
    storage = open_storage(place)
    return any(name.endswith(".log") and "/" not in name for name in storage.names("0")) or (
        storage.size("log.json") is not None
    )


def _content(place: Place) -> str:
    """Identifies what a stream's results depend on; a store or a log that grows stays the same."""
    if _is_store(place):
        return SliceReader(place).identity
    if _is_log(place):
        identity = log_identity(place)
        return identity if identity != UNKNOWN else derived_identity(_name_of(place))
    return derived_identity(*(part for file in files_of(place) for part in (file.name, digest(file))))


def _name_of(place: Place) -> str:
    storage = open_storage(place)
    return storage.uri if is_uri(str(place)) else storage.address


def digest(file: StoredFile) -> bytes:
    """Of the file's content."""
    with open_input(file) as opened:
        try:
            return hashlib.file_digest(opened, "sha256").digest()
        except OSError as error:
            raise InvalidValue(f"cannot read {file}: {error.strerror}") from None


def _is_prepared(output: ObjectStorage, inputs: Inputs) -> bool:
    """Whether everything exists; raises if it belongs to another input, which would be silently ignored."""
    try:
        found = msgspec.json.decode(output.read(INPUTS), type=Inputs)
    except FileNotFoundError:
        return False
    except UNDECODABLE:
        raise InvalidValue(
            f"{output.below(INPUTS).uri} is damaged, or of an earlier version of Lavant; choose another output "
            "directory"
        ) from None
    if found != inputs:
        raise InvalidValue(
            f"{output.uri} holds the results of other inputs: the content of the files, the store or the log differs, "
            "or the scheme or number of slices; choose another output directory"
        )
    return True


def _load(publications: Place, log: Place, scheme: str) -> list[Rejected]:
    with LogWriter(log, durable=False) as writer:
        rejected = load_publications(publications, writer, scheme=scheme)
    if rejected and LogReader(log).end() == 0:
        reasons = reasons_text(count_reasons(each.reason for each in rejected))
        raise InvalidValue(f"{StoredFile.at(publications)}: all {len(rejected)} publications were refused, {reasons}")
    return rejected


@contextmanager
def all_or_nothing(place: Place, made: Sequence[str]) -> Iterator[None]:
    """For what is made below a place under these names: a failure leaves nothing, not even a new directory."""
    _remove(place, made)  # left by a process that was killed
    new: list[Path] = []
    if not is_uri(str(place)):
        parents = {(local_path(place) / name).parent for name in made}
        new = [each for parent in parents for each in (parent, *parent.parents) if not each.exists()]
        for parent in parents:
            try:
                parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidValue(f"cannot make {parent}: {error.strerror}; choose another directory") from None
    try:
        yield
    except BaseException:
        _remove(place, made)
        for directory in sorted(set(new), reverse=True):  # what is inside comes first
            directory.rmdir()
        raise


def _remove(place: Place, made: Sequence[str]) -> None:
    if not is_uri(str(place)):
        for name in made:
            _remove_tree(local_path(place) / name)
        return
    storage = open_storage(place)
    for prefix in made:
        for name in storage.names(prefix):
            if name == prefix or name.startswith(f"{prefix}/"):
                storage.remove(name)


def _remove_tree(path: Path) -> None:
    if path.is_symlink():
        raise InvalidValue(f"{path} is a link; give an output directory of its own")
    if path.is_file():
        path.unlink()
    elif path.exists():
        for each in sorted(path.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() and not each.is_symlink() else each.unlink()
        path.rmdir()
