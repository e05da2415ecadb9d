"""Keys for tests."""

from __future__ import annotations

from pathlib import Path

from lavant.service.keys import KeyEntry, KeyRing, entry_text


def key_ring(directory: Path, *entries: KeyEntry) -> KeyRing:
    """Of a file that holds just these."""
    path = directory / "keys.toml"
    path.write_text("\n".join(map(entry_text, entries)))
    return KeyRing(path)
