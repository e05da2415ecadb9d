"""An S3 server of its own process, on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from tests.integration.zookeeper import free_port

ACCESS_KEY, SECRET_KEY = "AKIATESTKEY", "se/cret+of@tests"
STARTS_WITHIN_S = 60.0


class S3Server:
    """Buckets are made as they are asked for."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.parameters = f"scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )

    def uri(self, bucket: str, path: str = "") -> str:
        """A URI with credentials, as executors would need it; the bucket exists from now on."""
        self.client.create_bucket(Bucket=bucket)
        user = f"{ACCESS_KEY}:{SECRET_KEY.replace('/', '%2F').replace('+', '%2B').replace('@', '%40')}"
        return f"s3://{user}@{bucket}/{path}?{self.parameters}"


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """Run moto, with its output in a file."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    with (
        (directory / "s3.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            deadline = time.monotonic() + STARTS_WITHIN_S
            while not _answers(port):
                assert process.poll() is None, (directory / "s3.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield S3Server(port)
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
