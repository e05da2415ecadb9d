"""The identity of a streaming query, as its tasks see it.

* `sql.streaming.queryId`, a property of the query's jobs: the identity in its checkpoint, which survives restarts and
  is a new one in a new checkpoint. A Python data source has no public way to learn which query it writes for.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

from pyspark import TaskContext

QUERY_ID = "sql.streaming.queryId"


def task_query_id() -> str | None:
    """Of the query that this task works for; None if Spark does not say."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(QUERY_ID)
