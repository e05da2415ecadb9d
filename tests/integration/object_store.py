"""An S3 server for tests: moto's, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from tests.integration.zookeeper import free_port

BUCKET = "lavant"
REGION = "us-east-1"
START_S_MAX = 90.0
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
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [str(entry["Key"]) for page in pages for entry in page.get("Contents", [])]


@contextmanager
def object_store(directory: Path) -> Iterator[ObjectStore]:
    """Start a server whose objects are in its memory; its log is in `directory`."""
    server = ObjectStore(free_port())
    command = [str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(server.port)]
    log = directory / "s3.log"
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ})
    try:
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                server.client().create_bucket(Bucket=BUCKET)
                break
            except Exception:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the S3 server does not start: {log.read_text(errors='replace')}") from None
                time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait(10)
