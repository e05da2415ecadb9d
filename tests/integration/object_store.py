"""An S3 server for tests: moto's, in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from botocore.exceptions import BotoCoreError
from tests.integration.server_processes import ServerProcess, free_port

BUCKET = "lavant"
REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": REGION}
"""For the environment of every process that uses the server; moto accepts any."""


class ObjectStore(NamedTuple):
    """A server with one bucket."""

    port: int

    def uri(self, name: str) -> str:
        """The URI of an object, or of all below a name, as `pyarrow.fs` takes it."""
        return f"s3://{BUCKET}/{name}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region={REGION}"

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def names(self, prefix: str = "") -> list[str]:
        """The names of all objects below a prefix."""
        with closing(self.client()) as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
            return [str(entry["Key"]) for page in pages for entry in page.get("Contents", [])]


@contextmanager
def object_store(directory: Path) -> Iterator[ObjectStore]:
    """Start a server whose objects are in its memory; its log is in `directory`."""
    store = ObjectStore(free_port())

    def has_bucket() -> bool:
        with suppress(BotoCoreError):
            with closing(store.client()) as client:
                client.create_bucket(Bucket=BUCKET)
            return True
        return False

    command = [sys.executable, str(Path(__file__).with_name("s3_server.py")), str(store.port)]
    server = ServerProcess("the S3 server", command, has_bucket, directory / "s3.log")
    server.start()
    try:
        yield store
    finally:
        server.kill()
