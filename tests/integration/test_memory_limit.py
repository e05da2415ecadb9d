"""A server at the limit of its memory: it refuses what is new, takes no more, goes on with the rest, and recovers."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served

from lavant import connect
from lavant.client.connection.retries import NO_RETRIES
from lavant.client.queues import Queue
from lavant.core.errors import StorageFull

LIMIT_MB = 24
LIMIT = f"{LIMIT_MB}M"
GROWTH_KB_MAX = (LIMIT_MB * 3 // 2 + 80) << 10
"""Of the process, however much is sent: the limit, half as much again for what the count may be wrong by, and some for
buffers."""
BATCH = [b"x"] * 1000
TRIES = 500
"""Far more batches than fit."""


def flood(queue: Queue) -> int:
    """Send until the server refuses; how many messages it took."""
    for number in range(TRIES):
        try:
            queue.send_many(BATCH)
        except StorageFull:
            return number * len(BATCH)
    raise AssertionError("nothing was refused")


def posted(served: Served, path: str, body: object) -> tuple[int, str | None]:
    """The status, and when to come again."""
    request = urllib.request.Request(
        f"http://{served.host}:{served.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as response:
            return response.status, None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get("Retry-After")


def check_refused(served: Served) -> None:
    """Whatever would take more is refused in each protocol, so that clients try again."""
    with connect(served.url, retries=NO_RETRIES) as client:
        for ask in (
            lambda: client.create_queue("another"),
            lambda: client.queue("flooded").send(b"x" * 5000),
        ):
            with pytest.raises(StorageFull):
                ask()
    for path, body in (("/publish", {"price": 1}), ("/subscriptions", {"filter": "price > 1", "queue": "flooded"})):
        assert posted(served, path, body) == (503, "10")
    sqs = boto3.client(
        "sqs",
        endpoint_url=f"http://{served.host}:{served.port}",
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="thing",
        config=Config(retries={"total_max_attempts": 2}),
    )
    with closing(sqs), pytest.raises(ClientError) as refused:
        sqs.create_queue(QueueName="one-more")
    said = refused.value.response["ResponseMetadata"]
    assert (said["HTTPStatusCode"], said["RetryAttempts"]) == (503, 1)


def test_a_flood_of_small_messages_ends_at_the_limit_and_a_crash_there_does_no_harm(tmp_path: Path) -> None:
    with Served(tmp_path, "--memory-max", LIMIT) as served, connect(served.url, retries=NO_RETRIES) as client:
        before_kb = served.memory_kb_at_rest()
        queue = client.create_queue("flooded")
        taken = flood(queue)
        assert taken > 50_000
        served.wait_for_metric("lavant_stored_bytes", taken)  # a figure may be a second old
        assert served.metric("lavant_memory_bytes") <= served.metric("lavant_memory_limit_bytes") == LIMIT_MB << 20
        for size in (500, 100, 10, 1):  # the last bytes
            for _ in range(200):
                try:
                    queue.send_many([b"x"] * size)
                except StorageFull:
                    break
        check_refused(served)
        messages = queue.receive(count=1000, wait_s=0)
        queue.acknowledge(*messages)
        queue.send_many(BATCH[:500])
        flood(queue)
        assert served.memory_kb_max() - before_kb < GROWTH_KB_MAX
        served.kill()
    with Served(tmp_path, "--memory-max", LIMIT) as served, connect(served.url, retries=NO_RETRIES) as client:
        queue = client.queue("flooded")
        with pytest.raises(StorageFull):
            queue.send_many(BATCH)
        queue.purge()
        assert flood(queue) >= taken
        served.stop()
        assert "memory for messages, queues, jobs and subscriptions: 24 MiB, by --memory-max" in served.log


def test_a_directory_beyond_the_limit_opens_and_becomes_usable_as_messages_go(tmp_path: Path) -> None:
    with Served(tmp_path, "--memory-max", LIMIT) as served, connect(served.url, retries=NO_RETRIES) as client:
        flood(client.create_queue("flooded"))
        assert served.stop() == 0
    with Served(tmp_path, "--memory-max", "16M") as served, connect(served.url, retries=NO_RETRIES) as client:
        assert served.metric("lavant_memory_bytes") > served.metric("lavant_memory_limit_bytes")
        queue = client.queue("flooded")
        with pytest.raises(StorageFull):
            queue.send(b"x")
        while served.metric("lavant_memory_bytes") > (16 << 20) * 0.9:
            for _ in range(20):
                if messages := queue.receive(count=1000, wait_s=0):  # the figure may be a second old, and all gone
                    queue.acknowledge(*messages)
        queue.send(b"x")
        served.stop()
        assert "over the limit: nothing new is accepted until there is less" in served.complaints


@pytest.mark.parametrize(
    ("given", "words"), [("1M", "at least 16 MiB, got 1048576 bytes"), ("much", "'much' is not a number of bytes")]
)
def test_a_limit_that_makes_no_sense_is_refused(given: str, words: str) -> None:
    done = subprocess.run(
        [str(LAVANT), "serve", "--memory", "--memory-max", given],
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr
