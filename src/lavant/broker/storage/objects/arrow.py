"""Objects on any file system of `pyarrow.fs`: S3, Google Cloud Storage and what else a URI can name.

An object store shows an object when it is complete, so that it is written under its own name. Elsewhere it is written
under a temporary name and moved.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from lavant.broker.storage.objects.interface import PARTIAL, Parts, checked_name, partial_name
from lavant.broker.storage.objects.s3 import S3Requests
from lavant.broker.storage.objects.uris import StorageUri, decoded, parse_uri
from lavant.core.errors import InvalidValue, LavantError, MissingComponent
from lavant.core.packages import named_extras

OBJECT_STORES = ("s3", "gcs", "gs", "abfs")
"""Types of file systems that show an object once it is complete."""
NO_BUCKET = "the bucket does not exist; create it, or correct its name"
NO_CONNECTION = "no connection; check the endpoint and the network"
REMEDIES = (
    ("NO_SUCH_BUCKET", NO_BUCKET),
    ("NoSuchBucket", NO_BUCKET),
    ("AccessDenied", "access is denied; check the credentials and what they may do"),
    ("InvalidAccessKeyId", "the credentials are refused; check the access key"),
    ("SignatureDoesNotMatch", "the credentials are refused; check the secret key"),
    (
        "NoCredentials",
        "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    ("ACCESS_DENIED", "access is denied; check the credentials and what they may do"),
    ("INVALID_ACCESS_KEY", "the credentials are refused; check the access key"),
    ("SIGNATURE_DOES_NOT_MATCH", "the credentials are refused; check the secret key"),
    ("HTTP response code: 403", "access is denied; check the credentials and what they may do"),
    ("HTTP response code: 401", "the credentials are refused; check them"),
    (
        "OAuth2 access token",
        "there are no credentials, or nobody answers who would confirm them; set GOOGLE_APPLICATION_CREDENTIALS",
    ),
    ("NETWORK_CONNECTION", NO_CONNECTION),
    ("CURL error", NO_CONNECTION),
)
GOOGLE_RETRY_S = 20
"""How long Google's client repeats a request that fails; by default it says nothing for 15 minutes."""


class ArrowStorage:
    """A folder of a `pyarrow.fs` file system.

    `create` is a conditional put on S3. Other file systems offer none through pyarrow: there it looks for the name
    first, and two processes that create the same object within the same moment may both succeed.
    """

    def __init__(self, filesystem: Any, root: str, uri: StorageUri) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")
        self._uri = uri
        self._is_s3 = filesystem.type_name == "s3"
        self._is_object_store = filesystem.type_name in OBJECT_STORES
        self._root_was_seen = False

    def __repr__(self) -> str:
        return f"ArrowStorage({self.uri!r})"

    def __reduce__(self) -> tuple[Callable[[str], ArrowStorage], tuple[str]]:
        return open_arrow_storage, (self.address,)

    @property
    def uri(self) -> str:
        return self._uri.shown

    @property
    def address(self) -> str:
        return self._uri.text

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        with self._errors(name), self._fs.open_input_file(self._at(name)) as file:
            if start >= file.size():
                return b""
            if start:
                file.seek(start)
            found: bytes = file.read(length)
            return found

    def write(self, name: str, parts: Parts) -> None:
        content = list(parts)  # an error while they are made must not leave half of an object
        with self._errors(name):
            path = self._at(name)
            if self._is_object_store:
                self._put(path, content)
                return
            partial = partial_name(path)
            self._fs.create_dir(path.rpartition("/")[0], recursive=True)
            try:
                self._put(partial, content)
                self._fs.move(partial, path)
            except BaseException:
                if self._info(partial) is not None:
                    self._fs.delete_file(partial)
                raise

    def create(self, name: str, parts: Parts) -> bool:
        if self._is_s3:
            bucket, _, key = self._at(name).partition("/")
            content = b"".join(parts)
            with self._errors(name):
                return _s3_requests(self._uri._replace(path=""), self._fs.region, os.getpid()).create(
                    bucket, key, content
                )
        if self.size(name) is not None:
            return False
        self.write(name, parts)
        return True

    def names(self, prefix: str = "", after: str = "") -> list[str]:
        is_part = bool(after) or not f"/{prefix}".endswith("/")
        found = self._s3_names(prefix, after) if is_part else None
        if found is None:
            found = self._listed(prefix.rpartition("/")[0])
        if not found:
            with self._errors(prefix):
                self._check_root()
        return sorted(name for name in found if name.startswith(prefix) and name > after and not name.endswith(PARTIAL))

    def _listed(self, folder: str) -> list[str]:
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415

        at = f"{self._root}/{folder}" if folder else self._root
        try:
            infos = self._fs.get_file_info(FileSelector(at, allow_not_found=True, recursive=True))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except Exception as error:
            raise explained(self._uri, error) from None
        start = len(self._root) + 1
        return [info.path[start:] for info in infos if info.type == FileType.File]

    def _s3_names(self, prefix: str, after: str) -> list[str] | None:
        """S3 itself lists a part of a folder; None if that cannot be asked of it without boto3."""
        requests = self._requests()
        if requests is None:
            return None
        bucket, _, folder = f"{self._root}/".partition("/")
        with self._errors(prefix):
            keys = requests.keys(bucket, folder + prefix, folder + after)
        return [key.removeprefix(folder) for key in keys if not key.endswith("/")]  # others mark folders

    def _requests(self) -> S3Requests | None:
        """None if this is not S3, or boto3 is not installed."""
        try:
            return _s3_requests(self._uri._replace(path=""), self._fs.region, os.getpid()) if self._is_s3 else None
        except MissingComponent:
            return None

    def remove(self, name: str) -> None:
        path, requests = self._at(name), self._requests()
        try:
            with self._errors(name):
                if requests is None:
                    self._fs.delete_file(path)
                else:  # pyarrow would leave an object that marks the folder
                    requests.delete(*path.split("/", 1))
        except FileNotFoundError:
            pass

    def size(self, name: str) -> int | None:
        with self._errors(name):
            info = self._info(self._at(name))
            if info is None:
                self._check_root()
            return info

    def below(self, prefix: str) -> ArrowStorage:
        storage = ArrowStorage(self._fs, self._at(prefix), self._uri.below(prefix))
        storage._root_was_seen = self._root_was_seen
        return storage

    def path(self, name: str) -> None:
        checked_name(name)

    def _at(self, name: str) -> str:
        return f"{self._root}/{checked_name(name)}"

    def _put(self, path: str, content: list[bytes | memoryview]) -> None:
        with self._fs.open_output_stream(path) as stream:
            for part in content:
                stream.write(part)

    def _info(self, path: str) -> int | None:
        from pyarrow.fs import FileType  # noqa: PLC0415

        info = self._fs.get_file_info(path)
        return info.size if info.type == FileType.File else None

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn what the file system raises into one line without secrets; a missing object stays as it is."""
        try:
            yield
        except LavantError:
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) or self._is_folder(name):
                self._check_root()
                raise FileNotFoundError(errno.ENOENT, "there is no such object", f"{self.uri} {name}") from None
            raise explained(self._uri, error) from None

    def _is_folder(self, name: str) -> bool:
        """Whether this, or what should be a folder above it, is something else than asked for."""
        return not self._is_object_store and self._info(f"{self._root}/{name}") is None

    def _check_root(self) -> None:
        """Tell a missing bucket from a missing object: the file system does not."""
        if self._root_was_seen or self._fs.type_name not in OBJECT_STORES:
            return
        from pyarrow.fs import FileType  # noqa: PLC0415

        bucket = self._root.partition("/")[0]
        try:
            if self._fs.get_file_info(bucket).type == FileType.NotFound:
                raise MissingComponent(f"{self.uri}: {NO_BUCKET}")
        except OSError as error:
            raise explained(self._uri, error) from None
        self._root_was_seen = True


def explained(uri: StorageUri, error: Exception) -> MissingComponent:
    """An error in one line: the storage, the reason and the remedy."""
    text = " ".join(uri.without_secrets(str(error)).split())
    for sign, remedy in REMEDIES:
        if sign in text:
            return MissingComponent(f"{uri.shown}: {remedy}")
    return MissingComponent(f"{uri.shown}: {text[:300]}")


def open_arrow_storage(text: str) -> ArrowStorage:
    uri = parse_uri(text)
    filesystem, root = _filesystem(uri, os.getpid())
    return ArrowStorage(filesystem, root, uri)


class _Opened(NamedTuple):
    filesystem: Any
    root: str


@lru_cache(maxsize=64)
def _filesystem(uri: StorageUri, _process: int) -> _Opened:
    """The file system and the path on it; of this process, because connections do not survive a fork."""
    with named_extras():
        from pyarrow import ArrowInvalid  # noqa: PLC0415
        from pyarrow.fs import FileSystem  # noqa: PLC0415
    sent = uri
    if uri.scheme == "s3":  # a small object is then one request in the place of three
        sent = uri.with_parameter("allow_delayed_open=true")
    if uri.scheme in ("gs", "gcs") and "retry_limit_seconds" not in uri.parameters:
        sent = uri.with_parameter(f"retry_limit_seconds={GOOGLE_RETRY_S}")
    try:
        return _Opened(*FileSystem.from_uri(sent.text))
    except ArrowInvalid as error:
        text = " ".join(sent.without_secrets(str(error)).split())
        if "Unrecognized filesystem type" in text or "Got a Uri with non-matching scheme" in text:
            instead = "; here Spark's s3a:// is s3://" if uri.scheme in ("s3a", "s3n") else ""
            raise InvalidValue(
                f"{uri.shown}: there is no storage {uri.scheme}://; give a local path or a URI such as s3://, gs:// or "
                f"hdfs://{instead}"
            ) from None
        raise InvalidValue(f"{uri.shown} cannot be opened: {text}") from None
    except Exception as error:
        raise explained(uri, error) from None


@lru_cache(maxsize=16)
def _s3_requests(uri: StorageUri, region: str, _process: int) -> S3Requests:
    key, _, secret = uri.user.partition(":")
    return S3Requests(uri.shown, decoded(key), decoded(secret), region, uri.parameters)
