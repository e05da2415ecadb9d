"""API keys: the keys file, principals, and their revocation.

    [[keys]]
    name = "till-7"                               for logs and lists, not secret
    sha256 = "9f86d081884c7d65…"                  of the secret, which is stored nowhere
    scopes = ["publish"]                          publish, subscribe, admin; or broker alone, for links
    namespace = "shop"                            of its subscriptions and queues
    publications_per_s = 500                      rate limit; optional

    [[namespaces]]
    name = "shop"                                 quota of all its keys together, in all protocols
    queues_max = 100                              each is optional; default: none, or that of `lavant serve`
    bytes_max = 1_000_000_000
    subscriptions_max = 1000
    connections_max = 50
    streams_max = 20
    requests_per_s = 500

A secret is looked up by its SHA-256. The time of the lookup tells nothing about stored hashes: an attacker would have
to find inputs with chosen hashes. Secrets are long and random, so a slow hash, as for passwords, would add nothing.

`Ring` is the common base of the keys file and the file of SQS credentials: the principals, and their revocation when
the file is read again. `lavant.service.auth.authorization` decides what a principal may do.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from lavant.broker.protocol.registry import SCOPES
from lavant.broker.queues.accounting.quotas import Quota
from lavant.broker.subscriptions.validation import check_namespace
from lavant.core.errors import AccessDenied, InvalidValue
from lavant.service.auth.rate_limits import TokenBucket
from lavant.service.auth.tenants import ANYBODY as NO_TENANT
from lavant.service.auth.tenants import Tenant, Tenants

SECRET_PREFIX = "lavant_"
"""Identifies a secret to people and to secret scanners."""
SECRET_BYTES = 32
BROKER_SCOPE = "broker"
"""Opens links between brokers of a federation, and allows nothing else."""
KEY_SCOPES = (*SCOPES, BROKER_SCOPE)
KEYS_MAX = 10_000
FILE_BYTES_MAX = 8 << 20

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A key in the file."""

    name: str
    sha256: str
    scopes: list[str]
    namespace: str = ""
    publications_per_s: float | None = None

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise InvalidValue(
                f"a key's name consists of 1 to 80 letters, digits and any of _ - . (not {self.name[:90]!r})"
            )
        if _SHA256.fullmatch(self.sha256) is None:
            raise InvalidValue(f"sha256 of key {self.name!r} must be 64 hexadecimal digits in lower case")
        for scope in self.scopes:
            if scope not in KEY_SCOPES:
                raise InvalidValue(f"key {self.name!r} has scope {scope!r}; there are {', '.join(KEY_SCOPES)}")
        if not self.scopes:
            raise InvalidValue(f"key {self.name!r} has no scope; give it some of {', '.join(KEY_SCOPES)}")
        if BROKER_SCOPE in self.scopes and (len(self.scopes) > 1 or self.namespace or self.publications_per_s):
            raise InvalidValue(
                f"key {self.name!r} has the scope {BROKER_SCOPE}: such a key has no other scope, no namespace and no "
                "rate, since a broker speaks for clients of all namespaces; make another key for clients"
            )
        check_namespace(self.namespace)
        if self.publications_per_s is not None and not 0 < self.publications_per_s < float("inf"):
            raise InvalidValue(f"publications_per_s of key {self.name!r} must be positive")


class NamespaceEntry(Quota, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The quota of a namespace in the file."""

    name: str

    def __post_init__(self) -> None:
        check_namespace(self.name)
        try:
            super().__post_init__()
        except InvalidValue as error:
            raise InvalidValue(f"namespace {self.name!r}: {error}") from None


class Revocation:
    """Whether a principal is revoked, and callbacks for its long polls and streams, which end then."""

    __slots__ = ("_watchers", "is_revoked")

    def __init__(self) -> None:
        self.is_revoked = False
        self._watchers: dict[Callable[[], None], None] = {}

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back once, immediately if it is revoked already."""
        if self.is_revoked:
            callback()
        else:
            self._watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        self._watchers.pop(callback, None)

    def revoke(self) -> None:
        self.is_revoked = True
        watchers, self._watchers = self._watchers, {}
        for callback in watchers:
            callback()


class Principal(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An authenticated client; `ANYBODY` if the server requires no key."""

    name: str
    scopes: frozenset[str]
    namespace: str = ""
    bucket: TokenBucket | None = None
    """Shared by all clients with the same key."""
    digest: bytes = b""
    """SHA-256 of the key."""
    is_confined: bool = False
    """Is no operator, whatever its scopes: SQS clients, whose protocol has no namespaces."""
    tenant: Tenant = NO_TENANT
    """Shared by all keys of the namespace."""
    revocation: Revocation = msgspec.field(default_factory=Revocation)

    @property
    def is_operator(self) -> bool:
        """Whether it has access to all namespaces."""
        return not self.namespace and not self.is_confined and "admin" in self.scopes

    @property
    def is_broker(self) -> bool:
        """Whether it may open links, and do nothing else."""
        return self.scopes == {BROKER_SCOPE}

    @property
    def is_revoked(self) -> bool:
        return self.revocation.is_revoked


ANYBODY = Principal(name="anybody", scopes=frozenset(KEY_SCOPES))
"""For servers without keys: every client may do everything, and every broker may open links."""


class KeysFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[KeyEntry] = []
    namespaces: list[NamespaceEntry] = []


class Ring:
    """The principals of a file that can be read again. Without a file it is open to every client, or to none if
    `is_closed`."""

    def __init__(self, path: Path | None, *, is_closed: bool = False, tenants: Tenants | None = None) -> None:
        self.path = path
        self.tenants = Tenants() if tenants is None else tenants
        self._is_closed = is_closed
        self._principals: dict[bytes, Principal] = {}
        self.read()

    @property
    def is_open(self) -> bool:
        return self.path is None and not self._is_closed

    @property
    def is_closed(self) -> bool:
        return self.path is None and self._is_closed

    def __len__(self) -> int:
        return len(self._principals)

    def read(self) -> list[Principal]:
        """Read the file again; raises if that fails, and nothing has changed then.

        Returns the revoked principals: those that were removed, or whose rights changed. Their long polls and streams
        have ended when this returns.
        """
        if self.path is None:
            return []
        before = self._principals
        self._principals = {principal.digest: principal for principal in self._read(self.path)}
        revoked = [each for each in before.values() if self._principals.get(each.digest) is not each]
        for principal in revoked:
            principal.revocation.revoke()
        return revoked

    def knows(self, principal: Principal) -> bool:
        """Whether the principal is still valid."""
        return self.is_open or self._principals.get(principal.digest) is principal

    def _read(self, path: Path) -> Iterable[Principal]:
        """The principals of the file; unchanged ones are the same objects as before."""
        raise NotImplementedError


class KeyRing(Ring):
    """The keys of a file, for Lavant's own clients and those of the HTTP interface."""

    def __init__(self, path: Path | None = None, *, is_closed: bool = False, tenants: Tenants | None = None) -> None:
        super().__init__(path, is_closed=is_closed, tenants=tenants)

    def _read(self, path: Path) -> list[Principal]:
        before = {principal.name: principal for principal in self._principals.values()}
        file = read_keys_file(path)
        self.tenants.set_quotas({entry.name: entry for entry in file.namespaces})
        return [_principal(entry, before.get(entry.name), self.tenants.of(entry.namespace)) for entry in file.keys]

    def principal(self, secret: bytes) -> Principal:
        """The principal with this secret; raises if there is none."""
        if self.is_open:
            return ANYBODY
        if self.is_closed:
            raise AccessDenied("this server was started without --keys-file and takes signed SQS requests only")
        found = self._principals.get(hashlib.sha256(secret).digest())
        if found is None:
            said = "one that it does not know" if secret else "none"
            raise AccessDenied(f"this server wants a key, and got {said}; `lavant keys new` makes one")
        return found


def read_keys(path: Path) -> list[KeyEntry]:
    """All keys of a file."""
    return read_keys_file(path).keys


def read_keys_file(path: Path) -> KeysFile:
    """Read and validate a keys file."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise InvalidValue(f"the keys file {path} is larger than {FILE_BYTES_MAX} bytes")
        file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), KeysFile)
    except OSError as error:
        raise InvalidValue(f"cannot read the keys file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InvalidValue(f"the keys file {path} cannot be understood: {error}") from None
    for what, count in (("keys", len(file.keys)), ("namespaces", len(file.namespaces))):
        if count > KEYS_MAX:
            raise InvalidValue(f"the keys file {path} has {count} {what}, at most {KEYS_MAX} are allowed")
    _check_unique(path, "keys", "name", [entry.name for entry in file.keys])
    _check_unique(path, "keys", "sha256", [entry.sha256 for entry in file.keys])
    _check_unique(path, "namespaces", "name", [entry.name for entry in file.namespaces])
    return file


def new_secret() -> str:
    return SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def sha256_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def entry_text(entry: KeyEntry) -> str:
    """A key in TOML, to append to the file.

    >>> print(entry_text(KeyEntry(name="till-7", sha256="0" * 64, scopes=["publish"], namespace="shop")))
    [[keys]]
    name = "till-7"
    sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
    scopes = ["publish"]
    namespace = "shop"
    <BLANKLINE>
    """
    # Names, scopes and namespaces need no escapes, so their JSON is TOML too.
    lines = [
        f"{name} = {msgspec.json.format(msgspec.json.encode(value), indent=-1).decode()}\n"
        for name, value in msgspec.to_builtins(entry).items()
    ]
    return "[[keys]]\n" + "".join(lines)


def _principal(entry: KeyEntry, before: Principal | None, tenant: Tenant) -> Principal:
    """The same object as before if nothing changed; the bucket keeps its tokens."""
    bucket = None if before is None else before.bucket
    if entry.publications_per_s is None:
        bucket = None
    elif bucket is None or bucket.rate_per_s != entry.publications_per_s:
        bucket = TokenBucket(entry.publications_per_s)
    principal = Principal(
        name=entry.name,
        scopes=frozenset(entry.scopes),
        namespace=entry.namespace,
        bucket=bucket,
        digest=bytes.fromhex(entry.sha256),
        tenant=tenant,
    )
    return unless_changed(principal, before)


def unless_changed(principal: Principal, before: Principal | None) -> Principal:
    """The old object if it is equal."""
    if before is None or asdict(before) != asdict(replace(principal, revocation=before.revocation)):
        return principal
    return before


def _check_unique(path: Path, entries: str, what: str, values: list[str]) -> None:
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise InvalidValue(f"the keys file {path} has two {entries} with {what} {twice!r}; remove one")
