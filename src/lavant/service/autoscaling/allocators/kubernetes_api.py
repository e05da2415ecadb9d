"""The Kubernetes API as far as it is needed: reads a Deployment, and sets its number of replicas.

    GET   /apis/apps/v1/namespaces/NS/deployments/NAME
    PATCH /apis/apps/v1/namespaces/NS/deployments/NAME/scale?fieldManager=lavant

The second is a server-side apply of the one field `spec.replicas`, which makes Lavant its field manager. If a person or
another autoscaler sets it too, one of the two gets a conflict: nothing is overwritten silently.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from lavant.core.errors import UNDECODABLE, Unavailable
from lavant.service.autoscaling.allocators.kubernetes_access import ClusterAccess

FIELD_MANAGER = "lavant"
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 8 << 20
_PASSING = frozenset((408, 429, 500, 502, 503, 504))


class ApiFault(Unavailable):
    """A failed request. If it `is_passing`, a retry may succeed; other faults need an operator."""

    def __init__(self, reason: str, *, is_passing: bool, retry_after_s: float = 0.0) -> None:
        self.is_passing = is_passing
        self.retry_after_s = retry_after_s
        super().__init__(reason)

    def __reduce__(self) -> Any:
        return _fault, (str(self), self.is_passing, self.retry_after_s)


def _fault(reason: str, is_passing: bool, retry_after_s: float) -> ApiFault:
    return ApiFault(reason, is_passing=is_passing, retry_after_s=retry_after_s)


class Condition(msgspec.Struct, frozen=True):
    type: str
    status: str
    message: str = ""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    replicas: int = 0
    """Pods that are not terminating."""
    ready_replicas: int = 0
    terminating_replicas: int | None = None
    """Unknown in older clusters."""
    conditions: list[Condition] = []


class Spec(msgspec.Struct, frozen=True):
    replicas: int = 1


class Deployment(msgspec.Struct, frozen=True):
    spec: Spec
    status: Status = Status()

    @property
    def fault(self) -> str:
        """Why its pods cannot run; empty if they can."""
        for condition in self.status.conditions:
            if (condition.type, condition.status) in {("ReplicaFailure", "True"), ("Progressing", "False")}:
                return condition.message
        return ""


class _Reason(msgspec.Struct, frozen=True):
    """A `Status` of the API with the reason of an error."""

    message: str = ""


class KubernetesApi:
    """The API for one namespace. Requests block a thread, not the event loop; they are few."""

    def __init__(
        self, access: ClusterAccess, namespace: str = "", *, force: bool = False, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._access = access
        self.namespace = namespace if namespace else access.namespace
        self._force = force
        self._timeout_s = timeout_s

    async def deployment(self, name: str) -> Deployment:
        """Raises `ApiFault`."""
        data = await asyncio.to_thread(self._request, "GET", self._path(name), None)
        try:
            return msgspec.json.decode(data, type=Deployment)
        except UNDECODABLE as error:
            raise ApiFault(f"the cluster's answer about {name!r} is no Deployment: {error}", is_passing=False) from None

    async def scale(self, name: str, replicas: int) -> None:
        """Raises `ApiFault`."""
        force = {"force": "true"} if self._force else {}
        query = urlencode({"fieldManager": FIELD_MANAGER, **force})
        body = msgspec.json.encode(
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"replicas": replicas},
            }
        )
        await asyncio.to_thread(self._request, "PATCH", f"{self._path(name)}/scale?{query}", body)

    def _path(self, name: str) -> str:
        return f"/apis/apps/v1/namespaces/{quote(self.namespace, safe='')}/deployments/{quote(name, safe='')}"

    # ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _request(self, method: str, path: str, body: bytes | None) -> bytes:
        connection = self._connection()
        headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER}
        if body is not None:
            headers["Content-Type"] = "application/apply-patch+yaml"  # JSON is YAML
        bearer = self._access.bearer()
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        try:
            connection.request(method, urlsplit(self._access.url).path + path, body, headers)
            response = connection.getresponse()
            data = response.read(ANSWER_BYTES_MAX)
        except ssl.SSLCertVerificationError as error:
            raise self._unreachable(f"its certificate is not trusted: {error.verify_message}") from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(str(error) or type(error).__name__) from None
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise self._refused(method, path, response.status, response.headers.get("Retry-After", ""), data)
        return data

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._access.url)
        host = parts.hostname if parts.hostname is not None else ""
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, parts.port, timeout=self._timeout_s, context=self._access.context)
        return http.client.HTTPConnection(host, parts.port, timeout=self._timeout_s)

    def _unreachable(self, why: str) -> ApiFault:
        return ApiFault(f"the cluster does not answer at {self._access.url}: {why}", is_passing=True)

    def _refused(self, method: str, path: str, status: int, retry_after: str, data: bytes) -> ApiFault:
        try:
            said = msgspec.json.decode(data, type=_Reason).message
        except UNDECODABLE:
            said = data[:200].decode(errors="replace")
        return ApiFault(
            f"the cluster answers {method} {path.partition('?')[0]} with {status}: {said}{_HELP.get(status, '')}",
            is_passing=status in _PASSING,
            retry_after_s=float(retry_after) if retry_after.isdecimal() else 0.0,
        )


_HELP = {
    401: "; check the token of the service account",
    403: "; the role needs get on deployments, and patch on deployments/scale",
    404: "; apply its manifest, or set its name with deployment = …",
    409: "; another client sets the number of replicas too: remove it from that manifest, or set force = true to win",
}
