"""The root cause of a Spark failure in one line: Spark wraps it in tracebacks of two languages.

The line names the machine, where an executor failed, and the remedy, where it is known. Everything else goes to the log
of the process (`lavant.pipeline.internals.gateway`).

Private: the wording of these tracebacks. `PySparkException` has conditions for errors in queries, but what a Python
worker raised is in its text only.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from lavant.core.errors import FailedStream, LavantError
from lavant.pipeline.internals.gateway import java_end, log_file

LENGTH_MAX = 500
_OWN = re.compile(r"\blavant\.core\.errors\.(\w+: .+?)(?: SQLSTATE: \w{5}.*)?$", re.MULTILINE)
_PYTHON = re.compile(
    r"^\s*(?!(?:org|java|javax|scala|py4j|pyspark)\.)"
    r"((?:\w+\.)*[A-Z]\w*(?:Error|Exception)(?:: .*)?|(?:\w+\.)+[A-Z]\w*: .+)$",
    re.MULTILINE,
)
_JAVA_FRAME = re.compile(r"^\s+(?:at \S+\(.*\)|\.\.\. \d+ more)$")
_JAVA = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)
_JAVA_OUTER = re.compile(r"^(?:: |Exception in thread \"[^\"]*\" )((?:\w+\.)+\w+: .+)$", re.MULTILINE)
_WORKER = re.compile(r"^Error from python worker:\s*\n\s*(.+)$", re.MULTILINE)
_MACHINE = re.compile(r"\(TID \d+\) \(([^\s()]+) executor (\w+)\)")
_SHIP = "or ship it with `lavant spark pack` and --archive"
_REMEDIES = (
    (
        re.compile(r"No module named '?lavant(?:'|$)", re.MULTILINE),
        f"{{machine}} has no Lavant: install the driver's version there, {_SHIP}",
    ),
    (
        re.compile(r"No module named '?(lavant\.[\w.]+)"),
        f"{{machine}} has another version of Lavant, without {{0}}: install the driver's version there, {_SHIP}",
    ),
    (
        re.compile(
            r"PYTHON_VERSION_MISMATCH\W.*?different version[^\d]*([\d.]+\d).*?driver[^\d]*([\d.]+\d)", re.DOTALL
        ),
        f"{{machine}} has Python {{0}}, the driver {{1}}: install the same minor version there, {_SHIP}",
    ),
    (
        re.compile(r"Cannot run program \"([^\"]+)\".*No such file"),
        f"{{machine}} has no {{0}}: install Python there at that path, name another one in PYSPARK_PYTHON, {_SHIP}",
    ),
)
"""What is missing on an executor, and what to do about it."""


def root_cause(error: BaseException) -> str:
    """The type and message of the innermost failure: Lavant's own, Python's, or else Java's.

    >>> root_cause(ValueError("wrong\\nand more"))
    'ValueError: wrong'
    """
    ended = java_end(error)
    if ended is not None:
        return f"Spark's Java process ended ({ended})"
    return cause_in(str(error)) or _line(f"{type(error).__name__}: {_first_line(str(error))}")


def full_report(error: BaseException) -> str:
    """Python's whole traceback, and Java's messages without the hundreds of frames."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(line for line in lines if not _JAVA_FRAME.match(line))


def cause_in(text: str) -> str | None:
    """The same from printed text; None if there is none."""
    for pattern, remedy in _REMEDIES:
        if known := pattern.search(text):
            return _line(remedy.format(*known.groups(), machine=machine_in(text) or "this machine"))
    inside = text.partition("Traceback (most recent call last)")[2]
    for pattern, where in ((_OWN, text), (_PYTHON, inside), (_WORKER, text), (_JAVA, text), (_JAVA_OUTER, text)):
        found = pattern.findall(where)
        if found:
            return _line(found[-1])
    return None


def machine_in(text: str) -> str | None:
    """The executor on which a task failed, as Spark's message names it.

    >>> machine_in("Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 2): java.io.EOFException")
    'machine 10.0.0.7 (executor 2)'
    """
    found = _MACHINE.findall(text)
    if not found:
        return None
    host, executor = found[-1]
    return None if executor == "driver" else f"machine {host} (executor {executor})"


def reported(error: BaseException) -> LavantError:
    """The error to show: one line that names the log, in which the full report is.

    A foreseen error without a cause in Spark says all there is to say, and is returned as it is.
    """
    if isinstance(error, LavantError) and error.__cause__ is None:
        return error
    log = log_file()
    with log.open("a") as file:
        file.write(full_report(error) + "\n")
    cause = str(error) if isinstance(error, LavantError) else root_cause(error)
    kind = type(error) if isinstance(error, LavantError) else FailedStream
    return kind(f"{cause}; details: {log}")


@contextmanager
def failures_reported() -> Iterator[None]:
    """Failures inside leave as one `LavantError` each, with the rest in the log."""
    try:
        yield
    except Exception as error:
        raise reported(error) from None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


def _line(text: str) -> str:
    return text if len(text) <= LENGTH_MAX else text[: LENGTH_MAX - 1] + "…"
