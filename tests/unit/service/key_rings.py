"""Keys for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lavant.service.auth.keys import KeyEntry, KeyRing, entry_text
from lavant.service.auth.tenants import Tenants
from lavant.service.aws.credentials import Credential, CredentialRing, credential_text


def key_ring(
    directory: Path,
    *entries: KeyEntry,
    quotas: Mapping[str, Mapping[str, float]] | None = None,
    tenants: Tenants | None = None,
) -> KeyRing:
    """Of a file that holds just these, and quotas by namespace."""
    path = directory / "keys.toml"
    texts = list(map(entry_text, entries))
    for namespace, quota in ({} if quotas is None else quotas).items():
        texts.append(f'[[namespaces]]\nname = "{namespace}"\n' + "".join(f"{k} = {v}\n" for k, v in quota.items()))
    path.write_text("\n".join(texts))
    return KeyRing(path, tenants=tenants)


def credential_ring(
    directory: Path, *credentials: Credential | Mapping[str, str], tenants: Tenants | None = None
) -> CredentialRing:
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
    return CredentialRing(path, tenants=tenants)
