"""The rules that refuse requests of foreign web pages, and the ASGI middleware that applies them.

Browsers identify the page of a request: in `Origin`, unless it is a simple GET, and always in `Sec-Fetch-Site`. Pages
cannot change these headers. Other clients send neither, and pass. Refused values:

    Host                            not a name of the server (DNS rebinding)                              421
    Origin                          neither the requested host nor one of --allow-origin; `null`          403
    Sec-Fetch-Site                  `cross-site`, and `same-site`, which includes other ports; except     403
                                    links to `PAGES` that a user follows
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lavant.core.errors import InvalidValue
from lavant.service.auth.browser_guard.hosts import Authority, HostList, authority_of
from lavant.service.http.errors import PROBLEM, problem

PAGES = frozenset({"/", "/healthz", "/readyz", "/metrics", "/openapi.json"})
"""Allowed targets of links: they need no key and change nothing."""
ORIGINS_MAX = 100
ADMITTED_MAX = 1000
"""Cached values of `Host`; more exist only if a client makes them up."""
_METHODS = b"GET, POST, PUT, DELETE"
_PREFLIGHT_S = b"600"
"""How long a browser may cache a preflight."""
_OWN_SITES = frozenset({"same-origin", "none"})
_PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+")


class Refusal(NamedTuple):
    status: int
    code: str
    reason: str


class _Headers(NamedTuple):
    """The relevant headers, with repetitions."""

    host: list[str]
    origin: list[str]
    site: list[str]
    mode: list[str]
    dest: list[str]


_INDEXES = {b"host": 0, b"origin": 1, b"sec-fetch-site": 2, b"sec-fetch-mode": 3, b"sec-fetch-dest": 4}


class BrowserGuard:
    """`origins` are the allowed origins of foreign pages."""

    def __init__(self, hosts: HostList | None = None, origins: Iterable[str] = ()) -> None:
        self._hosts = HostList() if hosts is None else hosts
        self._origins = frozenset(map(allowed_origin, origins))
        if len(self._origins) > ORIGINS_MAX:
            raise InvalidValue(f"at most {ORIGINS_MAX} origins can be allowed, got {len(self._origins)}")
        self._admitted: set[bytes] = set()

    def is_plain(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request without repeated headers certainly passes; if not, ask `refusal`."""
        return headers.get(b"host") in self._admitted and b"origin" not in headers and b"sec-fetch-site" not in headers

    def refusal(self, scope: Scope) -> Refusal | None:
        """Why a request or WebSocket is refused; None if it is not."""
        given = _headers(scope)
        refused = self._check_host(given, scope)
        return self._check_page(given, scope) if refused is None else refused

    def allowed_origin(self, scope: Scope) -> str | None:
        """The origin of an allowed foreign page, if the request comes from one."""
        given = _headers(scope).origin if self._origins else []
        return given[0] if len(given) == 1 and given[0] in self._origins else None

    def _check_host(self, given: _Headers, scope: Scope) -> Refusal | None:
        if not given.host and scope.get("http_version") == "1.0":
            return None  # no browser: they all send it
        if len(given.host) != 1:
            return Refusal(400, "InvalidValue", f"a request has one Host header, got {len(given.host)}")
        [host] = given.host
        if host.encode("latin-1") in self._admitted:
            return None
        if host not in self._hosts:
            return Refusal(421, "MisdirectedRequest", self._unknown_host(host))
        if len(self._admitted) >= ADMITTED_MAX:
            self._admitted.clear()
        self._admitted.add(host.encode("latin-1"))
        return None

    def _unknown_host(self, host: str) -> str:
        asked = authority_of(host)
        wanted = "NAME" if asked is None else asked.host
        known = ", ".join(("localhost", "IP addresses", *self._hosts.names))
        return (
            f"the request is for the host {host[:80]!r}, and this server answers to {known}; "
            f"if it is to be reached by that name, start it with --public-host {wanted[:80]}"
        )

    def _check_page(self, given: _Headers, scope: Scope) -> Refusal | None:
        if len(given.origin) == 1 and given.origin[0] in self._origins:
            return None
        for origin in given.origin:
            if not _is_own(origin, given.host, is_tls=scope.get("scheme") in ("https", "wss")):
                return _foreign(f"a page of the origin {origin[:80]!r}", f"--allow-origin {origin[:80]}")
        for site in given.site:
            if site not in _OWN_SITES and not _is_link(given, scope):
                return _foreign(f"a page of another origin (Sec-Fetch-Site: {site[:40]})", "--allow-origin ORIGIN")
        return None


def allowed_origin(text: str) -> str:
    """An origin as browsers write it.

    >>> allowed_origin("https://App.Example:443")
    'https://app.example'
    """
    origin = text.lower()
    if _ORIGIN.fullmatch(origin) is None:
        raise InvalidValue(
            f"the allowed origin {text[:80]!r} is not like https://app.example or http://localhost:8080; give scheme, "
            "host and perhaps port, without a slash at the end"
        )
    scheme = origin.partition(":")[0]
    return origin.removesuffix(f":{_PORTS[scheme]}") if scheme in _PORTS else origin


def _is_own(origin: str, hosts: list[str], *, is_tls: bool) -> bool:
    """Whether the page is from the requested host and port. A server without TLS may be behind a proxy with TLS."""
    scheme, _, rest = origin.partition("://")
    if scheme not in _PORTS or (is_tls and scheme != "https"):
        return False
    page = _with_port(authority_of(rest), scheme)
    return page is not None and [page] == [_with_port(authority_of(host), scheme) for host in hosts]


def _with_port(authority: Authority | None, scheme: str) -> Authority | None:
    if authority is None or authority.port is not None:
        return authority
    return Authority(authority.host, _PORTS[scheme])


def _is_link(given: _Headers, scope: Scope) -> bool:
    """Whether a user follows a link to a harmless page."""
    is_followed = (scope.get("method"), given.mode, given.dest, given.origin) == ("GET", ["navigate"], ["document"], [])
    return is_followed and scope["path"] in PAGES


def _foreign(page: str, option: str) -> Refusal:
    return Refusal(403, "AccessDenied", f"{page} may not use this server; if it is to, start the server with {option}")


def _headers(scope: Scope) -> _Headers:
    found = _Headers([], [], [], [], [])
    for name, value in scope["headers"]:
        if name in _INDEXES:
            found[_INDEXES[name]].append(value.decode("latin-1"))
    return found


# ── middleware ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Guarded:
    """An application behind the guard."""

    def __init__(self, application: ASGIApp, guard: BrowserGuard) -> None:
        self.application = application
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._guard.refusal(scope)
        origin = self._guard.allowed_origin(scope) if refused is None and scope["type"] == "http" else None
        if refused is not None:
            await _refuse(refused, scope, send)
        elif origin is None:
            await self.application(scope, receive, send)
        elif _is_preflight(scope):
            await _start(send, "http.response", 204, [*_cors(origin), *_permissions(scope)], b"")
        else:
            await self.application(scope, receive, _with_cors(origin, send))


async def _refuse(refused: Refusal, scope: Scope, send: Send) -> None:
    """Refuse, and close the connection: its body, of any size, is not read."""
    body = problem(refused.status, refused.code, refused.reason, message=refused.reason)
    headers = [(b"content-type", PROBLEM.encode()), (b"connection", b"close")]
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    headers.append((b"content-length", str(len(body)).encode()))
    await _start(send, kind, refused.status, headers, b"" if scope.get("method") == "HEAD" else body)


async def _start(send: Send, kind: str, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


def _is_preflight(scope: Scope) -> bool:
    names = (name for name, _ in scope["headers"])
    return scope["method"] == "OPTIONS" and b"access-control-request-method" in names


def _cors(origin: str) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin.encode()), (b"vary", b"Origin")]


def _permissions(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Allow all headers that the page wants to send: its origin is trusted."""
    wanted = b", ".join(value for name, value in scope["headers"] if name == b"access-control-request-headers")
    headers = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _PREFLIGHT_S)]
    return [*headers, (b"access-control-allow-headers", wanted)] if wanted else headers


def _with_cors(origin: str, send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *_cors(origin)]}
        await send(message)

    return sending
