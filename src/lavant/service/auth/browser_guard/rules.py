"""Which requests are refused because of the page that they come from.

Browsers say which page asks: in `Origin`, if the request is no mere GET, and in `Sec-Fetch-Site`, always. Pages cannot
change these headers. Other clients send neither, and pass.

    Host                            not one of the server's names: another name was made to lead here     421
    Origin                          neither the host that is asked nor one of --allow-origin; `null`      403
    Sec-Fetch-Site                  `cross-site` and `same-site`, which another port is too; but for      403
                                    links that a user follows to a page of `PAGES`
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from starlette.types import Scope

from lavant.core.errors import InvalidValue
from lavant.service.auth.browser_guard.hosts import Authority, HostList, authority_of

PAGES = frozenset({"/", "/healthz", "/readyz", "/metrics", "/openapi.json"})
"""May be the target of links: they need no key and change nothing."""
ORIGINS_MAX = 100
ADMITTED_MAX = 1000
"""Different values of `Host` that are remembered; there are more only if somebody makes them up."""
_OWN_SITES = frozenset({"same-origin", "none"})
_PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+")


class Refusal(NamedTuple):
    status: int
    code: str
    reason: str


class _Headers(NamedTuple):
    """Those that matter here, each as often as it came."""

    host: list[str]
    origin: list[str]
    site: list[str]
    mode: list[str]
    dest: list[str]


_PLACES = {b"host": 0, b"origin": 1, b"sec-fetch-site": 2, b"sec-fetch-mode": 3, b"sec-fetch-dest": 4}


class BrowserGuard:
    """`origins` are those of pages that may use the server though they come from elsewhere."""

    def __init__(self, hosts: HostList | None = None, origins: Iterable[str] = ()) -> None:
        self._hosts = HostList() if hosts is None else hosts
        self._origins = frozenset(map(allowed_origin, origins))
        if len(self._origins) > ORIGINS_MAX:
            raise InvalidValue(f"at most {ORIGINS_MAX} origins can be allowed, got {len(self._origins)}")
        self._admitted: set[bytes] = set()

    def is_plain(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request, no header of which came twice, surely passes; whatever else it is, `refusal` says it."""
        return headers.get(b"host") in self._admitted and b"origin" not in headers and b"sec-fetch-site" not in headers

    def refusal(self, scope: Scope) -> Refusal | None:
        """Why a request, or a WebSocket, is refused."""
        given = _headers(scope)
        refused = self._check_host(given, scope)
        return self._check_page(given, scope) if refused is None else refused

    def allowed_origin(self, scope: Scope) -> str | None:
        """That of a page elsewhere that may use the server, if it is one that asks."""
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
    """Whether a page came from the very host and port that is asked. A server without TLS may be behind a proxy that
    has it."""
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
    """Whether a user follows a link, and to where that is harmless."""
    is_followed = (scope.get("method"), given.mode, given.dest, given.origin) == ("GET", ["navigate"], ["document"], [])
    return is_followed and scope["path"] in PAGES


def _foreign(page: str, option: str) -> Refusal:
    return Refusal(403, "AccessDenied", f"{page} may not use this server; if it is to, start the server with {option}")


def _headers(scope: Scope) -> _Headers:
    found = _Headers([], [], [], [], [])
    for name, value in scope["headers"]:
        if name in _PLACES:
            found[_PLACES[name]].append(value.decode("latin-1"))
    return found
