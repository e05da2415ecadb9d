"""A stand-in of a Kubernetes cluster for Spark's executors, on a loopback port.

Its API server takes pods and configuration maps, and holds them to Kubernetes' own schema. A pod becomes a process of
this machine, started as the image's entry point starts an executor, with the pod's environment. There are no images,
volumes, networks or limits.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

from lavant.pipeline.cluster.standalone import SPARK_HOME

KUBERNETES = "1.37"
"""The version whose schema counts."""


class PodCluster:
    """A running cluster. `url` is for `k8s://`."""

    def __init__(self, directory: Path) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.faults: list[str] = []
        """Why objects were refused."""
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_stopped = threading.Event()
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                cluster.get(self)

            def do_POST(self) -> None:
                cluster.post(self)

            def do_DELETE(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                answer(self, 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def get(self, request: BaseHTTPRequestHandler) -> None:
        """Lists of pods; of anything else there is nothing. A watch sees nothing new: Spark lists pods too."""
        if "upgrade" in request.headers:  # a watch through a web socket; the client then asks in plain HTTP
            answer(request, 503, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503})
            return
        address = urlsplit(request.path)
        if "watch" in parse_qs(address.query):
            request.send_response(200)
            request.send_header("content-type", "application/json")
            request.end_headers()
            self._is_stopped.wait()
            return
        items = list(self.pods.values()) if address.path.endswith("/pods") else []
        listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        answer(request, 200, listed)

    def post(self, request: BaseHTTPRequestHandler) -> None:
        given = json.loads(request.rfile.read(int(request.headers["content-length"])))
        try:
            kubernetes_validate.validate(given, KUBERNETES, strict=True)
        except kubernetes_validate.ValidationError as error:
            self.faults.append(str(error))
            answer(request, 422, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": str(error)})
            return
        made = {**given, "metadata": {**given["metadata"], "uid": f"u-{len(self.pods)}", "resourceVersion": "1"}}
        if given["kind"] == "Pod":
            name = given["metadata"]["name"]
            self.pods[name] = {**made, "status": {"phase": "Running", "podIP": "127.0.0.1"}}
            self._processes.append(self._run(name, given["spec"]["containers"]))
        answer(request, 201, made)

    def _run(self, name: str, containers: list[dict[str, Any]]) -> subprocess.Popen[bytes]:
        [container] = containers
        assert container["args"] == ["executor"]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": name}
        given = {
            each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in container["env"]
        }
        directory = self._directory / name
        directory.mkdir()
        options = [given[key] for key in sorted(given, key=option_number) if key.startswith("SPARK_JAVA_OPT_")]
        command = [
            "java", *options, f"-Xmx{given['SPARK_EXECUTOR_MEMORY']}", "-cp", f"{SPARK_HOME}/jars/*",
            "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
            "--driver-url", given["SPARK_DRIVER_URL"], "--executor-id", given["SPARK_EXECUTOR_ID"],
            "--cores", given["SPARK_EXECUTOR_CORES"], "--app-id", given["SPARK_APPLICATION_ID"],
            "--hostname", given["SPARK_EXECUTOR_POD_IP"], "--resourceProfileId", given["SPARK_RESOURCE_PROFILE_ID"],
            "--podName", given["SPARK_EXECUTOR_POD_NAME"],
        ]  # fmt: skip
        environment = {**os.environ, **given, "SPARK_LOCAL_DIRS": str(directory), "SPARK_HOME": str(SPARK_HOME)}
        with (directory / "log").open("wb") as log:
            return subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)

    def stop(self) -> None:
        self._is_stopped.set()
        self._server.shutdown()
        self._server.server_close()
        for process in self._processes:
            process.kill()
            process.wait()


def option_number(name: str) -> int:
    last = name.rpartition("_")[2]
    return int(last) if last.isdigit() else -1


def answer(request: BaseHTTPRequestHandler, status: int, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    request.send_response(status)
    request.send_header("content-type", "application/json")
    request.send_header("content-length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)


@contextmanager
def pod_cluster(directory: Path) -> Iterator[PodCluster]:
    running = PodCluster(directory)
    try:
        yield running
    finally:
        running.stop()
