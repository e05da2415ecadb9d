"""Archives with Python, Lavant and its dependencies, for executors on machines where none of them is installed.

Spark unpacks an archive into the working directory of each executor (`spark.archives`):

    lavant/
      lavant-pack.json    versions, read by the driver before it ships the archive
      bin/lavant-python   starts the interpreter beside it, wherever the archive was unpacked
      bin/python3.N
      lib/python3.N       standard library and site-packages, without the files of Spark's Java
      lib/native          shared libraries of the interpreter, but for those of the C library
      cache/kernels       compiled kernels, for processors like the driver's; others compile their own
"""

from __future__ import annotations

import atexit
import importlib.util
import io
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, version
from pathlib import Path

import msgspec

from lavant.core.errors import UNDECODABLE, InvalidValue, MissingComponent, StorageFailed
from lavant.core.kernels.cache import SUFFIX, cache_directory

NAME = "lavant"
"""The directory of an unpacked archive, below an executor's working directory."""
PYTHON = "lavant-python"
"""The interpreter's name, found by PATH: in the archive on executors, in a directory of its own on the driver."""
MANIFEST = "lavant-pack.json"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EXTRAS = ("spark", "hdfs")
"""What an archive holds of Lavant's dependencies, as far as they are installed."""
COMPRESSION = 3
"""Of 9; beyond it, an archive takes much longer to make and is hardly smaller."""

_LAUNCHER = """#!/bin/sh
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
unset PYTHONHOME
export PYTHONNOUSERSITE=1 LD_LIBRARY_PATH="$here/lib/native${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/bin/{python}" "$@"
"""
_SYSTEM_LIBRARY = re.compile(
    r"(ld-linux.*|libc|libm|libdl|librt|libpthread|libutil|libresolv|libgcc_s|libstdc\+\+)\.so.*"
)
_STANDARD_LEFT_OUT = {"test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages"}
_STANDARD_FILE_LEFT_OUT = re.compile(r"config-|.*\.a$|lib-dynload/_tkinter\.")
_PACKAGE_LEFT_OUT = re.compile(
    r"pyspark/(jars|bin|sbin|data|examples|licenses|python|tests|pandas/tests|sql/tests|sql/connect/tests)/"
    r"|pyarrow/(include|src|tests)/|(numba|llvmlite|pandas)/tests/"
)
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([^]]*)\])?")
_EXTRA = re.compile(r"""extra == ['"]([\w.-]+)['"]""")


class PackManifest(msgspec.Struct, frozen=True):
    """What an archive holds."""

    lavant: str
    python: str
    """With its minor version, which executors must share with the driver."""
    machine: str
    """x86_64, say."""


def this_installation() -> PackManifest:
    return PackManifest(version("lavant"), ".".join(map(str, sys.version_info[:2])), platform.machine())


def check_target(target: Path) -> None:
    """Raise in one line if no archive can be written there."""
    if not target.name.endswith(".tar.gz"):
        raise InvalidValue(f"Spark recognises archives by their name; {target.name!r} must end in .tar.gz")
    if not sys.platform.startswith("linux"):
        raise MissingComponent(f"archives are for executors on Linux and made there, this is {sys.platform}")
    if target.is_dir():
        raise InvalidValue(f"{target} is a directory; name a file in it")
    if not os.access(target.parent, os.W_OK | os.X_OK) or not target.parent.is_dir():
        raise InvalidValue(f"cannot write {target}: {target.parent} is no directory that you may write to")


def pack(target: Path) -> PackManifest:
    """Write an archive of the running interpreter, Lavant and all that it requires; replaces the file when done."""
    check_target(target)
    manifest = this_installation()
    partial = target.with_name(target.name + ".partial")
    try:
        with tarfile.open(partial, "w:gz", dereference=True, compresslevel=COMPRESSION) as tar:
            _add_text(tar, MANIFEST, msgspec.json.encode(manifest).decode(), 0o644)
            _add_text(tar, f"bin/{PYTHON}", _LAUNCHER.format(python=f"python{manifest.python}"), 0o755)
            for source, name in _contents(f"python{manifest.python}"):
                tar.add(source, name, recursive=False, filter=_plain)
        partial.replace(target)
    except OSError as error:
        raise StorageFailed(f"cannot write {target}: {error.strerror}; choose another place") from None
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def read_manifest(archive: Path) -> PackManifest:
    """Raises `InvalidValue` if the file is no archive of `pack`."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            first = tar.next()
            content = tar.extractfile(first) if first is not None and first.name == MANIFEST else None
            if content is not None:
                return msgspec.json.decode(content.read(), type=PackManifest)
        problem = f"it does not begin with {MANIFEST}"
    except (OSError, EOFError, tarfile.TarError, *UNDECODABLE) as error:
        problem = str(error)
    raise InvalidValue(f"{archive} is no archive of `lavant spark pack`: {problem}")


def shipped(archive: Path, master: str, others: str = "") -> dict[str, str]:
    """Settings of a session whose executors run from the archive; also prepares this process's environment.

    `others` are further archives to ship, as `spark.archives` lists them.
    """
    check_archive(archive, master)
    os.environ["PYSPARK_PYTHON"] = PYTHON
    if shutil.which(PYTHON) is None:
        os.environ["PATH"] = f"{_driver_python()}:{os.environ.get('PATH', SYSTEM_PATH)}"
    return {
        "spark.archives": ",".join([*filter(None, [others]), f"{archive.absolute().as_uri()}#{NAME}"]),
        "spark.executorEnv.PATH": f"./{NAME}/bin:{SYSTEM_PATH}",
        "spark.executorEnv.LAVANT_CACHE_DIR": f"./{NAME}/cache",
    }


def check_archive(archive: Path, master: str) -> None:
    """Raise in one line unless executors of this master can run from the archive."""
    if master.startswith("local") and not master.startswith("local-cluster"):
        raise InvalidValue(f"the master {master} runs everything in this machine's Python; an archive is for clusters")
    found, wanted = read_manifest(archive), this_installation()
    if (found.lavant, found.python) != (wanted.lavant, wanted.python):
        raise InvalidValue(
            f"{archive} holds Lavant {found.lavant} for Python {found.python}, this is Lavant {wanted.lavant} on "
            f"Python {wanted.python}; make a new one with `lavant spark pack`"
        )


def _driver_python() -> str:
    """A directory with a command that starts this interpreter: Spark's driver starts workers too, to plan sources."""
    directory = tempfile.mkdtemp(prefix="lavant-python-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    command = Path(directory, PYTHON)
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    command.chmod(0o755)
    return directory


def _contents(python: str) -> Iterator[tuple[Path, str]]:
    """Files, and their names in the archive."""
    executable = Path(sys.executable).resolve()
    yield executable, f"bin/{python}"
    standard = Path(sysconfig.get_path("stdlib"))
    extensions = []
    for path in _files(standard, _STANDARD_LEFT_OUT):
        if not _STANDARD_FILE_LEFT_OUT.match(str(path.relative_to(standard))):
            extensions += [path] if path.suffix == ".so" else []
            yield path, f"lib/{python}/{path.relative_to(standard)}"
    for library in _shared_libraries([executable, *extensions]):
        yield library, f"lib/native/{library.name}"
    site = f"lib/{python}/site-packages"
    package = Path(__file__).parents[1]
    for path in _files(package, set()):
        yield path, f"{site}/lavant/{path.relative_to(package)}"
    for each in _required("lavant", EXTRAS):
        for path, name in _installed_files(each):
            yield path, f"{site}/{name}"
    kernels = cache_directory()
    if kernels is not None:
        for path in sorted(kernels.glob(f"*{SUFFIX}")):
            yield path, f"cache/kernels/{path.name}"


def _files(directory: Path, left_out: set[str]) -> Iterator[Path]:
    """All files below a directory but for some of its entries."""
    for entry in sorted(directory.iterdir()):
        if entry.name not in left_out:
            yield from sorted(path for path in entry.rglob("*") if path.is_file()) if entry.is_dir() else [entry]


def _required(root: str, extras: tuple[str, ...]) -> list[Distribution]:
    """A distribution and all that it requires with these extras; what other systems require is not installed."""
    found: dict[str, Distribution] = {}
    seen = set()
    waiting = [(root, ""), *((root, extra) for extra in extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            each = found[name] = distribution(name)
        except ModuleNotFoundError:
            continue
        for text in each.requires or ():
            requirement, only_with = _REQUIREMENT.match(text), _EXTRA.search(text)
            assert requirement is not None
            if (only_with[1] if only_with else "") == extra:
                wanted = ["", *filter(None, re.split(r"[,\s]+", requirement[2] or ""))]
                waiting += [(requirement[1], each_extra) for each_extra in wanted]
    return sorted({each.name: each for each in found.values()}.values(), key=lambda each: each.name)


def _installed_files(each: Distribution) -> Iterator[tuple[Path, str]]:
    """The modules of a distribution with their compiled form, and its metadata; no scripts, no editable links."""
    for file in each.files or ():
        name = file.as_posix()
        if name.startswith(("..", "/")) or "__pycache__" in name or name.endswith((".pth", ".pyi")):
            continue
        path = Path(str(file.locate()))
        if _PACKAGE_LEFT_OUT.match(name) or not path.is_file():
            continue
        yield path, name
        if path.suffix == ".py":
            compiled = Path(importlib.util.cache_from_source(str(path)))
            if compiled.is_file():
                yield compiled, str(file.parent / "__pycache__" / compiled.name)


def _shared_libraries(binaries: list[Path]) -> list[Path]:
    """Those that the binaries load from outside of the C library, as the system's loader finds them here."""
    found: dict[str, Path] = {}
    for binary in binaries:
        shown = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
        for name, place in re.findall(r"^\s*(\S+) => (/\S+)", shown, re.MULTILINE):
            if not _SYSTEM_LIBRARY.fullmatch(name):
                found.setdefault(name, Path(place))
    return [found[name] for name in sorted(found)]


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owned by nobody in particular, and writable by nobody else."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & stat.S_IXUSR else 0o644
    return entry


def _add_text(tar: tarfile.TarFile, name: str, text: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), mode
    tar.addfile(entry, io.BytesIO(text.encode()))
