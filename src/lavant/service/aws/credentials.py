"""Credentials of SQS clients: a file like `~/.aws/credentials`, with scopes and a namespace for each profile.

    [till-7]
    aws_access_key_id = LAVANT5J2K…
    aws_secret_access_key = 9mX0…
    lavant_scopes = publish subscribe             default: all
    lavant_namespace = shop                       default: none

A server that checks signatures needs the secrets themselves: unlike keys, they cannot be stored as hashes. A credential
without a namespace reaches only queues outside of namespaces.
"""

from __future__ import annotations

import configparser
import hashlib
import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from lavant.broker.protocol.registry import SCOPES
from lavant.broker.subscriptions.validation import check_namespace
from lavant.core.errors import InvalidValue
from lavant.service.auth.keys import FILE_BYTES_MAX, KEYS_MAX, Principal, Ring, unless_changed
from lavant.service.auth.tenants import Tenant, Tenants
from lavant.service.aws.http import HttpRequest
from lavant.service.aws.signature import Claim, SignatureChecker
from lavant.service.aws.sqs.errors import SqsError

ANY_CLIENT = Principal(name="anybody", scopes=frozenset(SCOPES), is_confined=True)
"""Without credentials, every client may do everything outside of namespaces."""
OPTION_PREFIX = "lavant"
SCOPES_OPTION, NAMESPACE_OPTION = "lavant_scopes", "lavant_namespace"
ACCESS_KEY_BYTES, SECRET_BYTES = 10, 30


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """One profile of the file."""

    name: str
    access_key: str
    secret: str
    scopes: tuple[str, ...] = SCOPES
    namespace: str = ""

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable() or set(self.name) & set("[]"):
            raise InvalidValue(f"a profile's name is a line without [ and ] (not {self.name[:90]!r})")
        if not self.access_key or not self.secret:
            raise InvalidValue(f"profile {self.name!r} has an empty key; each needs both parts of its key")
        if not self.scopes:
            raise InvalidValue(f"profile {self.name!r} has no scope; give it some of {', '.join(SCOPES)}")
        for scope in self.scopes:
            if scope not in SCOPES:
                raise InvalidValue(f"profile {self.name!r} has scope {scope[:40]!r}; there are {', '.join(SCOPES)}")
        check_namespace(self.namespace)


class CredentialRing(Ring):
    """The credentials of a file."""

    _checker: SignatureChecker
    _by_access_key: dict[str, Principal]

    def __init__(self, path: Path | None = None, *, is_closed: bool = False, tenants: Tenants | None = None) -> None:
        super().__init__(path, is_closed=is_closed, tenants=tenants)

    def _read(self, path: Path) -> Iterable[Principal]:
        before = {principal.name: principal for principal in self._principals.values()}
        credentials = read_credentials(path)
        principals = [
            unless_changed(_principal(each, self.tenants.of(each.namespace)), before.get(each.name))
            for each in credentials
        ]
        self._by_access_key = {
            each.access_key: principal for each, principal in zip(credentials, principals, strict=True)
        }
        self._checker = SignatureChecker({each.access_key: each.secret for each in credentials})
        return principals

    def claim(self, head: HttpRequest, now_s: float) -> Claim | None:
        """Returns the claimed signer of a request whose body has not arrived yet; raises if the key is unknown.

        None without credentials.
        """
        if self.is_open:
            return None
        if self.is_closed:
            raise SqsError(
                "AccessDenied",
                "This server was started with --keys-file and without --credentials-file: SQS is closed.",
            )
        return self._checker.claim(head, now_s)

    def principal(self, request: HttpRequest, claim: Claim | None) -> Principal:
        """Returns the signer of a complete request; raises if the claim is not true."""
        if claim is None:
            return ANY_CLIENT
        self._checker.verify(request, claim)
        return self._by_access_key[claim.access_key]


def read_credentials(path: Path) -> list[Credential]:
    """Reads all profiles of a file. Several may have the same key if they agree."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise InvalidValue(f"the credentials file {path} is larger than {FILE_BYTES_MAX} bytes")
        parser.read_string(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InvalidValue(f"cannot read the credentials file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{path} is not like ~/.aws/credentials: byte {error.start} is no UTF-8") from None
    except configparser.Error as error:
        raise InvalidValue(f"{path} is not like ~/.aws/credentials: {_place(error)}") from None
    found: dict[str, Credential] = {}
    for name in parser.sections():
        credential = _credential(name, parser[name], path)
        other = found.setdefault(credential.access_key, credential)
        if msgspec.structs.replace(other, name=name) != credential:
            raise InvalidValue(f"profiles {other.name!r} and {name!r} in {path} have one access key; remove one")
    if not found:
        raise InvalidValue(f"{path} has no profile with a key; write [default], aws_access_key_id and its secret")
    if len(found) > KEYS_MAX:
        raise InvalidValue(f"the credentials file {path} has {len(found)} keys, at most {KEYS_MAX} are allowed")
    return list(found.values())


def new_credential(name: str, scopes: Iterable[str], namespace: str) -> Credential:
    """Generates a credential with a new key."""
    access_key = "LAVANT" + secrets.token_hex(ACCESS_KEY_BYTES).upper()
    return Credential(
        name=name,
        access_key=access_key,
        secret=secrets.token_urlsafe(SECRET_BYTES),
        scopes=tuple(scopes),
        namespace=namespace,
    )


def credential_text(credential: Credential) -> str:
    """Returns the text of a credential, to append to a file.

    >>> till = Credential(name="till", access_key="A", secret="s", scopes=("publish",), namespace="shop")
    >>> print(credential_text(till))
    [till]
    aws_access_key_id = A
    aws_secret_access_key = s
    lavant_scopes = publish
    lavant_namespace = shop
    <BLANKLINE>
    """
    namespace = f"{NAMESPACE_OPTION} = {credential.namespace}\n" if credential.namespace else ""
    return (
        f"[{credential.name}]\naws_access_key_id = {credential.access_key}\n"
        f"aws_secret_access_key = {credential.secret}\n{SCOPES_OPTION} = {' '.join(credential.scopes)}\n{namespace}"
    )


def _credential(name: str, section: configparser.SectionProxy, path: Path) -> Credential:
    for option in section:
        # A misspelt option must not mean that everything is allowed.
        if option.startswith(OPTION_PREFIX) and option not in (SCOPES_OPTION, NAMESPACE_OPTION):
            raise InvalidValue(
                f"profile {name!r} in {path} sets {option!r}; there are {SCOPES_OPTION} and {NAMESPACE_OPTION}"
            )
    try:
        access_key, secret = section["aws_access_key_id"], section["aws_secret_access_key"]
    except KeyError as error:
        raise InvalidValue(f"a profile in {path} has no {error}; each needs both parts of its key") from None
    listed = section.get(SCOPES_OPTION)
    scopes = SCOPES if listed is None else tuple(listed.replace(",", " ").split())
    return Credential(
        name=name,
        access_key=access_key,
        secret=secret,
        scopes=scopes,
        namespace=section.get(NAMESPACE_OPTION, ""),
    )


def _principal(credential: Credential, tenant: Tenant) -> Principal:
    return Principal(
        name=credential.name,
        scopes=frozenset(credential.scopes),
        namespace=credential.namespace,
        digest=hashlib.sha256(f"{credential.access_key}\0{credential.secret}".encode()).digest(),
        is_confined=True,
        tenant=tenant,
    )


def _place(error: configparser.Error) -> str:
    """Describes the problem without the line itself, which may hold a secret."""
    if isinstance(error, configparser.MissingSectionHeaderError):
        return "it does not begin with a [profile]"
    if isinstance(error, configparser.ParsingError):
        return f"line {', '.join(str(number) for number, _ in error.errors)} is no `name = value`"
    return f"{type(error).__name__} at line {getattr(error, 'lineno', 1)}"
