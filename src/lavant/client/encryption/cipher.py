"""Encrypts whole publications: a point that the server matches, and a sealed rest that only clients can read.

    publication ──► point (ASPE, attributes of the schema) ──► matched by the server
               └──► attributes and payload, AES-256-GCM     ──► payload of what the server delivers

The AES key is derived from the ASPE key (HKDF-SHA256), so that there is one secret to share. Nonces
are 96 random bits: one key should not seal more than 2³² publications.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from lavant.broker.filters import Filter
from lavant.broker.protocol.subscriptions import EncryptedFilter
from lavant.core.errors import InvalidValue
from lavant.core.packages import named_extras
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.publication import Publication

if TYPE_CHECKING:
    from lavant.client.encryption.key import Key

VERSION = b"\x01"
KEY_BYTES, NONCE_BYTES = 32, 12
PURPOSE = b"lavant: attributes and payload of publications, 1"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[dict[str, Any], bytes | None]).decode


class Cipher:
    """Encrypts points and filters for the server, and contents for other clients."""

    def __init__(self, key: Key, material: bytes) -> None:
        self._key = key
        self._sealing = _aead(material)

    def points(self, publications: Sequence[Publication]) -> list[list[float]]:
        """The point that the server matches."""
        points: list[list[float]] = self._key.encrypt_publications(publications).points.tolist()
        return points

    def filter(self, text: str) -> EncryptedFilter:
        """The encrypted filter that the server matches with."""
        tests = self._key.encrypt_filters([Filter.parse(text)]).tests[0]
        return EncryptedFilter(tests.shape[1], tests.astype("<f8").tobytes())

    def seal(self, publication: Publication) -> bytes:
        """Seals all attributes, also those outside the schema, and the payload."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        content = _encode((publication.attributes, publication.payload))
        sealed: bytes = self._sealing.encrypt(nonce, content, VERSION)
        return VERSION + nonce + sealed

    def open(self, sealed: bytes) -> tuple[dict[str, AttributeValue], bytes | None]:
        """Returns the attributes and the payload. Raises `InvalidValue` if another key sealed it or it was changed."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        nonce, content = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        try:
            if sealed[:1] != VERSION:
                raise InvalidTag
            return _decode(self._sealing.decrypt(nonce, content, VERSION))
        except (InvalidTag, ValueError):
            raise InvalidValue(
                "a notification cannot be decrypted: it was sealed with another key, or not at all, or was "
                "changed; do publishers and subscribers share one key?"
            ) from None


def _aead(material: bytes) -> Any:
    with named_extras():
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415
    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt=None, info=PURPOSE).derive(material))
