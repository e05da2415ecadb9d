"""Scala classes that settings and commands name.

* `org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager`: checkpoints by plain
  renames, with which an empty batch takes 40 instead of 200 ms. The setting is not documented, and the package of the
  class changed in 4.1.
* `org.apache.spark.deploy.master.Master` and `org.apache.spark.deploy.worker.Worker`: a standalone cluster here.
  Spark's own scripts for it are not in PyPI's package.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

CHECKPOINT_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
STANDALONE_MASTER = "org.apache.spark.deploy.master.Master"
STANDALONE_WORKER = "org.apache.spark.deploy.worker.Worker"
