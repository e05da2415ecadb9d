"""Keys for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lavant.service.keys import KeyEntry, KeyRing, entry_text
from lavant.service.sqs.credentials import Credential, CredentialRing, credential_text


def key_ring(directory: Path, *entries: KeyEntry) -> KeyRing:
    """Of a file that holds just these."""
    path = directory / "keys.toml"
    path.write_text("\n".join(map(entry_text, entries)))
    return KeyRing(path)


def credential_ring(directory: Path, *credentials: Credential | Mapping[str, str]) -> CredentialRing:
    """Of a file that holds just these; in a mapping, secrets by access key."""
    path = directory / "credentials"
    texts = []
    for each in credentials:
        if isinstance(each, Credential):
            texts.append(credential_text(each))
        else:
            texts += [
                f"[{key}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
                for key, secret in each.items()
            ]
    path.write_text("\n".join(texts))
    return CredentialRing(path)
