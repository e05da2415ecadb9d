"""Signatures, made by an SDK's own signers."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.service.aws.sqs.talking import Script, request
from tests.unit.service.key_rings import credential_ring

from lavant.broker.protocol.queues import Listed
from lavant.service.aws.credentials import CredentialRing
from lavant.service.aws.http import HttpRequest
from lavant.service.aws.signature import SignatureChecker
from lavant.service.aws.sqs.app import SqsApp
from lavant.service.aws.sqs.errors import SqsError

KEYS = {"AKIDEXAMPLE": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "OTHER": "secret"}
GOOD = Credentials("AKIDEXAMPLE", KEYS["AKIDEXAMPLE"])
URL = "http://127.0.0.1:9324/000000000000/orders"
FORM = {"Action": "SendMessage", "MessageBody": "a b+c/é~", "Version": "2012-11-05"}


def signed(
    credentials: Credentials = GOOD,
    *,
    url: str = URL,
    body: bytes = b"",
    method: str = "POST",
    region: str = "eu-west-1",
    service: str = "sqs",
    headers: dict[str, str] | None = None,
) -> HttpRequest:
    """A request with a signature in its header."""
    sent = AWSRequest(method, url, headers=dict(headers if headers is not None else {}), data=body)
    SigV4Auth(credentials, service, region).add_auth(sent)
    return received(sent)


def presigned(expires_s: int = 60, credentials: Credentials = GOOD, **options: Any) -> HttpRequest:
    """A request with a signature in its URL."""
    sent = AWSRequest("GET", URL, params=FORM, **options)
    SigV4QueryAuth(credentials, "sqs", "eu-west-1", expires=expires_s).add_auth(sent)
    return received(sent)


def received(sent: AWSRequest) -> HttpRequest:
    """What a server sees of it."""
    prepared = sent.prepare()
    parts = urlsplit(prepared.url)
    headers = {name.lower().encode(): value for name, value in prepared.headers.items()}
    headers = {name: value if isinstance(value, bytes) else value.encode() for name, value in headers.items()}
    headers.setdefault(b"host", parts.netloc.encode())
    body = prepared.body if isinstance(prepared.body, bytes) else b""
    path = parts.path if parts.path else "/"
    return HttpRequest(prepared.method, path, path, parts.query.encode(), headers, list(headers.items()), body)


def with_header(http: HttpRequest, name: bytes, value: bytes) -> HttpRequest:
    headers = http.headers | {name: value}
    return http._replace(headers=headers, all_headers=list(headers.items()))


def without_header(http: HttpRequest, name: bytes) -> HttpRequest:
    headers = {key: value for key, value in http.headers.items() if key != name}
    return http._replace(headers=headers, all_headers=list(headers.items()))


def now_s(later_s: float = 0) -> float:
    return datetime.datetime.now(datetime.UTC).timestamp() + later_s


def check(checker: SignatureChecker, http: HttpRequest, at_s: float) -> str:
    """The access key that signed a request; the claim is checked without the body, as it is when that is arriving."""
    claim = checker.claim(http._replace(body=b""), at_s)
    checker.verify(http, claim)
    return claim.access_key


def fault(http: HttpRequest, later_s: float = 0, keys: dict[str, str] = KEYS) -> str:
    with pytest.raises(SqsError) as caught:
        check(SignatureChecker(keys), http, now_s(later_s))
    return caught.value.kind


def test_who_signed_is_known() -> None:
    checker = SignatureChecker(KEYS)
    for _ in range(2):  # the second time with a key that was kept
        assert check(checker, signed(body=b"{}"), now_s()) == "AKIDEXAMPLE"
        assert check(checker, signed(Credentials("OTHER", "secret")), now_s()) == "OTHER"
        assert check(checker, presigned(), now_s()) == "AKIDEXAMPLE"


def test_a_session_token_is_signed_along() -> None:
    temporary = Credentials("OTHER", "secret", token="session/token==")
    assert check(SignatureChecker(KEYS), signed(temporary), now_s()) == "OTHER"
    assert check(SignatureChecker(KEYS), presigned(credentials=temporary), now_s()) == "OTHER"


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1", "nowhere"])
def test_every_region_is_good(region: str) -> None:
    assert check(SignatureChecker(KEYS), signed(region=region), now_s())


@settings(max_examples=60)
@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=4),
    st.text("abz/.~%2 é", max_size=12),
    st.binary(max_size=20),
    st.text("aZ0 \t,;=é", max_size=10),
)
def test_whatever_is_signed_is_found_good(query: dict[str, str], path: str, body: bytes, header: str) -> None:
    url = f"http://127.0.0.1:9324/{quote(path)}?{urlencode(query, quote_via=quote)}"
    http = signed(url=url, body=body, headers={"X-Amz-Something": header})
    assert check(SignatureChecker(KEYS), http, now_s()) == "AKIDEXAMPLE"


def test_whoever_has_no_key_or_a_wrong_one_is_refused() -> None:
    assert fault(signed(Credentials("AKIDEXAMPLE", "wrong"))) == "SignatureDoesNotMatch"
    assert fault(signed(Credentials("NOBODY", "secret"))) == "InvalidClientTokenId"
    assert fault(presigned(credentials=Credentials("AKIDEXAMPLE", "wrong"))) == "SignatureDoesNotMatch"
    assert fault(without_header(signed(), b"authorization")) == "MissingAuthenticationToken"
    assert fault(signed(), keys={}) == "InvalidClientTokenId"


@pytest.mark.parametrize(
    "change",
    [
        lambda http: http._replace(body=b"{} "),
        lambda http: http._replace(method="PUT"),
        lambda http: http._replace(raw_path="/000000000000/others"),
        lambda http: http._replace(query=b"Action=PurgeQueue"),
        lambda http: with_header(http, b"host", b"elsewhere"),
        lambda http: with_header(http, b"x-amz-target", b"AmazonSQS.DeleteQueue"),
        lambda http: without_header(http, b"x-amz-target"),
        lambda http: with_header(http, b"authorization", http.headers[b"authorization"].replace(b"x-amz-target", b"x")),
        lambda http: with_header(http, b"authorization", http.headers[b"authorization"].replace(b";x-amz-target", b"")),
        lambda http: with_header(http, b"authorization", http.headers[b"authorization"].replace(b"host;", b"")),
        lambda http: with_header(http, b"authorization", http.headers[b"authorization"].replace(b"/sqs/", b"/s3/")),
        lambda http: with_header(
            http, b"authorization", http.headers[b"authorization"].replace(b"/eu-west-1/", b"/us-east-1/")
        ),
        lambda http: http._replace(all_headers=[*http.all_headers, (b"x-amz-target", b"AmazonSQS.DeleteQueue")]),
    ],
)
def test_a_request_that_was_changed_on_its_way_is_refused(change: Callable[[HttpRequest], HttpRequest]) -> None:
    http = signed(body=b"{}", headers={"X-Amz-Target": "AmazonSQS.ListQueues"})
    check(SignatureChecker(KEYS), http, now_s())
    assert fault(change(http)) == "SignatureDoesNotMatch"


def test_a_header_that_decides_what_is_done_must_be_signed() -> None:
    assert fault(with_header(signed(), b"x-amz-target", b"AmazonSQS.DeleteQueue")) == "SignatureDoesNotMatch"


def test_the_hash_of_the_body_may_be_in_a_header_and_must_be_right() -> None:
    body = b"hello"
    good = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    for digest, is_good in ((good, True), (good[::-1], False), ("UNSIGNED-PAYLOAD", False)):
        http = signed(body=body, headers={"X-Amz-Content-SHA256": digest})
        if is_good:
            assert check(SignatureChecker(KEYS), http, now_s())
        else:
            assert fault(http) == "SignatureDoesNotMatch"


def test_a_clock_may_be_fifteen_minutes_off() -> None:
    checker = SignatureChecker(KEYS)
    for later_s in (-890, 0, 890):
        assert check(checker, signed(), now_s(later_s))
    for later_s in (-910, 910, 1_000_000, -1_000_000):
        assert fault(signed(), later_s) == "RequestExpired"


def test_a_presigned_url_lasts_as_long_as_it_says() -> None:
    assert check(SignatureChecker(KEYS), presigned(3600), now_s(3590))
    assert fault(presigned(60), 70) == "RequestExpired"
    assert fault(presigned(60), -910) == "RequestExpired"
    assert fault(presigned(604_801)) == "IncompleteSignature"


@pytest.mark.parametrize(
    "authorization",
    [
        b"",
        b"Basic dXNlcjpwYXNz",
        b"AWS4-HMAC-SHA256",
        b"AWS4-HMAC-SHA256 Credential=a/b/c/sqs/aws4_request, SignedHeaders=host",
        b"AWS4-HMAC-SHA256 Credential=, SignedHeaders=host, Signature=x",
        b"AWS4-HMAC-SHA256 ,,,===,",
        b"\xff\xfe",
    ],
)
def test_a_signature_that_is_none_is_incomplete(authorization: bytes) -> None:
    assert fault(with_header(signed(), b"authorization", authorization)) == "IncompleteSignature"


@pytest.mark.parametrize("time", [b"", b"now", b"20260101", b"20261399T000000Z", b"2026-01-01T00:00:00Z"])
def test_a_time_that_is_none_is_incomplete(time: bytes) -> None:
    http = with_header(signed(), b"x-amz-date", time)
    authorization = http.headers[b"authorization"]
    day = authorization.split(b"/")[1]
    if time[:8] != day:
        http = with_header(http, b"authorization", authorization.replace(day, time[:8]))
    assert fault(http) == "IncompleteSignature"


class OfAnotherDay(SigV4Auth):  # type: ignore[misc]
    """Signs with the key of a day that is over: one that somebody got hold of, say."""

    def credential_scope(self, request: Any) -> str:
        return str(super().credential_scope(request)).replace(request.context["timestamp"][:8], "20150830")

    def scope(self, request: Any) -> str:
        return str(super().scope(request)).replace(request.context["timestamp"][:8], "20150830")

    def signature(self, string_to_sign: str, request: Any) -> str:
        today = request.context["timestamp"]
        request.context["timestamp"] = "20150830T000000Z"
        try:
            return str(super().signature(string_to_sign, request))
        finally:
            request.context["timestamp"] = today


def test_the_day_of_the_key_is_the_day_of_the_request() -> None:
    sent = AWSRequest("POST", URL)
    OfAnotherDay(GOOD, "sqs", "eu-west-1").add_auth(sent)
    with pytest.raises(SqsError, match="Date in Credential scope does not match"):
        check(SignatureChecker(KEYS), received(sent), now_s())


def test_a_request_is_signed_once() -> None:
    http = presigned()
    both = with_header(http, b"authorization", signed().headers[b"authorization"])
    assert fault(both) == "SignatureDoesNotMatch"


def test_a_signature_without_a_time_is_incomplete() -> None:
    assert fault(without_header(signed(), b"x-amz-date")) == "IncompleteSignature"


@pytest.mark.parametrize(
    "name", ["X-Amz-Credential", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Date", "X-Amz-Expires"]
)
def test_a_presigned_url_has_all_its_parts(name: str) -> None:
    http = presigned()
    rest = b"&".join(pair for pair in http.query.split(b"&") if not pair.startswith(name.encode() + b"="))
    assert fault(http._replace(query=rest)) == "IncompleteSignature"
    assert fault(http._replace(query=http.query.replace(b"X-Amz-Expires=60", b"X-Amz-Expires=x"))) == (
        "IncompleteSignature"
    )
    assert fault(http._replace(query=http.query.replace(b"AWS4-HMAC-SHA256", b"AWS2"))) == "IncompleteSignature"


def test_a_presigned_url_is_for_what_it_says_only() -> None:
    http = presigned()
    assert fault(http._replace(query=http.query.replace(b"SendMessage", b"PurgeQueue"))) == "SignatureDoesNotMatch"
    assert fault(http._replace(query=http.query + b"&DelaySeconds=5")) == "SignatureDoesNotMatch"
    assert fault(http._replace(body=b"Action=PurgeQueue")) == "SignatureDoesNotMatch"
    assert fault(http._replace(query=http.query.replace(b"%2B", b"+"))) == "SignatureDoesNotMatch"
    assert check(SignatureChecker(KEYS), http._replace(query=http.query.replace(b"%20", b"+")), now_s())


def test_only_so_many_keys_are_kept() -> None:
    checker = SignatureChecker(KEYS)
    for number in range(1100):
        check(checker, signed(region=f"region-{number}"), now_s())
    assert len(checker._keys) <= 1000


def test_the_application_lets_nobody_in_without_a_signature_if_it_has_keys(tmp_path: Path) -> None:
    body = b"Action=ListQueues"
    for credentials, status in (
        (credential_ring(tmp_path, KEYS), 403),
        (CredentialRing(is_closed=True), 403),
        (CredentialRing(), 200),
        (None, 200),
    ):
        hub = Script(Listed([]))
        response = asyncio.run(request(SqsApp(hub.execute, credentials=credentials), body=body))
        assert response.status == status
        assert (not hub.asked) == (status == 403)


def test_the_application_tells_a_wrong_signature_in_both_protocols(tmp_path: Path) -> None:
    wrong = Credentials("AKIDEXAMPLE", "wrong")
    for headers, body in (
        ({"X-Amz-Target": "AmazonSQS.ListQueues"}, b"{}"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, b"Action=ListQueues"),
    ):
        http = signed(wrong, url="http://queues.test/", body=body, headers=headers)
        app = SqsApp(Script().execute, credentials=credential_ring(tmp_path, KEYS))
        sent = {name.decode(): value.decode() for name, value in http.headers.items()}
        response = asyncio.run(request(app, headers=sent, body=body))
        assert (response.status, response.code) == (403, "SignatureDoesNotMatch")
        if "X-Amz-Target" in headers:
            assert response.json["__type"] == "com.amazon.coral.service#InvalidSignatureException"
