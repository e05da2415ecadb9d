"""What browsers say of a page, and which pages are our own."""

from __future__ import annotations

from typing import Any

import pytest

from lavant.core.errors import InvalidValue
from lavant.service.auth.browser_guard import BrowserGuard, HostList
from lavant.service.auth.browser_guard.rules import ADMITTED_MAX, allowed_origin

GUARD = BrowserGuard(HostList(["queues.example", "*.many.example"]), ["https://app.example"])


def status(*headers: tuple[str, str], guard: BrowserGuard = GUARD, **scope: Any) -> int | None:
    given = {"type": "http", "method": "GET", "path": "/", "scheme": "http", "http_version": "1.1", **scope}
    refused = guard.refusal({**given, "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers]})
    return None if refused is None else refused.status


@pytest.mark.parametrize(
    ("origin", "host", "scheme", "is_own"),
    [
        ("http://queues.example", "queues.example", "http", True),
        ("http://queues.example", "queues.example:80", "http", True),
        ("http://queues.example:7324", "queues.example:7324", "http", True),
        ("http://[::1]:7324", "[::1]:7324", "http", True),
        ("https://queues.example", "queues.example", "http", True),  # behind a proxy that has TLS
        ("https://queues.example", "queues.example:443", "https", True),
        ("https://queues.example", "queues.example", "wss", True),
        ("http://queues.example", "queues.example", "https", False),
        ("http://queues.example", "queues.example", "wss", False),
        ("http://queues.example", "queues.example:7324", "http", False),
        ("http://127.0.0.1:7324", "localhost:7324", "http", False),
        ("http://localhost:8080", "localhost:7324", "http", False),
        ("chrome-extension://queues.example", "queues.example", "http", False),
        ("//queues.example", "queues.example", "http", False),
        ("http://queues.example@evil.example", "queues.example", "http", False),
        ("http://queues.example/", "queues.example", "http", False),
        ("null", "queues.example", "http", False),
        ("", "queues.example", "http", False),
        ("https://app.example", "queues.example", "http", True),
        ("http://app.example", "queues.example", "http", False),
        ("https://app.example:444", "queues.example", "http", False),
    ],
)
def test_a_page_is_our_own_if_it_comes_from_the_host_that_is_asked(
    origin: str, host: str, scheme: str, is_own: bool
) -> None:
    assert status(("host", host), ("origin", origin), scheme=scheme) == (None if is_own else 403)


def test_a_second_header_hides_nothing() -> None:
    host, own, evil = ("host", "queues.example"), ("origin", "http://queues.example"), ("origin", "http://evil.example")
    assert status(host, own) is None
    for headers in ([own, evil], [evil, own], [("origin", "https://app.example"), evil]):
        assert status(host, *headers) == 403
    assert status(host, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")) == 403
    for hosts in ([host, host], [host, ("host", "evil.example")], [("host", "evil.example"), host]):
        assert status(*hosts) == 400


def test_http_1_0_may_be_without_a_host_but_not_with_a_page() -> None:
    assert status(http_version="1.0") is None
    assert status(http_version="1.1") == 400
    assert status(("origin", "http://evil.example"), http_version="1.0") == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "new-site", "", "Same-Origin "])
def test_only_own_pages_and_the_user_ask(site: str) -> None:
    assert status(("host", "localhost"), ("sec-fetch-site", site)) == 403
    assert status(("host", "localhost"), ("sec-fetch-site", "same-origin")) is None
    assert status(("host", "localhost"), ("sec-fetch-site", "none")) is None


def test_the_short_way_is_open_to_what_was_admitted_before_and_is_no_page() -> None:
    guard = BrowserGuard(HostList(["*.many.example"]))
    known, other = {b"host": b"a.many.example"}, {b"host": b"evil.example"}
    assert not guard.is_plain(known)
    assert (status(("host", "a.many.example"), guard=guard), status(("host", "evil.example"), guard=guard)) == (
        None,
        421,
    )
    assert guard.is_plain(known)
    assert not guard.is_plain(other)
    assert not guard.is_plain({})
    for name in (b"origin", b"sec-fetch-site"):
        assert not guard.is_plain({**known, name: b"none"})


def test_what_is_remembered_is_bounded() -> None:
    guard = BrowserGuard(HostList(["*.many.example"]))
    for number in range(ADMITTED_MAX + 1):
        assert status(("host", f"a{number}.many.example"), guard=guard) is None
    assert not guard.is_plain({b"host": b"a0.many.example"})
    assert guard.is_plain({b"host": b"a%d.many.example" % ADMITTED_MAX})


@pytest.mark.parametrize("text", ["null", "*", "app.example", "https://", "https://app.example/", "https://a@b", ""])
def test_an_allowed_origin_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not like https"):
        BrowserGuard(origins=[text])


def test_an_allowed_origin_is_taken_as_browsers_write_it() -> None:
    assert allowed_origin("HTTP://Localhost:8080") == "http://localhost:8080"
    assert allowed_origin("http://localhost:80") == "http://localhost"
    assert allowed_origin("chrome-extension://abcdef") == "chrome-extension://abcdef"
