"""What the functions of SQL refuse, in one line, and the way around it."""

from __future__ import annotations

from datetime import datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lavant.pipeline.tables import register


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (
            "* FROM lavant_match(TABLE(wrong_rows), 'timed')",
            "'at', a timestamp, which Spark passes .* cast it to string",
        ),
        ("* FROM lavant_match(TABLE(wrong_rows), '/nowhere')", r"holds no subscriptions: store\.json is missing"),
        (
            "* FROM lavant_match(TABLE(SELECT array(interval 1 year) past FROM wrong_rows), 'timed')",
            "column 'past' is of type interval year, which Spark does not pass .* cast it to string",
        ),
        ("* FROM lavant_match(TABLE(wrong_rows), 5)", "the second argument of lavant_match is a constant text"),
        (
            "* FROM lavant_match(TABLE(wrong_rows), 'timed', 'no')",
            "the argument explode of lavant_match is true or false",
        ),
        ("lavant_matches(n, struct(*)) FROM wrong_rows", "the first argument .* is a filter, a text, got int32"),
        ("lavant_matches('n >', struct(*)) FROM wrong_rows", "expected a value after '>'.*; the filter is 'n >'"),
        ("lavant_matches('n > 3', n) FROM wrong_rows", r"the second argument .* is a struct: struct\(\*\), got int32"),
        (
            "lavant_matches('n > 3', struct(array(n) n)) FROM wrong_rows",
            "filters compare column 'n', which is of type l",
        ),
    ],
)
def test_sql_says_in_one_line_what_is_wrong(shared_spark: SparkSession, asked: str, problem: str) -> None:
    register(shared_spark, {"timed": shared_spark.createDataFrame([(1, "at > '2026'")], "id int, filter string")})
    shared_spark.sql("SELECT timestamp'2026-01-02 03:04:05' at, 5 n").createOrReplaceTempView("wrong_rows")
    with pytest.raises(PySparkException, match=problem) as caught:
        shared_spark.sql(f"SELECT {asked}").collect()
    said = str(caught.value)
    assert "Traceback" not in said
    assert len([line for line in said.splitlines() if "lavant.core.errors" in line]) == 1


def test_a_timestamp_can_be_cast_in_the_query(shared_spark: SparkSession) -> None:
    register(shared_spark, {"timed": shared_spark.createDataFrame([(1, "at > '2026'")], "id int, filter string")})
    cast = "SELECT cast(timestamp'2026-01-02 03:04:05' AS string) at"
    found = shared_spark.sql(f"SELECT * FROM lavant_match(TABLE({cast}), 'timed')").collect()
    assert [row.subscriptions for row in found] == [[1]]
    register(shared_spark, {"there": shared_spark.createDataFrame([(1, "exists(at)")], "id int, filter string")})
    rows = "SELECT timestamp'2026-01-02 03:04:05' at UNION ALL SELECT NULL"
    found = shared_spark.sql(f"SELECT * FROM lavant_match(TABLE({rows}), 'there')").collect()
    assert [(row.at, row.subscriptions) for row in found] == [(datetime(2026, 1, 2, 3, 4, 5), [1])]
