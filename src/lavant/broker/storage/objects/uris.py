"""URIs of storage: their parts, and how they are shown without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from lavant.core.errors import InvalidValue

_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://"
    r"(?:(?P<user>[^/?]*)@)?(?P<host>[^/?]*)(?P<path>/[^?]*)?(?:\?(?P<query>.*))?",
    re.DOTALL,
)
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_OF_A_URI = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/!$&'()*+,;=:@")
SHOWN = frozenset(
    {
        "scheme", "endpoint_override", "region", "allow_delayed_open", "allow_bucket_creation", "allow_bucket_deletion",
        "project_id", "retry_limit_seconds", "force_virtual_addressing",
    }
)  # fmt: skip
"""Parameters that are shown; the values of all others may be secrets."""
HIDDEN = "***"
_ANYWHERE_CHARACTERS_MIN = 8
_SECRET_CHARACTERS_MIN = 3


class StorageUri(NamedTuple):
    """The parts of a URI, with their escapes. `path` lacks its first slash."""

    scheme: str
    user: str
    host: str
    path: str
    query: str

    @property
    def text(self) -> str:
        """The whole URI, with all secrets."""
        return self._text(self.user, self.query)

    @property
    def shown(self) -> str:
        """The URI without secrets."""
        pairs = [(key, value if key in SHOWN else HIDDEN) for key, value in self._pairs()]
        shown = [(key, re.sub(r".*@", f"{HIDDEN}@", value)) for key, value in pairs]
        return self._text(HIDDEN if self._has_secret_user() else self.user, "&".join(f"{k}={v}" for k, v in shown))

    @property
    def parameters(self) -> dict[str, str]:
        return {key: decoded(value) for key, value in self._pairs()}

    def below(self, name: str) -> StorageUri:
        path = "/".join(part for part in (self.path.rstrip("/"), encoded(name)) if part)
        return self._replace(path=path)

    def with_parameter(self, parameter: str) -> StorageUri:
        return self._replace(query="&".join(filter(None, [self.query, parameter])))

    def without_secrets(self, text: str) -> str:
        """A message that may quote the URI, or parts of it, with its secrets hidden."""
        text = text.replace(self.text, self.shown)
        secrets = [value for key, value in self._pairs() if key not in SHOWN]
        users = [value.rpartition("@")[0] for _, value in self._pairs() if "@" in value]
        if self._has_secret_user():
            users.append(self.user)
        secrets += [part for user in users for part in (user, *user.split(":", 1))]
        return masked(text, {*secrets, *map(decoded, secrets)})

    def _pairs(self) -> list[tuple[str, str]]:
        pairs = [pair.partition("=") for pair in self.query.split("&") if pair]
        return [(key, value) for key, _, value in pairs]

    def _has_secret_user(self) -> bool:
        return ":" in self.user or (self.scheme == "s3" and bool(self.user))

    def _text(self, user: str, query: str) -> str:
        path = f"/{self.path}" if self.path else ""
        return f"{self.scheme}://{user + '@' if user else ''}{self.host}{path}{'?' + query if query else ''}"


def parse_uri(text: str) -> StorageUri:
    """Take a URI apart. Characters that a URI must encode may be given as they are, except `%` and `?`.

    >>> parse_uri("s3://bucket/my data?region=eu-west-1")
    StorageUri(scheme='s3', user='', host='bucket', path='my%20data', query='region=eu-west-1')
    >>> parse_uri("s3://KEY:SECRET@bucket/x").shown
    's3://***@bucket/x'
    """
    found = _URI.fullmatch(text)
    if found is None:
        scheme = text.partition(":")[0]
        raise InvalidValue(f"{scheme}:… is no URI of storage; write it as {scheme}://HOST-OR-BUCKET/PATH")
    path = (found["path"] or "").removeprefix("/")
    uri = StorageUri(
        found["scheme"].lower(), found["user"] or "", found["host"], encoded(path, keep="%"), found["query"] or ""
    )
    if uri.scheme in ("s3", "gs", "gcs") and not uri.host:
        raise InvalidValue(f"{uri.shown} names no bucket; write it as {uri.scheme}://BUCKET/PATH")
    if re.search(r"%(?![0-9A-Fa-f]{2})", uri.path):
        raise InvalidValue(f"{uri.shown}: a % in the path of a URI is written %25")
    return uri


def masked(text: str, secrets: Iterable[str]) -> str:
    """A message with secrets hidden: long ones wherever they are, short ones as whole words, because they are parts of
    other words by chance. One or two characters are no secret, and would leave holes in any sentence.

    >>> masked("no bucket: key cat of category c, token=0123456789x", ["c", "cat", "0123456789"])
    'no bucket: key *** of category c, token=***x'
    """
    for secret in sorted({*secrets}, key=len, reverse=True):
        if len(secret) >= _ANYWHERE_CHARACTERS_MIN:
            text = text.replace(secret, HIDDEN)
        elif len(secret) >= _SECRET_CHARACTERS_MIN:
            text = re.sub(rf"(?<![^\W_]){re.escape(secret)}(?![^\W_])", HIDDEN, text)
    return text


def encoded(text: str, keep: str = "") -> str:
    """Text with the characters that a URI's path cannot hold as escapes."""
    kept = _OF_A_URI | set(keep.encode())
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in text.encode())


def decoded(text: str) -> str:
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), text.encode()).decode(errors="replace")
