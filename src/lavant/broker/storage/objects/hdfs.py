"""Objects on HDFS, through hdfs-native: a client of HDFS's own protocol, without Java and Hadoop's libhdfs.

An object is written under a temporary name, synced and renamed. A rename on HDFS is atomic, and either replaces what
has the name or fails.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lavant.broker.storage.objects.interface import PARTIAL, Parts, checked_name, partial_name
from lavant.broker.storage.objects.uris import StorageUri, decoded, parse_uri
from lavant.core.errors import InvalidValue, LavantError, MissingComponent
from lavant.core.packages import named_extras

CONNECTING = {"dfs.client.failover.max.attempts": "8", "dfs.client.failover.sleep.max.millis": "2000"}
"""A name node that does not answer is tried for some 15 seconds; by its own defaults, the client takes 3 minutes."""
REMEDIES = (
    ("Connection refused", "no connection; check the address and whether the name node runs"),
    ("failed to lookup address", "its host is unknown; check the address"),
    (
        "No NameNode hosts found",
        "add the port, as in hdfs://HOST:8020, or set HADOOP_CONF_DIR if this is a name service",
    ),
    ("No fs.defaultFS setting", "name the host, as in hdfs://HOST:8020/PATH, or set HADOOP_CONF_DIR"),
    ("SafeModeException", "HDFS is in safe mode; wait until it has started, or look why it stays so"),
    ("InvalidPathException", "HDFS does not allow this name; names must not contain ':'"),
)
NOT_A_FILE = ("(is not a directory)", "PathIsNotEmptyDirectoryException")
"""In the errors of a name below an object, and of a folder that is to be removed."""

_RPC_ERROR = re.compile(r'RPCError\("(?:[\w.]+\.)?([\w$]+)", "(.*)', re.DOTALL)
_STACK = re.compile(r"(\\n|\n).*", re.DOTALL)

_clients: dict[tuple[int, str], Any] = {}
"""By process and address. The client's threads do not survive a fork."""


class HdfsStorage:
    """A folder on HDFS."""

    def __init__(self, client: Any, root: str, uri: StorageUri) -> None:
        self._client = client
        self._root = root.rstrip("/")
        self._uri = uri

    def __repr__(self) -> str:
        return f"HdfsStorage({self.uri!r})"

    def __reduce__(self) -> tuple[Callable[[str], HdfsStorage], tuple[str]]:
        return open_hdfs_storage, (self.address,)

    @property
    def uri(self) -> str:
        return self._uri.text

    @property
    def address(self) -> str:
        return self._uri.text

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        with self._errors(name):
            file = self._client.read(self._at(name))
            rest = file.size - start
            wanted = rest if length is None else min(rest, length)
            return bytes(file.read_range(start, wanted)) if wanted > 0 else b""

    def write(self, name: str, parts: Parts) -> None:
        self._put(name, parts, replaces=True)

    def create(self, name: str, parts: Parts) -> bool:
        return self._put(name, parts, replaces=False)

    def names(self, prefix: str = "", after: str = "") -> list[str]:
        folder = prefix.rpartition("/")[0]
        try:
            with self._errors(folder):
                statuses = list(self._client.list_status(f"{self._root}/{folder}".rstrip("/") or "/", recursive=True))
        except FileNotFoundError:
            return []
        found = [status.path[len(self._root) + 1 :] for status in statuses if not status.isdir]
        return sorted(name for name in found if name.startswith(prefix) and name > after and not name.endswith(PARTIAL))

    def remove(self, name: str) -> None:
        try:
            with self._errors(name):
                self._client.delete(self._at(name), recursive=False)
        except FileNotFoundError:
            pass

    def size(self, name: str) -> int | None:
        try:
            with self._errors(name):
                status = self._client.get_file_info(self._at(name))
        except FileNotFoundError:
            return None
        return None if status.isdir else int(status.length)

    def below(self, prefix: str) -> HdfsStorage:
        return HdfsStorage(self._client, self._at(prefix), self._uri.below(prefix))

    def path(self, name: str) -> None:
        checked_name(name)

    def _at(self, name: str) -> str:
        return f"{self._root}/{checked_name(name)}"

    def _put(self, name: str, parts: Parts, *, replaces: bool) -> bool:
        """Whether the object was stored."""
        path = self._at(name)
        content = list(parts)  # an error while they are made must not leave half of an object
        partial = partial_name(path)
        with self._errors(name, missing=False):
            file = self._client.create(partial)
            try:
                for part in content:
                    file.write(memoryview(part).cast("B"))  # Arrow's buffers hold signed bytes, which it refuses
                file.hsync()
                file.close()
                self._client.rename(partial, path, overwrite=replaces)
            except BaseException as error:
                with suppress(Exception):
                    self._client.delete(partial)
                if isinstance(error, FileExistsError) and not replaces:
                    return False
                raise
        return True

    @contextmanager
    def _errors(self, name: str, *, missing: bool = True) -> Iterator[None]:
        """Turn what the client raises into one line; an object that is not there is a `FileNotFoundError`."""
        try:
            yield
        except LavantError:
            raise
        except Exception as error:
            if missing and (isinstance(error, FileNotFoundError) or any(sign in str(error) for sign in NOT_A_FILE)):
                raise FileNotFoundError(errno.ENOENT, "there is no such object", f"{self.uri} {name}") from None
            raise explained(self._uri, error) from None


def explained(uri: StorageUri, error: Exception) -> MissingComponent:
    """An error in one line: the storage, the reason and the remedy. Hadoop's own have a class and a stack."""
    text = str(error)
    for sign, remedy in REMEDIES:
        if sign in text:
            return MissingComponent(f"{uri.shown}: {remedy}")
    rpc = _RPC_ERROR.search(text)
    said = _STACK.sub("", rpc[2] if rpc else text).replace('\\"', '"')[:300]
    if rpc is not None and rpc[1] == "AccessControlException":
        return MissingComponent(f"{uri.shown}: {said}; check HADOOP_USER_NAME, the folder's owner and its mode")
    return MissingComponent(f"{uri.shown}: {f'{rpc[1]}: ' if rpc else ''}{said}")


def open_hdfs_storage(text: str) -> HdfsStorage:
    uri = parse_uri(text)
    if uri.user:
        raise InvalidValue(f"{uri.scheme}://{uri.host}: name the user in HADOOP_USER_NAME, not in the URI")
    if uri.query:
        raise InvalidValue(f"{uri.shown}: hdfs:// takes no parameters; set them in hdfs-site.xml below HADOOP_CONF_DIR")
    return HdfsStorage(_client(uri), f"/{decoded(uri.path)}", uri)


def _client(uri: StorageUri) -> Any:
    """The client of this process for a name node."""
    address = f"{uri.scheme}://{uri.host}"
    process = os.getpid()
    if (process, address) not in _clients:
        if any(other != process for other, _ in _clients):
            raise MissingComponent(
                f"{uri.shown}: a process that was forked from one that uses HDFS cannot use it; start it anew (spawn)"
            )
        with named_extras():
            from hdfs_native import Client  # noqa: PLC0415
        if "SPARK_USER" in os.environ:  # an executor acts for the user of the driver, not for that of its machine
            os.environ.setdefault("HADOOP_USER_NAME", os.environ["SPARK_USER"])
        try:
            _clients[process, address] = Client(address, CONNECTING)
        except Exception as error:
            raise explained(uri, error) from None
    return _clients[process, address]
