"""For each extra, something that only its packages make possible, and what that says."""

from __future__ import annotations

from typing import NamedTuple

from tests.integration.installs import ROOT, Installed

from lavant.core.errors import InvalidValue, MissingComponent
from lavant.core.packages import EXTRA_OF_PACKAGE

KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: secret}}]
"""
ACCESS = f"""
from pathlib import Path
from lavant.service.autoscaling.allocators.kubernetes_access import read_kubeconfig

Path("config").write_text('''{KUBECONFIG}''')
print(read_kubeconfig(Path("config")).url)
"""
SPANS = """
import os
from lavant import tracing

os.environ["OTEL_TRACES_EXPORTER"] = "otlp"
tracing.configure("shop")
print(tracing.is_on())
"""
STORAGE = "from lavant.broker.storage.objects import open_storage; print(open_storage({!r}))"


class Command(NamedTuple):
    """A command of `lavant`, what it prints, and its exit code."""

    words: tuple[str, ...]
    says: str
    code: int = 0

    def check(self, installed: Installed) -> None:
        assert self.says in installed.run(*self.words, code=self.code)


class Program(NamedTuple):
    """A program in Python, and what it prints."""

    text: str
    says: str

    def check(self, installed: Installed) -> None:
        assert self.says in installed.python(self.text)


WORKER = ("worker", str(ROOT / "tests" / "integration" / "tasks_for_workers.py"), "--backend", "amqp://127.0.0.1:1/")
NETWORK = str(ROOT / "examples" / "allocation-case-study.toml")
STREAM = ("stream", "--subscriptions", "s", "--input", "in", "--output", "nosuch://out")
USES: dict[str, Command | Program] = {
    "all": Program(f"import {', '.join(EXTRA_OF_PACKAGE)}; print('whole')", "whole"),
    "connect": Program(
        "from pyspark.sql.connect.session import SparkSession; import lavant.pipeline; print('ok')", "ok"
    ),
    "encryption": Command(("keygen", "key", "--attribute", "price:0:100:0.01"), "wrote key"),
    "hdfs": Program(STORAGE.format("hdfs://127.0.0.1:1/log"), "HdfsStorage('hdfs://127.0.0.1:1/log')"),
    "kubernetes": Program(ACCESS, "http://127.0.0.1:1"),
    "models": Command(("plan", NETWORK), "next bottleneck"),
    "opentelemetry": Program(SPANS, "True"),
    "rabbitmq": Command(WORKER, "RabbitMQ does not answer", MissingComponent.exit_code),
    "s3": Program(STORAGE.format("s3://bucket/log?region=eu-central-1"), "s3://bucket/log"),
    "server": Command(("serve", "--data", "/dev/null/data"), "/dev/null/data cannot be used", InvalidValue.exit_code),
    "spark": Command(STREAM, "nosuch://out", InvalidValue.exit_code),
    "zookeeper": Program("from kazoo.client import KazooClient; import lavant; print(KazooClient().state)", "LOST"),
}
