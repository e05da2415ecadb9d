"""The cache of compiled kernels on disk: one file for each kernel, signature and processor.

A file's name is a digest of everything its content depends on: the code of the kernel and of all that it calls, the
constants it reads, the types of its arguments, the versions of Numba and Python, the processor. So a file is never out
of date, only unused. Files are written to a temporary name and renamed, so several processes may write the same one. A
file begins with a checksum of the rest; a damaged file counts as missing.

Numba's own cache identifies a kernel by the path and time of its source file. It misses changes in other files that the
kernel calls, does not check files for damage, and fails in a tree that cannot be written to.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numba
import numba.core.serialize
from numba.core import compiler, types
from numba.core.caching import _Cache
from numba.core.extending import _Intrinsic

VARIABLE = "LAVANT_CACHE_DIR"
"""Names the directory; the default is `lavant` in XDG_CACHE_HOME, or in ~/.cache."""
FILES_MAX = 1000
"""A version of Lavant has about a hundred on one processor; the oldest are deleted."""
CHECKSUM_BYTES = 32
SUFFIX = ".kernel"

_CompileResult: Any = compiler.CompileResult  # Numba has few types
_dumps: Any = numba.core.serialize.dumps


class CacheState(NamedTuple):
    """The directory of compiled kernels, or the reason why there is none."""

    directory: Path | None
    problem: str | None = None


def cache_directory(environment: Mapping[str, str] | None = None) -> Path | None:
    """Returns the directory for kernels; None without a home directory.

    >>> cache_directory({"LAVANT_CACHE_DIR": "/var/cache/lavant", "HOME": "/srv"}).as_posix()
    '/var/cache/lavant/kernels'
    >>> cache_directory({"XDG_CACHE_HOME": "/cache", "HOME": "/srv"}).as_posix()
    '/cache/lavant/kernels'
    >>> cache_directory({"HOME": "/srv"}).as_posix()
    '/srv/.cache/lavant/kernels'
    >>> cache_directory({})
    """
    given = os.environ if environment is None else environment
    if given.get(VARIABLE):
        return Path(given[VARIABLE]).absolute() / "kernels"
    if Path(given.get("XDG_CACHE_HOME", "")).is_absolute():
        return Path(given["XDG_CACHE_HOME"]) / "lavant" / "kernels"
    return Path(given["HOME"]) / ".cache" / "lavant" / "kernels" if Path(given.get("HOME", "")).is_absolute() else None


def cache_state() -> CacheState:
    """Checks whether kernels can be stored; creates the directory if it is missing."""
    directory = cache_directory()
    if directory is None:
        return CacheState(None, f"there is no home directory; name a directory in {VARIABLE}")
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not directory.is_dir():
        return CacheState(directory, f"{directory} cannot be made; name another directory in {VARIABLE}")
    if not is_trusted(directory):
        return CacheState(directory, f"others may write to {directory}; name another directory in {VARIABLE}")
    if not os.access(directory, os.W_OK):
        return CacheState(directory, f"{directory} cannot be written to; name another directory in {VARIABLE}")
    return CacheState(directory)


def is_trusted(directory: Path) -> bool:
    """Whether only this user and root can write there: the content of the directory is executed."""
    try:
        status = directory.stat()
    except OSError:
        return False
    return status.st_uid in {0, os.getuid()} and not status.st_mode & 0o022


@contextlib.contextmanager
def locked(directory: Path, wait: Callable[[], None] | None = None, name: str = "kernels") -> Iterator[None]:
    """Excludes other processes with this lock, where locks are available. The end of a process releases its lock.

    While another process holds it, `wait` is called repeatedly, if given.
    """
    try:
        file = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        while wait is not None and not _try_lock(file):
            wait()
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def prune(directory: Path, files_max: int = FILES_MAX) -> None:
    """Deletes the oldest files beyond the limit; another process may delete the same ones."""
    with contextlib.suppress(OSError):
        files = sorted(directory.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[files_max:]:
            path.unlink()


class KernelCache(_Cache):
    """The cache that Numba calls to load and save compiled kernels."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._function = function
        self._options = options
        self._code: bytes | None = None

    @property
    def cache_path(self) -> str:
        return str(cache_directory())

    def load_overload(self, signature: Any, target: Any) -> Any:
        target.refresh()
        path = self._path(signature, target.codegen())
        if path is None or not is_trusted(path.parent):
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        checksum, content = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
        if hashlib.sha256(content).digest() != checksum:
            return None
        return _CompileResult._rebuild(target, *pickle.loads(content))

    def save_overload(self, signature: Any, compiled: Any) -> None:
        path = self._path(signature, compiled.codegen)
        if path is None or compiled.lifted or compiled.library.has_dynamic_globals:
            return
        content = _dumps(compiled._reduce())
        beside = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_trusted(path.parent):
                beside.write_bytes(hashlib.sha256(content).digest() + content)
                beside.replace(path)
        except OSError:  # the disk is full or read-only: the kernel is only in memory
            with contextlib.suppress(OSError):
                beside.unlink()

    def enable(self) -> None:
        """Does nothing: always enabled."""

    def disable(self) -> None:
        """Does nothing: cannot be disabled."""

    def flush(self) -> None:
        """Does nothing: saves are immediate."""

    def _path(self, signature: Any, codegen: Any) -> Path | None:
        directory = cache_directory()
        if directory is None:
            return None
        if self._code is None:
            self._code = code_digest(self._function, self._options)
        parts = (numba.__version__, sys.implementation.cache_tag, codegen.magic_tuple(), _described(signature))
        digest = hashlib.sha256(self._code + repr(parts).encode()).hexdigest()
        return directory / f"{self._function.__module__}.{self._function.__qualname__}-{digest[:32]}{SUFFIX}"


def code_digest(function: Callable[..., Any], options: Mapping[str, Any]) -> bytes:
    """A digest of a kernel: its code, that of all kernels it calls, and the constants that they read."""
    digest = hashlib.sha256()
    for part in _parts(function, options, set()):
        digest.update(part.encode() + b"\0")
    return digest.digest()


def _parts(function: Any, options: Mapping[str, Any], seen: set[int]) -> Iterator[str]:
    if id(function) in seen:
        return
    seen.add(id(function))
    yield f"{function.__module__}.{function.__qualname__}"
    yield repr(sorted((name, sorted(value) if isinstance(value, set) else value) for name, value in options.items()))
    names: set[str] = set()
    yield from _code_parts(function.__code__, names)
    for name in sorted(names & function.__globals__.keys()):
        yield name
        yield from _value_parts(function.__globals__[name], seen)


def _code_parts(code: CodeType, names: set[str]) -> Iterator[str]:
    names.update(code.co_names)
    yield repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant, names)
        else:
            yield repr(constant)


def _value_parts(value: Any, seen: set[int]) -> Iterator[str]:
    """The parts of a global. Numba compiles it as a constant, so its value counts."""
    if isinstance(value, numba.core.dispatcher.Dispatcher):
        yield from _parts(value.py_func, value.targetoptions, seen)
    elif isinstance(value, _Intrinsic):
        yield from _parts(value._defn, {}, seen)
    elif isinstance(value, FunctionType):
        yield from _parts(value, {}, seen)
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__} {getattr(value, '_fields', ())}"
    elif not hasattr(value, "__path__") and not hasattr(value, "__spec__"):
        yield repr(value)


def _described(type_: Any) -> str:
    """Describes a type with the fields and modules of its tuples, which Numba's own text omits.

    The module counts because a compiled kernel refers to the class by it.

    >>> _described((numba.int64, types.NamedTuple((numba.int64, numba.int64), CacheState)))
    '(int64, lavant.core.kernels.cache.CacheState[directory: int64, problem: int64])'
    """
    if isinstance(type_, tuple):
        return f"({', '.join(map(_described, type_))})"
    if not isinstance(type_, types.BaseTuple):
        return str(type_)
    parts: Any = type_
    if not isinstance(type_, types.BaseNamedTuple):
        return _described(tuple(parts.types))
    fields = (f"{name}: {_described(each)}" for name, each in zip(parts.fields, parts.types, strict=True))
    return f"{parts.instance_class.__module__}.{parts.instance_class.__qualname__}[{', '.join(fields)}]"
