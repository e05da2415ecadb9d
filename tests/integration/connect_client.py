"""A client of Spark Connect in a process of its own, as classic sessions and those of Connect do not share one.

    python -m tests.integration.connect_client STORE NOTIFICATIONS DIRECTORY

It starts a Connect server, matches, reads and writes through the data sources, and prints what it found as lines of
JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from lavant.core.errors import InvalidValue
from lavant.pipeline.sources import register_sources
from lavant.pipeline.tables import indexes, match, register

EVENTS = [("q1", "YHOO", 18.37, 300001), ("q2", "IBM", 121.5, 4000), ("q3", "MSFT", float("nan"), 9000)]
ALERTS = {"a": "symbol = 'YHOO' and volume > 300000", "b": "symbol in ('IBM', 'YHOO') and price < 100"}
CONFIG = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}


def forget() -> None:
    """What tasks need must have been shipped: the client's own files go."""
    for key in list(indexes._indexes):
        for name in indexes._files(indexes._indexes.pop(key)):
            (indexes._directory() / name).unlink()


def found(rows: list[Any]) -> list[list[Any]]:
    return sorted([row.event, sorted(row.subscriptions), row.rejected is not None] for row in rows)


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except InvalidValue as error:
        return str(error)
    return "none"


def through_sources(spark: SparkSession, store: str, notifications: str, directory: str) -> dict[str, Any]:
    """A log is written, copied as a stream and read; notifications and subscriptions are read."""
    register_sources(spark)
    log, copy = f"{directory}/log", f"{directory}/copy"
    spark.range(20).selectExpr("id AS n").write.format("lavant_log").mode("append").save(log)
    rows = spark.readStream.format("lavant_log").load(log)
    sink = rows.writeStream.format("lavant_log").option("checkpointLocation", f"{directory}/checkpoint")
    sink.trigger(availableNow=True).start(copy).awaitTermination()
    copied = spark.read.format("lavant_log").option("rows", "columns").load(copy).collect()
    subscribed = spark.read.format("lavant_subscriptions").load(store).collect()
    notified = spark.read.format("lavant_notifications").load(notifications).collect()
    return {
        "copied": sorted(row.n for row in copied),
        "subscriptions": {row.id: row.filter for row in subscribed},
        "notifications": [[row.batch, row.key, row.id, row.subscriptions, row.rejected] for row in notified],
    }


def main(store: str, notifications: str, directory: str) -> None:
    builder = SparkSession.builder.remote("local[2]")
    for name, value in CONFIG.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    events = spark.createDataFrame(EVENTS, "event string, symbol string, price double, volume bigint")
    alerts = spark.createDataFrame(list(ALERTS.items()), "id string, filter string")
    alerts.createOrReplaceTempView("alerts")
    events.createOrReplaceTempView("events")
    plans = {"table": match(events, "alerts"), "store": match(events, store), "groups": match(events, alerts, groups=2)}
    forget()
    results: dict[str, Any] = {name: found(plan.collect()) for name, plan in plans.items()}
    register(spark, {"named": alerts})
    forget()
    results["sql"] = found(spark.sql("SELECT * FROM lavant_match(TABLE(events), 'named')").collect())
    filter = ALERTS["b"].replace("'", "''")
    query = f"SELECT event FROM events WHERE lavant_matches('{filter}', struct(*))"
    results["scalar"] = [row.event for row in spark.sql(query).collect()]
    results["stream"] = refusal(lambda: match(spark.readStream.format("rate").load(), store))
    wide = spark.createDataFrame([(1, "value > 1")], "id int, filter string")
    results["stream of a table"] = refusal(lambda: match(spark.readStream.format("rate").load(), wide))
    results["sources"] = through_sources(spark, store, notifications, directory)
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    main(*sys.argv[1:])
