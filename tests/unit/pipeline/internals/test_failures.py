"""The one line that says what went wrong, out of what Spark makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant.core.errors import FailedStream, InvalidValue
from lavant.pipeline.internals import gateway
from lavant.pipeline.internals.failures import LENGTH_MAX, cause_in, failures_reported, reported, root_cause

TASK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
{cause}

    at org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1)
Caused by: java.io.EOFException
    ... 1 more
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (TASK.format(cause="lavant.core.errors.InvalidValue: the log ends"), "InvalidValue: the log ends"),
        (TASK.format(cause="KeyError: 'x'"), "KeyError: 'x'"),
        (TASK.format(cause="AssertionError"), "AssertionError"),
        (TASK.format(cause="pyarrow.lib.ArrowInvalid: odd"), "pyarrow.lib.ArrowInvalid: odd"),
        (
            "[DATA_SOURCE_ERROR] Failed to read: lavant.core.errors.InvalidValue: no log SQLSTATE: 38000; line 1",
            "InvalidValue: no log",
        ),
        (
            "An error occurred\n: org.apache.spark.SparkException: x\nCaused by: java.io.IOException: full",
            "java.io.IOException: full",
        ),
        (
            "An error occurred while calling None.X.\n: org.apache.spark.SparkException: no\n\tat y(z.scala:1)",
            "org.apache.spark.SparkException: no",
        ),
        (
            "Lost: org.apache.spark.SparkException: \nError from python worker:\n  Traceback (most recent call last):\n"
            '    File "daemon.py", line 1\n      bind()\n  OSError: path too long\nPYTHONPATH was:\n  /a\n'
            "Caused by: org.apache.spark.SparkException: \nError from python worker:",
            "OSError: path too long",
        ),
        (
            "x: org.apache.spark.SparkException: \nError from python worker:\n  python3: bad option\nPYTHONPATH was:",
            "python3: bad option",
        ),
        ("nothing known", None),
    ],
)
def test_the_innermost_failure_is_found(text: str, cause: str | None) -> None:
    assert cause_in(text) == cause


def test_an_error_without_a_cause_says_its_type_and_first_line() -> None:
    assert root_cause(RuntimeError("\n one \ntwo")) == "RuntimeError: one"
    assert root_cause(RuntimeError()) == "RuntimeError: no reason given"
    assert len(root_cause(RuntimeError("x" * 9999))) == LENGTH_MAX


LOST = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 1.0 (TID 6) (10.0.0.2 executor 5): {cause}

Driver stacktrace:
Caused by: java.io.EOFException
"""
DAEMON = """org.apache.spark.SparkException:
Error from python worker:
  /bin/python3: Error while finding module specification for 'lavant.pipeline.internals.daemon' \
(ModuleNotFoundError: No module named '{module}')
PYTHONPATH was:"""


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        (DAEMON.format(module="lavant"), "machine 10.0.0.2 (executor 5) has no Lavant: install the driver's version"),
        (
            DAEMON.format(module="lavant.pipeline.internals"),
            "machine 10.0.0.2 (executor 5) has another version of Lavant, without lavant.pipeline.internals: install",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory',
            "machine 10.0.0.2 (executor 5) has no /opt/python: install Python there at that path, name another one in",
        ),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
            "different version: 3.9 than that in driver: 3.11, PySpark cannot run with different minor versions.",
            "machine 10.0.0.2 (executor 5) has Python 3.9, the driver 3.11: install the same minor version there",
        ),
    ],
)
def test_what_an_executor_lacks_is_said_with_its_machine_and_the_remedy(cause: str, line: str) -> None:
    said = cause_in(LOST.format(cause=cause))
    assert said is not None
    assert said.startswith(line)
    assert said.endswith(", or ship it with `lavant spark pack` and --archive")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAVANT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(gateway, "_log", None)
    return gateway.log_file()


def test_a_failure_is_one_line_and_its_report_is_in_the_log(log: Path) -> None:
    with pytest.raises(FailedStream) as raised, failures_reported():
        raise RuntimeError("one\ntwo")
    assert str(raised.value) == f"RuntimeError: one; details: {log}"
    assert "Traceback" in log.read_text()
    assert "two" in log.read_text()


def test_a_foreseen_error_is_shown_as_it_is_unless_spark_caused_it(log: Path) -> None:
    error = InvalidValue("too long")
    assert reported(error) is error
    assert log.read_text() == ""
    error.__cause__ = RuntimeError("long story")
    assert str(reported(error)) == f"too long; details: {log}"
    assert type(reported(error)) is InvalidValue
    assert "long story" in log.read_text()


def test_logs_do_not_pile_up(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(gateway.LOGS_MAX + 5):
        (log.parent / f"spark-{number}.log").touch()
    monkeypatch.setattr(gateway, "_log", None)
    assert gateway.log_file().exists()
    assert len(list(log.parent.iterdir())) == gateway.LOGS_MAX


def test_a_log_goes_to_the_temporary_directory_where_there_is_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAVANT_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(gateway, "_log", None)
    assert gateway.log_file().parent == tmp_path
