"""The root cause of a Spark failure in one line: Spark wraps it in tracebacks of two languages.

Private: the wording of these tracebacks. `PySparkException` has conditions for errors in queries, but what a Python
worker raised is in its text only.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

import re
import traceback

LENGTH_MAX = 500
_OWN = re.compile(r"^\s*lavant\.core\.errors\.(\w+: .+)$", re.MULTILINE)
_PYTHON = re.compile(
    r"^(?!(?:org|java|javax|scala|py4j|pyspark)\.)((?:\w+\.)*[A-Z]\w*(?:Error|Exception)(?:: .*)?)$", re.MULTILINE
)
_JAVA_FRAME = re.compile(r"^\s+(?:at \S+\(.*\)|\.\.\. \d+ more)$")
_JAVA = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)


def root_cause(error: BaseException) -> str:
    """The type and message of the innermost failure: Lavant's own, Python's, or else Java's.

    >>> root_cause(ValueError("wrong\\nand more"))
    'ValueError: wrong'
    """
    return cause_in(str(error)) or _line(f"{type(error).__name__}: {_first_line(str(error))}")


def full_report(error: BaseException) -> str:
    """Python's whole traceback, and Java's messages without the hundreds of frames."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(line for line in lines if not _JAVA_FRAME.match(line))


def cause_in(text: str) -> str | None:
    """The same from printed text; None if there is none."""
    inside = text.partition("Traceback (most recent call last)")[2]
    for pattern, where in ((_OWN, text), (_PYTHON, inside), (_JAVA, text)):
        found = pattern.findall(where)
        if found:
            return _line(found[-1])
    return None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


def _line(text: str) -> str:
    return text if len(text) <= LENGTH_MAX else text[: LENGTH_MAX - 1] + "…"
