"""Settings of the SQS protocol."""

from __future__ import annotations

import re

import msgspec

from lavant.core.errors import InvalidValue

_REGION = re.compile(r"[a-z0-9-]{1,40}")
_ACCOUNT = re.compile(r"[0-9]{12}")
_BASE_URL = re.compile(r"https?://[^/?#\s]+(?:/[^?#\s]*)?")
SALT_BYTES_MAX = 64


class SqsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults suit a server on one machine."""

    region: str = "us-east-1"
    """In returned ARNs; requests may be signed for any region."""
    account: str = "000000000000"
    """In returned URLs and ARNs; of received ones, only the name of the queue counts."""
    salt: bytes = b""
    """Message ids and receipt handles are derived from it, so it must be as durable as the messages."""
    base_url: str | None = None
    """The address for clients, if it differs from the Host header (behind a proxy, for example)."""
    body_bytes_max: int = 8 << 20
    """Of one request: a batch of 1 MiB takes up to 6 MiB in JSON if every character is escaped."""

    def __post_init__(self) -> None:
        if _REGION.fullmatch(self.region) is None:
            raise InvalidValue(f"the region is {self.region!r}, which is not like us-east-1; give one of that form")
        if _ACCOUNT.fullmatch(self.account) is None:
            raise InvalidValue(f"the account is {self.account!r}, which is not 12 digits; give such an id")
        if len(self.salt) > SALT_BYTES_MAX:
            raise InvalidValue(f"the salt has {len(self.salt)} bytes, at most {SALT_BYTES_MAX} are used; shorten it")
        if self.base_url is not None and (_BASE_URL.fullmatch(self.base_url) is None or self.base_url.endswith("/")):
            raise InvalidValue(
                f"the base URL is {self.base_url!r}, which is not like http://queues.example:9324; "
                "give one of that form, without a slash at its end"
            )
        if self.body_bytes_max < 1:
            raise InvalidValue(f"body_bytes_max must be positive, got {self.body_bytes_max}")
