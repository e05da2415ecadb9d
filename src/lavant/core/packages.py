"""Packages of others that Lavant needs: the extra that installs each, and the versions that work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

from lavant.core.errors import MissingComponent

EXTRA_OF_PACKAGE = {
    "aio_pika": "rabbitmq",
    "boto3": "s3",
    "botocore": "s3",
    "cryptography": "encryption",
    "grpc": "connect",
    "hdfs_native": "hdfs",
    "httptools": "server",
    "kazoo": "zookeeper",
    "numba": "models",
    "numpy": "models",
    "opentelemetry": "opentelemetry",
    "pandas": "spark",
    "pyarrow": "models",
    "pyspark": "spark",
    "starlette": "server",
    "uvicorn": "server",
    "uvloop": "server",
    "websockets": "server",
    "yaml": "kubernetes",
}
"""The smallest extra with a package, by the name that is imported."""

EXTRA_OF_MODULE = {
    "lavant.broker": "server",
    "lavant.broker.storage.objects": "s3",
    "lavant.cli.demo": "server,spark",
    "lavant.cli.planning": "models",
    "lavant.cli.server": "server",
    "lavant.client.encryption": "encryption",
    "lavant.models": "models",
    "lavant.pipeline": "spark",
    "lavant.service": "server",
    "lavant.simulation": "models",
}
"""The extras that a part of Lavant wants whole, if one of the packages of `models` is missing there."""


@contextmanager
def named_extras() -> Iterator[None]:
    """Replaces the error of an import inside by one that names the extra to install."""
    try:
        yield
    except ImportError as error:
        named = missing_package(error)
        if named is None:
            raise
        raise named from None


def missing_package(error: ImportError) -> MissingComponent | None:
    """The error that names the extra to install; None if the module that cannot be imported belongs to no extra."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRA_OF_PACKAGE.get(package)
    if extra is None:
        return None
    if extra == "models":
        extra = _extra_of_importer(error.__traceback__)
    return MissingComponent(f"the package {package} is not installed; add it with pip install 'lavant[{extra}]'")


def _extra_of_importer(traceback: TracebackType | None) -> str:
    """The extra of the first part of Lavant on the way to the import: what the caller wanted to use."""
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        parts = [part for part in EXTRA_OF_MODULE if f"{module}.".startswith(f"{part}.")]
        if parts:
            return EXTRA_OF_MODULE[max(parts, key=len)]
        traceback = traceback.tb_next
    return "models"


class VersionRange(NamedTuple):
    """The versions of one package that Lavant is known to work with; `too_new` is the first that is not.

    >>> str(VersionRange("uvicorn", (0, 54), (0, 55)))
    'uvicorn>=0.54,<0.55'
    """

    package: str
    oldest: tuple[int, int]
    too_new: tuple[int, int]

    def __str__(self) -> str:
        return self.package + ">={}.{},<{}.{}".format(*self.oldest, *self.too_new)

    def check(self, version: str) -> None:
        """Raise `MissingComponent` unless the installed version is in the range."""
        parsed = re.match(r"(\d+)\.(\d+)", version)
        if parsed is None or not self.oldest <= (int(parsed[1]), int(parsed[2])) < self.too_new:
            raise MissingComponent(
                f"Lavant needs {self}, because it uses internals of {self.package}, and {version} is installed; "
                f"run pip install '{self}'"
            )
