"""The one line that says what went wrong, out of what Spark makes of it."""

from __future__ import annotations

import pytest

from lavant.pipeline.internals.failures import LENGTH_MAX, cause_in, root_cause

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
        (TASK.format(cause="pyarrow.lib.ArrowInvalid: odd"), "java.io.EOFException"),
        (
            "An error occurred\n: org.apache.spark.SparkException: x\nCaused by: java.io.IOException: full",
            "java.io.IOException: full",
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
