"""`lavant serve` for clients of SQS: a real process on a real port, with its messages on a real disk."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

LAVANT = Path(sys.executable).parent / "lavant"
STOP_S_MAX = 30


@contextlib.contextmanager
def serving(credentials: Mapping[str, str] | None = None, *, options: Sequence[str] = ()) -> Iterator[str]:
    """An endpoint URL."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(LAVANT), "serve", "--port", "0", "--data", f"{folder}/data", *options]
        if credentials is not None:
            file = Path(folder, "credentials")
            file.write_text(
                "".join(
                    f"[profile-{number}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
                    for number, (key, secret) in enumerate(credentials.items())
                )
            )
            command += ["--credentials-file", str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = re.search(r"http://127\.0\.0\.1:[0-9]+", line)
                assert found is not None, f"the server says {line!r}"
                yield found[0]
            finally:
                process.terminate()
                assert process.wait(STOP_S_MAX) == 0


def wait_for_receives_that_wait(endpoint: str, count: int) -> None:
    """Until as many receives wait for a message as said."""
    deadline_s = time.monotonic() + 30
    while True:
        with urllib.request.urlopen(f"{endpoint}/metrics", timeout=30) as response:
            found = re.search(r"^lavant_waiting_receives ([0-9]+)", response.read().decode(), re.MULTILINE)
        assert found is not None
        if int(found[1]) == count:
            return
        assert time.monotonic() < deadline_s, f"{found[1]} receives wait, expected {count}"
        time.sleep(0.01)


def access(endpoint: str) -> dict[str, str]:
    """How boto3 reaches a server."""
    return {
        "endpoint_url": endpoint,
        "region_name": "us-east-1",
        "aws_access_key_id": "any",
        "aws_secret_access_key": "thing",
    }
