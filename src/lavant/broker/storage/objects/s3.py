"""Requests of S3 that pyarrow does not offer, through boto3: conditional puts, lists of a part, and plain deletes."""

from __future__ import annotations

from typing import Any

from lavant.core.errors import MissingComponent
from lavant.core.packages import named_extras

EXISTS = ("PreconditionFailed", "412")
UNDECIDED = ("ConditionalRequestConflict", "409")
"""Another put of the same object was under way; S3 asks to repeat the request."""
ATTEMPTS_MAX = 5


class S3Requests:
    """Requests with the endpoint and the credentials of a URI."""

    def __init__(self, shown: str, key: str, secret: str, region: str, parameters: dict[str, str]) -> None:
        with named_extras():
            import boto3  # noqa: PLC0415
            from botocore.config import Config  # noqa: PLC0415
            from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
        self._shown = shown
        self._refused: type[Exception] = ClientError
        self._failed: type[Exception] = BotoCoreError
        endpoint = parameters.get("endpoint_override")
        if endpoint and "://" not in endpoint:
            endpoint = f"{parameters.get('scheme', 'https')}://{endpoint}"
        style = "path" if endpoint and parameters.get("force_virtual_addressing") != "true" else "auto"
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=region,
            aws_access_key_id=key or None,
            aws_secret_access_key=secret or None,
            verify=parameters.get("tls_ca_file_path"),
            config=Config(s3={"addressing_style": style}, retries={"mode": "standard", "max_attempts": ATTEMPTS_MAX}),
        )

    def create(self, bucket: str, key: str, content: bytes) -> bool:
        """Put an object with `If-None-Match: *`: False if there is one of this key."""
        for _ in range(ATTEMPTS_MAX):
            try:
                self._client.put_object(Bucket=bucket, Key=key, Body=content, IfNoneMatch="*")
                return True
            except self._refused as error:
                code = error.response["Error"]["Code"]  # type: ignore[attr-defined]
                if code in EXISTS:
                    return False
                if code not in UNDECIDED:
                    raise OSError(f"{code}: {error}") from None
            except self._failed as error:
                raise OSError(f"NETWORK_CONNECTION: {error}") from None
        raise MissingComponent(f"{self._shown}: {ATTEMPTS_MAX} conditional puts of {key} met others; try again")

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object, if there is one."""
        try:
            self._client.delete_object(Bucket=bucket, Key=key)
        except self._refused as error:
            raise OSError(f"{error.response['Error']['Code']}: {error}") from None  # type: ignore[attr-defined]
        except self._failed as error:
            raise OSError(f"NETWORK_CONNECTION: {error}") from None

    def keys(self, bucket: str, prefix: str, after: str) -> list[str]:
        """The keys that start with a prefix and come after a key."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, StartAfter=after)
        try:
            return [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        except self._refused as error:
            raise OSError(f"{error.response['Error']['Code']}: {error}") from None  # type: ignore[attr-defined]
        except self._failed as error:
            raise OSError(f"NETWORK_CONNECTION: {error}") from None
