"""Spark sessions tuned for small, fast batches, with clear errors where none can start.

The settings come from measurements on two cores; `docs/pipeline.md` gives the effect of each. An empty untuned
micro-batch costs some 200 ms, a tuned one some 40 ms.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from pyspark.sql import SparkSession

from lavant.core.errors import InvalidValue, MissingComponent
from lavant.pipeline.internals.failures import reported
from lavant.pipeline.internals.gateway import log_broken_connections, start_java
from lavant.pipeline.internals.scala_classes import CHECKPOINT_FILE_MANAGER
from lavant.pipeline.packing import shipped

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
    # Executors on Kubernetes connect to spark.driver.host, not to the address on which the driver listens: behind NAT
    # that is 0.0.0.0.
    "spark.kubernetes.executor.useDriverPodIP": "false",
    "spark.log.level": "WARN",
    "spark.executor.syncLogLevel.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LEAN_PLANS = {
    # Of a batch, Spark's operators see a row for each task; Java's code for it takes longer to make than to run.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    # Blocks leave Java as Arrow has them by default, whatever the session's other queries have.
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.arrow.compression.codec": "none",
}
"""For a query with a short plan, which Spark makes anew for every micro-batch."""
JVM_OPTIONS = " ".join(
    [
        "-XX:+UseSerialGC",
        "-Djdk.lang.Process.launchMechanism=VFORK",
        # Java's optimising compiler takes half a core for minutes, for code whose time is in Python; and until it is
        # done, code that collects its statistics is slower than what the quick compiler makes without it.
        "-XX:TieredStopAtLevel=1",
    ]
)
LOOPBACK = "127.0.0.1"


def spark_session(
    master: str = "local[*]",
    name: str = "lavant",
    *,
    driver_host: str | None = None,
    archive: str | Path | None = None,
    **settings: str,
) -> SparkSession:
    """A session on `master`; further settings by their Spark names, with `_` for `.` where a name has no dot.

    `driver_host` is the address at which executors reach this machine; by default the one that it uses towards the
    master. `archive` is a file of `lavant spark pack`, for executors without Lavant.
    """
    check_java()
    check_master(master)
    given = {key if "." in key else key.replace("_", "."): value for key, value in settings.items()}
    check_settings(given)
    host = driver_address(master) if driver_host is None else driver_host
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", bind_address(host))
    chosen = {
        **SETTINGS,
        "spark.driver.bindAddress": bind_address(host),
        "spark.driver.host": host,
        "spark.driver.extraJavaOptions": f"{JVM_OPTIONS} -Dlog4j2.configurationFile=file:{LOGGING}",
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        **({} if archive is None else shipped(Path(archive), master, given.pop("spark.archives", ""))),
        **given,
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        start_java({"spark.master": master, "spark.app.name": name, **chosen})
        session = builder.getOrCreate()
        log_broken_connections(session.sparkContext)
        return session
    except Exception as error:
        raise MissingComponent(str(reported(error))) from None


@contextmanager
def lean_plans(spark: SparkSession) -> Iterator[None]:
    """A query that starts within it takes `LEAN_PLANS` along; the session has its own settings again afterwards."""
    before = {key: spark.conf.get(key, None) for key in LEAN_PLANS}
    for key, value in LEAN_PLANS.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)


def check_settings(settings: Mapping[str, str]) -> None:
    """Spark ignores settings whose names do not begin with `spark.`"""
    for key in settings:
        if not key.startswith("spark."):
            raise InvalidValue(
                f"Spark's settings begin with 'spark.', got {key!r}; write spark.hadoop.{key} for Hadoop's"
            )


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
    """Raise in one line if no session can start there; Spark itself would try for minutes, or fill the screen."""
    if re.fullmatch(r"local(\[([1-9]\d*|\*)(, *\d+)?\])?|local-cluster\[\d+, *\d+, *\d+\]", master):
        return
    if not (master == "yarn" or master.startswith(("spark://", "k8s://"))):
        raise InvalidValue(
            f"{master!r} is no Spark master; use local[*], local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
        )
    failures = []
    for host, port in _master_addresses(master):  # several are standbys for each other
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            failures.append(str(error))
        else:
            return
    if failures:
        raise MissingComponent(f"the Spark master {master} does not answer ({failures[0]}); is it running?")


def driver_address(master: str) -> str:
    """The address of this machine towards the master; nothing is sent. Loopback for local masters."""
    for host, port in _master_addresses(master):
        with contextlib.suppress(OSError):
            [(family, _, _, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return LOOPBACK


def bind_address(host: str) -> str:
    """The address to listen on: that of the host, or every one if it is not this machine's own, as behind NAT."""
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError:
        return "0.0.0.0"
    return host


def _master_addresses(master: str) -> list[tuple[str, int]]:
    """Where the master listens; empty for local ones, and for clusters of YARN that name no single address."""
    if master.startswith("spark://"):
        return [_address(each, master, "spark://HOST:PORT") for each in master.removeprefix("spark://").split(",")]
    if master.startswith("k8s://"):
        parts = urllib.parse.urlsplit(master.removeprefix("k8s://"))
        if not parts.netloc:
            parts = urllib.parse.urlsplit("https://" + master.removeprefix("k8s://"))
        netloc = parts.netloc if parts.netloc.rpartition("]")[2].count(":") else f"{parts.netloc}:443"
        return [_address(netloc, master, "k8s://https://HOST:PORT")]
    return _resource_manager() if master == "yarn" else []


def _address(text: str, master: str, form: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise MissingComponent(f"the master {master!r} is not of the form {form}")
    return host.strip("[]"), int(port)


def _resource_manager() -> list[tuple[str, int]]:
    """From the configuration of Hadoop, which Spark needs for YARN."""
    directory = os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")
    if not directory:
        raise MissingComponent(
            "the master yarn needs the configuration of your Hadoop cluster; name its directory in HADOOP_CONF_DIR"
        )
    path = Path(directory, "yarn-site.xml")
    try:
        properties = {
            each.findtext("name", "").strip(): each.findtext("value", "").strip()
            for each in ElementTree.parse(path).getroot().iter("property")
        }
    except (OSError, ElementTree.ParseError) as error:
        raise MissingComponent(
            f"the master yarn needs yarn-site.xml in HADOOP_CONF_DIR ({directory}), and it cannot be read: {error}"
        ) from None
    hostname = properties.get("yarn.resourcemanager.hostname", "")
    address = properties.get("yarn.resourcemanager.address", f"{hostname}:8032" if hostname else "")
    return [_address(address, "yarn", "HOST:PORT")] if address and "$" not in address else []
