"""Spark sessions tuned for small, fast batches, with clear errors where none can start.

The settings come from measurements on two cores; `docs/pipeline.md` gives the effect of each. An empty untuned
micro-batch costs some 200 ms, a tuned one some 40 ms.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from lavant.core.errors import MissingComponent
from lavant.pipeline.internals.scala_classes import CHECKPOINT_FILE_MANAGER

JAVA_VERSION_MIN = 17
CONNECT_TIMEOUT_S = 3.0
LOGGING = Path(__file__).with_name("log4j2.properties")

SETTINGS = {
    # Checkpoints: plain files and renames instead of checksummed ones.
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILE_MANAGER,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # Plans of a few tasks gain nothing from adaptive execution.
    "spark.sql.adaptive.enabled": "false",
    "spark.locality.wait": "0s",
    # But a host's task waits for its own executor, where its slices are open.
    "spark.locality.wait.process": "10s",
    # Where an exit task runs is decided by the placement, not by where its input is.
    "spark.shuffle.reduceLocality.enabled": "false",
    # Ids do not compress, and on one machine a shuffle stays in memory anyway.
    "spark.shuffle.compress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Workers start with everything imported, and exclude it from garbage collection.
    "spark.python.daemon.module": "lavant.pipeline.internals.daemon",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
JVM_OPTIONS = f"-XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK -Dlog4j2.configurationFile=file:{LOGGING}"


def spark_session(master: str = "local[*]", name: str = "lavant", **settings: str) -> SparkSession:
    """A session on `master`; further settings by their Spark names with `_` for `.`."""
    check_java()
    check_master(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    chosen = {
        **SETTINGS,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def check_java() -> None:
    """Raise in one line unless the Java that Spark would start exists and is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise MissingComponent(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and there is no java {where}; install it"
        )
    tried = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    if tried.returncode:
        said = [line for line in (tried.stdout + tried.stderr).splitlines() if not line.startswith("Picked up ")]
        raise MissingComponent(f"{java} does not start: {said[0] if said else f'exit code {tried.returncode}'}")
    version = java_version(tried.stderr)
    if version is None or version < JAVA_VERSION_MIN:
        found = "an unknown version" if version is None else f"Java {version}"
        raise MissingComponent(f"Spark needs Java {JAVA_VERSION_MIN} or newer, {java} is {found}; install a newer one")


def java_version(shown: str) -> int | None:
    """The major version in the output of `java -version`: 17 for "17.0.15", 8 for "1.8.0_292"."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', shown)
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major


def check_master(master: str) -> None:
    """Raise in one line if a standalone master does not answer; Spark itself would try for minutes."""
    if not master.startswith("spark://"):
        return
    failures = []
    for address in master.removeprefix("spark://").split(","):  # several masters are standbys for each other
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise MissingComponent(f"the master {master!r} is not of the form spark://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            failures.append(str(error))
        else:
            return
    raise MissingComponent(f"the Spark master {master} does not answer ({failures[0]}); is it running?")
