"""Starts Spark's Java process with its messages in a log file instead of on the terminal.

One process of Python has one of Java, for all its sessions. Private:

* `pyspark.java_gateway`: `launch_gateway` passes its `popen_kwargs` on to `Popen`.
* `SparkContext._gateway` and `SparkContext._ensure_initialized`: contexts use the gateway that their class holds.
* `py4j.protocol`: the error of a connection that broke.
* The loggers of Py4J, and `SparkContext._accumulatorServer`: they print the connections that Java's end breaks.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from lavant.core.errors import MissingComponent
from lavant.core.kernels.cache import cache_directory

LOGS_MAX = 20
"""The oldest beyond it are deleted when another one begins."""
END_S_MAX = 5.0
PREFIX = "spark-"
_THROWN = re.compile(r"^Exception in thread \"[^\"]*\" (.+)$", re.MULTILINE)
_REMARK = re.compile(r"WARNING: |Picked up |NOTE: |Using Spark|Error occurred during initialization of VM")
"""Normal output of Java and Spark."""

_log: Path | None = None


def start_java(settings: Mapping[str, str]) -> None:
    """Start Java with these settings, unless this process has started one or runs below one (`spark-submit`)."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    with log_file().open("ab") as log:
        begin = log.tell()
        try:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise MissingComponent(f"Spark's Java process did not start: {_last_words(begin)}") from error
    SparkContext._ensure_initialized(gateway=gateway)


def log_broken_connections(context: SparkContext) -> None:
    """Of the server to which Java reports accumulators; it would print them."""

    def log(request: object, client: object) -> None:
        with log_file().open("a") as file:
            traceback.print_exc(file=file)

    server: Any = context._accumulatorServer
    server.handle_error = log


def _last_words(begin: int) -> str:
    """What Java printed from this position of the log on: its exception, or else its first line that is no remark."""
    said = log_file().read_bytes()[begin:].decode(errors="replace")
    thrown = _THROWN.search(said)
    if thrown is not None:
        return thrown[1]
    return next((line for line in said.splitlines() if line.strip() and not _REMARK.match(line)), "no reason given")


def log_file() -> Path:
    """The log of this process: what Spark and Java print, and the full reports of failures."""
    global _log  # noqa: PLW0603
    if _log is None:
        name = f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        _log = _log_directory() / name
        _prune(_log.parent)
        _log.touch(mode=0o600)
        _log_py4j(logging.FileHandler(_log, delay=True))
    return _log


def _log_py4j(handler: logging.Handler) -> None:
    """Py4J logs the connections that Java's end breaks, partly as the root."""
    logger = logging.getLogger("py4j")
    logger.addHandler(handler)
    logger.propagate = False

    def is_of_others(record: logging.LogRecord) -> bool:
        if "py4j" not in Path(record.pathname).parts:
            return True
        handler.handle(record)
        return False

    logging.getLogger().addFilter(is_of_others)


def java_end(error: BaseException) -> str | None:
    """How the Java process of this process ended, in words; None if it runs.

    After an error of the connection to it, wait for a moment: a process that is killed closes its connections first.
    """
    process: Any = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(END_S_MAX if isinstance(error, OSError | Py4JNetworkError) else 0)
    except subprocess.TimeoutExpired:
        return None
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _log_directory() -> Path:
    """`logs` in Lavant's cache directory, or the system's temporary directory if that cannot be written to."""
    kernels = cache_directory()
    if kernels is not None:
        directory = kernels.parent / "logs"
        with contextlib.suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    return Path(tempfile.gettempdir())


def _prune(directory: Path) -> None:
    with contextlib.suppress(OSError):
        logs = sorted(directory.glob(f"{PREFIX}*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in logs[LOGS_MAX - 1 :]:
            path.unlink()
