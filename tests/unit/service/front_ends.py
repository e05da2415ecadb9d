"""A server without network and disk that is asked through its real front ends: native, HTTP, WebSocket and SQS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from tests.unit.service.fake_connections import FakeConnection
from tests.unit.service.key_rings import credential_ring, key_ring
from tests.unit.service.wiring import FakeClient, FakeStore, Wiring, ready

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queues import Refused
from lavant.service.auth.audit import AuditLog
from lavant.service.auth.browser_guard import BrowserGuard, Guarded, HostList
from lavant.service.auth.keys import KeyEntry, KeyRing, sha256_of
from lavant.service.auth.tenants import Tenants
from lavant.service.aws.credentials import Credential, CredentialRing
from lavant.service.aws.sqs.app import SqsApp
from lavant.service.aws.sqs.settings import SqsSettings
from lavant.service.delivery.registry import Deliveries
from lavant.service.http.application import PATHS, api_application
from lavant.service.http.context import ApiContext
from lavant.service.net.connections import STATE
from lavant.service.net.http_dispatch import HttpApplication, Operations
from lavant.service.observability.counters import Meters
from lavant.service.runtime.limits import LIMITS, ServiceLimits

HOST = "queues.test"
ARN = "arn:aws:sqs:us-east-1:000000000000:"


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else {}

    @property
    def code(self) -> str:
        """What SDKs or clients of the HTTP interface act upon; empty if it went well."""
        if self.status < 400:
            return ""
        if "x-amzn-query-error" in self.headers:
            return self.headers["x-amzn-query-error"].partition(";")[0]
        return str(self.json["error"]["code"])


class Open(NamedTuple):
    """A request that is not answered yet, or a stream."""

    task: asyncio.Task[None]
    sent: list[dict[str, Any]]
    incoming: asyncio.Queue[dict[str, Any]]
    connection: FakeConnection

    def lose(self, kind: str = "http") -> None:
        """The client hangs up."""
        self.connection.lose()
        self.incoming.put_nowait({"type": f"{kind}.disconnect", "code": 1006})

    @property
    def content(self) -> bytes:
        return b"".join(each.get("body", b"") + each.get("text", "").encode() for each in self.sent)

    async def response(self) -> Response:
        async with asyncio.timeout(20):
            await self.task
        headers = {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}
        return Response(self.sent[0]["status"], headers, self.content)


async def _no_metrics() -> bytes:
    return b"# EOF\n"


class _EagerStore(FakeStore):
    """Commits as soon as somebody waits for it, unless it is held."""

    is_held = False

    def hurry(self, *, at_once: bool = False) -> None:
        if not self.is_held:
            asyncio.get_running_loop().call_soon(self.commit)


class FrontEnds:
    """`keys` and `credentials` are None where no file is given."""

    def __init__(
        self,
        directory: Path,
        keys: list[KeyEntry] | None = None,
        credentials: list[Credential] | None = None,
        limits: ServiceLimits = LIMITS,
        origins: tuple[str, ...] = (),
        quotas: Mapping[str, Mapping[str, float]] | None = None,
        tenants: Tenants | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.directory = directory
        self.tenants = Tenants() if tenants is None else tenants
        is_open = keys is None and credentials is None
        self.keys = (
            KeyRing(is_closed=not is_open)
            if keys is None
            else key_ring(directory, *keys, quotas=quotas, tenants=self.tenants)
        )
        self.credentials = (
            CredentialRing(is_closed=not is_open)
            if credentials is None
            else credential_ring(directory, *credentials, tenants=self.tenants)
        )
        self.store = _EagerStore()
        self.wiring = Wiring(limits, store=self.store, audit=audit)
        self.wiring.queues.usages.quotas = self.tenants.quotas
        self.service = self.wiring.service
        self.context = ApiContext(self.service, self.keys, Meters(), Deliveries(self.service))
        self.sqs_app = SqsApp(
            self.service.execute,
            SqsSettings(salt=b"salt"),
            credentials=self.credentials,
            unverified_bytes_max=limits.unverified_bytes_max,
            audit=audit,
        )
        self.api = api_application(self.context)
        application = HttpApplication(
            operations=Operations(health=lambda: None, readiness=lambda: None, metrics=_no_metrics),
            api=self.api,
            api_paths=PATHS,
            sqs=self.sqs_app,
            readiness=ready(),
        )
        self.application = Guarded(application, BrowserGuard(HostList([HOST]), origins))
        self._secrets = {each.name: each for each in ([] if credentials is None else credentials)}

    # ── native ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def client(self, key: str = "") -> FakeClient:
        return FakeClient(self.service, self.keys).greet(key.encode())

    async def native(self, key: str, request: Request) -> Answer:
        """Over a connection of its own; the refusal of the greeting if it is not let in."""
        client = self.client(key)
        client.ask((1, request))
        answers: dict[int, Answer] = {}
        async with asyncio.timeout(20):
            while 1 not in answers and not client.transport.is_closed:
                await asyncio.sleep(0)
                answers |= client.answers()
        answers |= client.answers()
        if not client.transport.is_closed:
            client.protocol.connection_lost(None)
        return answers[1] if 1 in answers else answers[0]

    # ── HTTP and SQS ──────────────────────────────────────────────────────────────────────────────────────────────────

    def open(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        kind: str = "http",
        connection: FakeConnection | None = None,
    ) -> Open:
        sent: list[dict[str, Any]] = []
        incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        if kind == "websocket":
            incoming.put_nowait({"type": "websocket.connect"})
        else:
            incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})

        below = FakeConnection() if connection is None else connection

        async def send(message: Any) -> None:
            if below.is_lost:
                return
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                below.handed_over()

        bare, _, query = path.partition("?")
        all_headers = {"host": HOST} | {name.lower(): value for name, value in headers.items()}
        scope = {
            "type": kind,
            "method": method,
            "scheme": "http",
            "path": bare,
            "raw_path": bare.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()],
            "client": ("192.0.2.7", 4711),
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
            "state": {STATE: below},
        }
        if kind == "websocket":
            del scope["method"]
        task = asyncio.ensure_future(self.application(scope, incoming.get, send))
        return Open(task, sent, incoming, below)

    def open_http(self, key: str, method: str, path: str, body: Any = None, *, kind: str = "http") -> Open:
        headers = {"accept": "text/event-stream"} | ({"authorization": f"Bearer {key}"} if key else {})
        if body is not None:
            headers["content-type"] = "application/json"
        return self.open(method, path, headers, b"" if body is None else json.dumps(body).encode(), kind=kind)

    async def http(self, key: str, method: str, path: str, body: Any = None) -> Response:
        return await self.open_http(key, method, path, body).response()

    def open_sqs(self, name: str, action: str, /, **members: Any) -> Open:
        """Signed with the credential of that name; with a wrong secret if there is none, not at all if it is empty."""
        body = json.dumps(members).encode()
        return self.open("POST", "/", self.sqs_headers(name, action, body), body)

    def sqs_headers(self, name: str, action: str, body: bytes) -> dict[str, str]:
        headers = {"x-amz-target": f"AmazonSQS.{action}", "content-type": "application/x-amz-json-1.0"}
        if name:
            known = self._secrets.get(name)
            pair = Credentials("NOBODY", "wrong") if known is None else Credentials(known.access_key, known.secret)
            request = AWSRequest("POST", f"http://{HOST}/", headers, body)
            SigV4Auth(pair, "sqs", "us-east-1").add_auth(request)
            headers = dict(request.headers.items())
        return headers

    async def sqs(self, name: str, action: str, /, **members: Any) -> Response:
        return await self.open_sqs(name, action, **members).response()

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def write_keys(self, *entries: KeyEntry, quotas: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """What the next `reload` finds."""
        key_ring(self.directory, *entries, quotas=quotas)

    def write_credentials(self, *credentials: Credential) -> None:
        credential_ring(self.directory, *credentials)

    def reload(self) -> None:
        """As at SIGHUP."""
        self.keys.read()
        self.credentials.read()
        for connection in list(self.service.connections):
            connection.keys_changed()


def key(name: str, *scopes: str, namespace: str = "") -> KeyEntry:
    """Its secret is its name."""
    return KeyEntry(name=name, sha256=sha256_of(name), scopes=list(scopes), namespace=namespace)


def credential(name: str, *scopes: str, namespace: str = "") -> Credential:
    return Credential(name=name, access_key=name.upper(), secret=f"{name}-s3cr3t", scopes=scopes, namespace=namespace)


def denied(answer: object) -> bool:
    """Whether the door did not open."""
    if isinstance(answer, Response):
        return answer.status in (401, 403)
    return isinstance(answer, Refused) and answer.code == "AccessDenied"
