"""Keys in a file: what it may say, and what a change of it does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.key_rings import key_ring
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.core.errors import AccessDenied, InvalidValue
from lavant.service.auth.keys import ANYBODY, KeyEntry, KeyRing, new_secret, read_keys, sha256_of
from lavant.service.aws.credentials import read_credentials

TILL = KeyEntry(name="till", sha256=sha256_of("till"), scopes=["publish"], namespace="shop", publications_per_s=2)


def test_without_a_file_anybody_may_do_everything() -> None:
    assert KeyRing().principal(b"") is ANYBODY
    assert KeyRing().knows(ANYBODY)


def test_a_key_is_found_by_its_secret_alone(tmp_path: Path) -> None:
    ring = key_ring(tmp_path, TILL)
    assert (ring.principal(b"till").name, ring.principal(b"till").namespace) == ("till", "shop")
    for wrong in (b"", b"Till", b"till ", TILL.sha256.encode(), bytes.fromhex(TILL.sha256)):
        with pytest.raises(AccessDenied):
            ring.principal(wrong)


def test_no_error_tells_a_secret(tmp_path: Path) -> None:
    with pytest.raises(AccessDenied) as denied:
        key_ring(tmp_path, TILL).principal(b"almost-right")
    assert "almost-right" not in str(denied.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("keys = 1", "keys"),
        ("[[keys]", "cannot be understood"),
        ("[[keys]]\nname = 'a'\nscopes = ['publish']", "sha256"),
        (f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 63}'\nscopes = ['publish']", "64 hexadecimal"),
        (f"[[keys]]\nname = 'a b'\nsha256 = '{'0' * 64}'\nscopes = ['publish']", "name"),
        (f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = ['root']", "'root'"),
        (f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = []", "no scope"),
        (f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = ['admin']\nnamespace = 'a/b'", "namespace"),
        (f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = ['admin']\nsecret = 'x'", "secret"),
        (f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = ['admin']\npublications_per_s = 0", "positive"),
        (2 * f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = ['admin']\n", "two keys"),
        ("".join(f"[[keys]]\nname = '{n}'\nsha256 = '{'0' * 64}'\nscopes = ['admin']\n" for n in "ab"), "two keys"),
    ],
)
def test_a_file_with_a_mistake_is_refused_and_the_mistake_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(InvalidValue, match=said):
        KeyRing(path)


def test_what_was_read_stays_when_the_file_is_of_no_use_any_more(tmp_path: Path) -> None:
    ring = key_ring(tmp_path, TILL)
    (tmp_path / "keys.toml").write_text("nonsense")
    with pytest.raises(InvalidValue):
        ring.read()
    assert ring.principal(b"till").name == "till"


@pytest.mark.parametrize(
    ("changed", "is_known"),
    [
        ({}, True),
        ({"scopes": ["publish", "admin"]}, False),
        ({"namespace": "other"}, False),
        ({"sha256": sha256_of("new")}, False),
        ({"publications_per_s": 3.0}, False),
        ({"name": "renamed"}, False),
    ],
)
def test_a_principal_is_known_as_long_as_its_key_says_the_same(
    tmp_path: Path, changed: dict[str, object], is_known: bool
) -> None:
    ring = key_ring(tmp_path, TILL)
    principal = ring.principal(b"till")
    entry = {"name": TILL.name, "sha256": TILL.sha256, "scopes": TILL.scopes, "namespace": "shop"}
    key_ring(tmp_path, KeyEntry(**{**entry, "publications_per_s": 2, **changed}))  # type: ignore[arg-type]
    ring.read()
    assert ring.knows(principal) is is_known


def test_reading_the_file_again_fills_no_bucket(tmp_path: Path) -> None:
    ring = key_ring(tmp_path, TILL)
    bucket = ring.principal(b"till").bucket
    assert bucket is not None
    assert bucket.take(2, 1000.0) == 0
    ring.read()
    again = ring.principal(b"till").bucket
    assert again is not None
    assert again.take(1, 1000.0) > 0


def test_the_command_prints_a_secret_once_and_writes_only_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    run = CliRunner().invoke
    made = [
        run(commands, ["keys", "new", name, "--file", str(path), "--scope", "publish", "--namespace", "shop"])
        for name in ("one", "two")
    ]
    assert [each.exit_code for each in made] == [0, 0], made
    secrets = [each.stdout.strip() for each in made]
    assert len(set(secrets)) == 2
    assert not any(secret in path.read_text() for secret in secrets)
    assert os.stat(path).st_mode & 0o077 == 0
    ring = KeyRing(path)
    assert [ring.principal(secret.encode()).name for secret in secrets] == ["one", "two"]
    again = run(commands, ["keys", "new", "one", "--file", str(path), "--scope", "publish"])
    assert isinstance(again.exception, InvalidValue)
    listed = run(commands, ["keys", "ls", "--file", str(path)]).stdout
    assert "one" in listed
    assert not any(secret in listed for secret in secrets)
    assert len(read_keys(path)) == 2


def test_secrets_are_long_and_never_the_same() -> None:
    assert len({new_secret() for _ in range(100)}) == 100
    assert len(new_secret()) > 40


def test_the_command_makes_credentials_for_sqs(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    run = CliRunner().invoke
    new = ["keys", "new", "till", "--sqs", "--file", str(path), "--scope", "publish", "--namespace", "shop"]
    made = run(commands, new)
    assert made.exit_code == 0, made
    assert os.stat(path).st_mode & 0o077 == 0
    [credential] = read_credentials(path)
    assert (credential.name, credential.scopes, credential.namespace) == ("till", ("publish",), "shop")
    assert made.stdout == (
        f"aws_access_key_id = {credential.access_key}\naws_secret_access_key = {credential.secret}\n"
    )
    assert isinstance(run(commands, new).exception, InvalidValue), "the name is taken"
    assert isinstance(run(commands, [*new, "--publications-per-s", "5"]).exception, InvalidValue)
    assert run(commands, ["keys", "new", "two", *new[3:]]).exit_code == 0
    listed = run(commands, ["keys", "ls", "--sqs", "--file", str(path)]).stdout
    assert credential.access_key in listed
    assert credential.secret not in listed
    assert len(read_credentials(path)) == 2


def test_a_closed_ring_lets_nobody_in() -> None:
    ring = KeyRing(is_closed=True)
    assert not ring.is_open
    assert not ring.knows(ANYBODY)
    for secret in (b"", b"x"):
        with pytest.raises(AccessDenied, match="--keys-file"):
            ring.principal(secret)


@pytest.mark.parametrize(
    "more", [{"scopes": ["broker", "publish"]}, {"namespace": "shop"}, {"publications_per_s": 5.0}], ids=str
)
def test_a_key_for_links_is_for_nothing_else(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="make another key for clients"):
        KeyEntry(**{"name": "b2", "sha256": "0" * 64, "scopes": ["broker"], **more})
