"""Signatures of requests: AWS Signature Version 4, in the `Authorization` header or in a presigned URL's query.

    canonical request   method, path, query without the signature, signed headers, SHA-256 of the body
    string to sign      algorithm, time, scope, SHA-256 of the canonical request
    signature           HMAC-SHA256 of it, with a key made of the secret, the day, the region and the service

Any region is accepted, because a server stands for all of them. Everything that decides the effect of a request must be
signed: the host, the time, and the header that names the action.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from lavant.service.aws.http import HttpRequest
from lavant.service.aws.sqs import limits
from lavant.service.aws.sqs.errors import SqsError

_ALGORITHM = "AWS4-HMAC-SHA256"
_SERVICE = "sqs"
_TERMINATOR = "aws4_request"
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_QUERY_SIGNATURE = "X-Amz-Signature"
_MUST_BE_SIGNED = ("host", "x-amz-date", "x-amz-target")
_KEYS_MAX = 1000


class _Signed(NamedTuple):
    """The signer, headers, time and signature that a request claims."""

    credential: str
    signed_headers: str
    signature: str
    time: str
    expires_s: int | None = None
    """Of a presigned URL."""


class Claim(NamedTuple):
    """The signature in the head of a request, as far as it can be checked without the body."""

    access_key: str
    day: str
    region: str
    signed: _Signed
    headers: dict[str, str]
    pairs: list[tuple[str, str]]
    """Of the query."""


class SignatureChecker:
    """Accepts requests that were signed with one of the secrets."""

    def __init__(self, credentials: Mapping[str, str]) -> None:
        self._credentials = dict(credentials)
        self._keys: dict[tuple[str, str, str], bytes] = {}

    def claim(self, head: HttpRequest, now_s: float) -> Claim:
        """Returns the claimed signer of a request whose body has not arrived yet; raises if it cannot be true."""
        headers = _joined(head.all_headers)
        pairs = _query_pairs(head.query.decode("latin-1"))
        signed = _signed(headers, dict(pairs))
        access_key, day, region = _scope(signed)
        _check_time(signed, now_s)
        _check_headers(signed, headers)
        if access_key not in self._credentials:
            raise SqsError("InvalidClientTokenId", "The security token included in the request is invalid.")
        return Claim(access_key, day, region, signed, headers, pairs)

    def verify(self, request: HttpRequest, claim: Claim) -> None:
        """Checks the signature itself, now that the body is there; raises if the claim is not true."""
        signed = claim.signed
        secret = self._credentials.get(claim.access_key)
        if secret is None:
            raise SqsError("InvalidClientTokenId", "The security token included in the request is invalid.")
        canonical = _canonical(request, claim.headers, claim.pairs, signed.signed_headers)
        to_sign = "\n".join(
            (
                _ALGORITHM,
                signed.time,
                signed.credential.partition("/")[2],
                sha256(canonical.encode("latin-1")).hexdigest(),
            )
        )
        key = self._key(claim.access_key, secret, claim.day, claim.region)
        signature = hmac.digest(key, to_sign.encode("latin-1"), "sha256").hex()
        if not hmac.compare_digest(signature.encode(), signed.signature.encode()):
            raise _mismatch(
                "The request signature we calculated does not match the signature you provided. "
                "Check your AWS Secret Access Key and signing method."
            )

    def _key(self, access_key: str, secret: str, day: str, region: str) -> bytes:
        name = (access_key, day, region)
        key = self._keys.get(name)
        if key is None:
            key = f"AWS4{secret}".encode()
            for part in (day, region, _SERVICE, _TERMINATOR):
                key = hmac.digest(key, part.encode(), "sha256")
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            self._keys[name] = key
        return key


def _joined(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), b" ".join(raw_value.split()).decode("latin-1")
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _query_pairs(query: str) -> list[tuple[str, str]]:
    """Returns decoded names and values."""
    pairs = []
    for pair in query.split("&", limits.FORM_FIELDS_MAX):
        name, _, value = pair.partition("=")
        if name:
            pairs.append((_unquoted(name), _unquoted(value)))
    return pairs


def _unquoted(text: str) -> str:
    """Decodes a plus as a space, as the form parser does: the signed text must be the executed one."""
    return unquote_to_bytes(text.replace("+", " ")).decode("latin-1")


def _quoted(text: str) -> str:
    return quote(text.encode("latin-1"), safe="-_.~")


def _signed(headers: dict[str, str], query: dict[str, str]) -> _Signed:
    authorization = headers.get("authorization")
    if "X-Amz-Algorithm" in query:
        if authorization is not None:
            raise _mismatch("Found both 'X-Amz-Algorithm' in the query and an 'Authorization' header; sign once.")
        return _query_claim(query)
    if authorization is None:
        raise SqsError("MissingAuthenticationToken", "Request is missing Authentication Token")
    return _header_claim(authorization, headers)


def _header_claim(authorization: str, headers: dict[str, str]) -> _Signed:
    algorithm, _, rest = authorization.partition(" ")
    if algorithm != _ALGORITHM:
        raise _incomplete(f"Unsupported AWS 'algorithm': '{algorithm[:40]}'; sign with {_ALGORITHM}.")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    for name in ("Credential", "SignedHeaders", "Signature"):
        if not parts.get(name):
            raise _incomplete(f"Authorization header requires '{name}' parameter.")
    if "x-amz-date" not in headers:
        raise _incomplete("Authorization header requires existence of a 'X-Amz-Date' header.")
    return _Signed(parts["Credential"], parts["SignedHeaders"], parts["Signature"], headers["x-amz-date"])


def _query_claim(query: dict[str, str]) -> _Signed:
    for name in ("X-Amz-Credential", "X-Amz-SignedHeaders", _QUERY_SIGNATURE, "X-Amz-Date", "X-Amz-Expires"):
        if not query.get(name):
            raise _incomplete(f"AWS query-string parameters must include '{name}'.")
    if query["X-Amz-Algorithm"] != _ALGORITHM:
        raise _incomplete(f"Unsupported AWS 'algorithm': '{query['X-Amz-Algorithm'][:40]}'; sign with {_ALGORITHM}.")
    expires = query["X-Amz-Expires"]
    if not (expires.isascii() and expires.isdecimal()) or not 1 <= int(expires[:9]) <= limits.EXPIRES_S_MAX:
        raise _incomplete(f"X-Amz-Expires must be a number of seconds from 1 to {limits.EXPIRES_S_MAX}.")
    return _Signed(
        query["X-Amz-Credential"],
        query["X-Amz-SignedHeaders"],
        query[_QUERY_SIGNATURE],
        query["X-Amz-Date"],
        int(expires),
    )


def _scope(signed: _Signed) -> tuple[str, str, str]:
    """Returns access key, day and region of a credential."""
    parts = signed.credential.split("/")
    if len(parts) != 5 or parts[3] != _SERVICE or parts[4] != _TERMINATOR:
        raise _mismatch(
            f"Credential should be scoped to a valid region and the service '{_SERVICE}', "
            f"as in key/day/region/{_SERVICE}/{_TERMINATOR}."
        )
    if _TIME.fullmatch(signed.time) is None:
        raise _incomplete(f"Date must be in ISO-8601 'basic format'. Got '{signed.time[:40]}'.")
    if parts[1] != signed.time[:8]:
        raise _mismatch("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP.")
    return parts[0], parts[1], parts[2]


def _check_time(signed: _Signed, now_s: float) -> None:
    try:
        signed_s = _seconds(signed.time)
    except ValueError:
        raise _incomplete(f"Date must be in ISO-8601 'basic format'. Got '{signed.time[:40]}'.") from None
    if signed_s > now_s + limits.CLOCK_SKEW_S_MAX:
        raise SqsError(
            "RequestExpired", f"Signature not yet current: {signed.time} is still later than {_time(now_s)} + 15 min."
        )
    lasts_s = limits.CLOCK_SKEW_S_MAX if signed.expires_s is None else signed.expires_s
    if signed_s + lasts_s < now_s:
        raise SqsError(
            "RequestExpired", f"Signature expired: {signed.time} was good for {lasts_s} s and it is {_time(now_s)} now."
        )


def _seconds(time: str) -> float:
    """Parses a time such as 20261231T235959Z. `strptime` would take longer than the signature."""
    year, month, day = int(time[:4]), int(time[4:6]), int(time[6:8])
    return datetime(year, month, day, int(time[9:11]), int(time[11:13]), int(time[13:15]), tzinfo=UTC).timestamp()


def _time(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")


def _check_headers(signed: _Signed, headers: dict[str, str]) -> None:
    names = signed.signed_headers.split(";")
    for name in _MUST_BE_SIGNED:
        if name in headers and name not in names:
            raise _mismatch(f"'{name}' must be a 'SignedHeader' in the AWS Authorization.")
    for name in names:
        if name not in headers:
            raise _mismatch(f"The signed header '{name[:100]}' is not in the request.")


def _canonical(request: HttpRequest, headers: dict[str, str], pairs: list[tuple[str, str]], signed_headers: str) -> str:
    payload = sha256(request.body).hexdigest()  # the actual digest, whatever a header says
    query = sorted((_quoted(name), _quoted(value)) for name, value in pairs if name != _QUERY_SIGNATURE)
    return "\n".join(
        (
            request.method,
            _canonical_path(request.raw_path),
            "&".join(f"{name}={value}" for name, value in query),
            *(f"{name}:{headers[name]}" for name in signed_headers.split(";")),
            "",
            signed_headers,
            payload,
        )
    )


def _canonical_path(path: str) -> str:
    """Removes dots and doubled slashes, and encodes encoded characters once more."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    end = "/" if parts and path.endswith("/") else ""
    return quote("/" + "/".join(parts) + end, safe="/~")


def _mismatch(message: str) -> SqsError:
    return SqsError("SignatureDoesNotMatch", message)


def _incomplete(message: str) -> SqsError:
    return SqsError("IncompleteSignature", message)
