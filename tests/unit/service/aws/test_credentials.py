"""Credentials in a file: what it may say, and what a change of it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.service.key_rings import credential_ring

from lavant.broker.protocol.registry import SCOPES
from lavant.core.errors import InvalidValue
from lavant.service.aws.credentials import (
    ANY_CLIENT,
    Credential,
    CredentialRing,
    credential_text,
    new_credential,
    read_credentials,
)

TILL = Credential(name="till", access_key="TILL", secret="s3cr3t", scopes=("publish",), namespace="shop")
PAIR = "aws_access_key_id = A\naws_secret_access_key = s3cr3t\n"


def read(directory: Path, text: str) -> list[Credential]:
    file = directory / "credentials"
    file.write_text(text)
    return read_credentials(file)


def test_credentials_are_read_as_aws_writes_them(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "[default]\naws_access_key_id = AKIA1\naws_secret_access_key = a%b/c=\n\n"
        "[other]\naws_access_key_id=AKIA2\naws_secret_access_key=secret\nregion = eu-central-1\n",
    )
    assert {each.access_key: each.secret for each in found} == {"AKIA1": "a%b/c=", "AKIA2": "secret"}
    assert {(each.scopes, each.namespace) for each in found} == {(SCOPES, "")}


def test_a_credential_without_scopes_and_namespace_never_reaches_into_namespaces(tmp_path: Path) -> None:
    ring = credential_ring(tmp_path, {"A": "s"})
    [principal] = ring._principals.values()
    assert (principal.scopes, principal.namespace) == (frozenset(SCOPES), "")
    assert not principal.is_operator
    assert not ANY_CLIENT.is_operator


@pytest.mark.parametrize("listed", ["publish admin", "publish,admin", "publish, admin", "publish\n  admin"])
def test_scopes_are_a_list(tmp_path: Path, listed: str) -> None:
    [found] = read(tmp_path, f"[a]\n{PAIR}lavant_scopes = {listed}\nlavant_namespace = shop\n")
    assert (found.scopes, found.namespace) == (("publish", "admin"), "shop")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no profile"),
        ("no ini s3cr3t", "credentials"),
        ("[default]\naws_access_key_id = A\n", "aws_secret_access_key"),
        (f"[a]\n{PAIR}[a]\n{PAIR}", "credentials"),
        (f"[a]\n{PAIR}s3cr3t\n", "line 4"),
        (f"[a]\n{PAIR}lavant_scopes =\n", "no scope"),
        (f"[a]\n{PAIR}lavant_scopes = root\n", "'root'"),
        (f"[a]\n{PAIR}lavant_scope = publish\n", "lavant_scope'"),
        (f"[a]\n{PAIR}lavant-scopes = publish\n", "lavant-scopes"),
        (f"[a]\n{PAIR}Lavant_Namespaces = shop\n", "lavant_namespaces"),
        (f"[a]\n{PAIR}lavant_namespace = a/b\n", "namespace"),
        ("[a]\naws_access_key_id =\naws_secret_access_key = s3cr3t\n", "empty"),
        (f"[a]\n{PAIR}[b]\n{PAIR}lavant_namespace = shop\n", "'a' and 'b'"),
        ("[a]\naws_access_key_id = A\naws_secret_access_key = s3cr3t\n[b]\n" + PAIR.replace("t", "T"), "line|A|one"),
    ],
)
def test_a_file_with_a_mistake_is_refused_and_no_secret_told(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said) as refused:
        read(tmp_path, text)
    assert "s3cr3t" not in str(refused.value)


def test_one_key_in_two_profiles_that_say_the_same_is_one_credential(tmp_path: Path) -> None:
    assert [each.name for each in read(tmp_path, f"[a]\n{PAIR}[b]\n{PAIR}region = eu-west-1\n")] == ["a"]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="No such file"):
        read_credentials(tmp_path / "none")


def test_a_new_credential_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = new_credential("till", ["publish", "subscribe"], "shop")
    assert read(tmp_path, credential_text(made)) == [made]
    assert new_credential("till", ["publish"], "").secret != made.secret


@pytest.mark.parametrize(
    ("changed", "is_known"),
    [
        (TILL, True),
        (Credential(name="till", access_key="TILL", secret="other", scopes=("publish",), namespace="shop"), False),
        (Credential(name="till", access_key="NEW", secret="s3cr3t", scopes=("publish",), namespace="shop"), False),
        (Credential(name="till", access_key="TILL", secret="s3cr3t", scopes=("subscribe",), namespace="shop"), False),
        (Credential(name="till", access_key="TILL", secret="s3cr3t", scopes=("publish",), namespace="acme"), False),
    ],
)
def test_a_principal_is_known_as_long_as_its_credential_says_the_same(
    tmp_path: Path, changed: Credential, is_known: bool
) -> None:
    ring = credential_ring(tmp_path, TILL)
    [principal] = ring._principals.values()
    credential_ring(tmp_path, changed)
    revoked = ring.read()
    assert (ring.knows(principal), principal.is_revoked, revoked) == (
        is_known,
        not is_known,
        [] if is_known else [principal],
    )


def test_what_was_read_stays_when_the_file_is_of_no_use_any_more(tmp_path: Path) -> None:
    ring = credential_ring(tmp_path, TILL)
    [principal] = ring._principals.values()
    (tmp_path / "credentials").write_text("nonsense")
    with pytest.raises(InvalidValue):
        ring.read()
    assert ring.knows(principal)
    assert not principal.is_revoked


def test_a_ring_without_a_file_is_open_or_closed() -> None:
    assert (CredentialRing().is_open, CredentialRing().is_closed) == (True, False)
    closed = CredentialRing(is_closed=True)
    assert (closed.is_open, closed.is_closed, closed.knows(ANY_CLIENT)) == (False, True, False)
