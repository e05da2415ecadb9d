"""A stand-in of the part of a Kubernetes API server that Lavant uses, on a loopback port.

It keeps Deployments with the owners of their field `spec.replicas`, and holds requests to what the real one does:

* a bearer token (401), and a Role of the manifests that allows the verb on the resource of that name (403);
* a Deployment that is there (404);
* server-side apply: the media type, a field manager, a body that names the same object (400, 415); a value that another
  manager owns and that would change is a conflict (409) unless forced, which takes the field over; one that is the same
  is owned by both.

It can be told to answer otherwise for a while, slowly, or not at all.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "a-token-of-the-service-account"
Rule = dict[str, list[str]]


class Deployment:
    def __init__(self, replicas: int = 1) -> None:
        self.replicas = replicas
        self.owners: set[str] = set()
        """Who set `spec.replicas`; nobody, if it is the default."""
        self.ready = replicas
        self.terminating: int | None = None
        self.conditions: list[dict[str, str]] = []
        self.generation = 1

    def update(self, manager: str, replicas: int) -> None:
        """As `kubectl scale`, which is no apply: who changes a value owns it alone."""
        if replicas != self.replicas:
            self.replicas, self.owners = replicas, {manager}
            self.generation += 1

    def apply(self, manager: str, replicas: int, *, force: bool) -> set[str]:
        """Whom it conflicts with; nothing is changed then."""
        others = self.owners - {manager}
        if replicas != self.replicas:
            if others and not force:
                return others
            self.replicas, self.owners = replicas, set()
            self.generation += 1
        self.owners.add(manager)
        return set()


class Cluster:
    def __init__(self, rules: Sequence[Rule], namespace: str = "lavant") -> None:
        self.namespace = namespace
        self.rules = rules
        self.deployments: dict[str, Deployment] = {}
        self.requests: list[tuple[str, str]] = []
        """Method and path, of all that came."""
        self.fault: tuple[int, dict[str, str], str] | None = None
        """Status, headers and reason of every answer, while it is set."""
        self.delay_s = 0.0
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                cluster.handle(self, "get")

            def do_PATCH(self) -> None:
                cluster.handle(self, "patch")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, request: BaseHTTPRequestHandler, verb: str) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        self.requests.append((verb, request.path))
        time.sleep(self.delay_s)
        if self.fault is not None:
            status, headers, reason = self.fault
            _answer(request, status, _status(status, reason), headers)
            return
        status, answer = self._answer(request, verb, body)
        _answer(request, status, answer, {})

    def _answer(self, request: BaseHTTPRequestHandler, verb: str, body: bytes) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(request.path)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, _status(401, "Unauthorized")
        prefix = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/"
        name, _, subresource = parts.path.removeprefix(prefix).partition("/")
        resource = "deployments/scale" if subresource == "scale" else "deployments"
        if not parts.path.startswith(prefix) or subresource not in {"", "scale"}:
            return 404, _status(404, "the server could not find the requested resource")
        if not any(
            verb in rule["verbs"] and resource in rule["resources"] and name in rule["resourceNames"]
            for rule in self.rules
            if "apps" in rule["apiGroups"]
        ):
            who = "system:serviceaccount:lavant:lavant-server"
            return 403, _status(403, f'{resource} "{name}" is forbidden: User "{who}" cannot {verb} resource')
        deployment = self.deployments.get(name)
        if deployment is None:
            return 404, _status(404, f'deployments.apps "{name}" not found')
        if verb == "get":
            return 200, _shown(name, deployment) if resource == "deployments" else _scale(name, deployment)
        return self._apply(request, name, deployment, parse_qs(parts.query), body)

    def _apply(
        self,
        request: BaseHTTPRequestHandler,
        name: str,
        deployment: Deployment,
        query: dict[str, list[str]],
        body: bytes,
    ) -> tuple[int, dict[str, Any]]:
        if request.headers.get("Content-Type") != "application/apply-patch+yaml":
            return 415, _status(415, "the body of the request was in an unknown format")
        if "fieldManager" not in query:
            return 400, _status(400, "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
        applied = json.loads(body)
        kind = (applied.get("apiVersion"), applied.get("kind"))
        if kind != ("autoscaling/v1", "Scale") or applied["metadata"] != {"name": name, "namespace": self.namespace}:
            return 400, _status(400, "the object provided does not match the one of the request")
        replicas = applied["spec"]["replicas"]
        if replicas < 0 or set(applied) != {"apiVersion", "kind", "metadata", "spec"}:
            return 422, _status(422, f"Scale {name!r} is invalid")
        conflicts = deployment.apply(query["fieldManager"][0], replicas, force=query.get("force") == ["true"])
        if conflicts:
            whom = ", ".join(f'conflict with "{each}"' for each in sorted(conflicts))
            return 409, _status(409, f"Apply failed with 1 conflict: {whom}: .spec.replicas")
        return 200, _scale(name, deployment)


def _shown(name: str, deployment: Deployment) -> dict[str, Any]:
    """Counts that are 0 are left out, as the real one does."""
    status = {
        "observedGeneration": deployment.generation,
        "replicas": deployment.replicas,
        "readyReplicas": deployment.ready,
        "terminatingReplicas": deployment.terminating,
        "conditions": deployment.conditions,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "generation": deployment.generation},
        "spec": {"replicas": deployment.replicas, "template": {}},
        "status": {field: value for field, value in status.items() if value},
    }


def _scale(name: str, deployment: Deployment) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": name},
        "spec": {"replicas": deployment.replicas},
        "status": {"replicas": deployment.ready, "selector": "app=lavant-worker"},
    }


def _status(code: int, message: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "code": code}


def _answer(request: BaseHTTPRequestHandler, status: int, answer: dict[str, Any], headers: dict[str, str]) -> None:
    data = json.dumps(answer).encode()
    try:
        request.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(data)
    except ConnectionError:
        pass  # whoever asked did not wait for it
