"""Clients that others wrote, unchanged: the aws command line, kombu, Celery, older SDKs; and signatures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import Session
from kombu.connection import Connection
from tests.integration.sqs_serving import serving
from tests.unit.service.aws.sqs.query_model import query_description

Client = Any
KEYS = {"AKIDEXAMPLE": "a/secret+key"}
BIN = Path(sys.executable).parent
XML = "{http://queue.amazonaws.com/doc/2012-11-05/}"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """An endpoint that wants signatures."""
    with serving(KEYS) as url:
        yield url


def environment(**more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": KEYS["AKIDEXAMPLE"],
        "AWS_DEFAULT_REGION": "eu-west-1",
        **more,
    }


def access(endpoint: str, key: str = "AKIDEXAMPLE", secret: str = KEYS["AKIDEXAMPLE"]) -> dict[str, Any]:
    return {
        "endpoint_url": endpoint,
        "region_name": "eu-west-1",
        "aws_access_key_id": key,
        "aws_secret_access_key": secret,
        "config": Config(retries={"total_max_attempts": 1}),
    }


# ── the aws command line ──────────────────────────────────────────────────────────────────────────────────────────────


def aws(endpoint: str, *arguments: str) -> Any:
    command = [str(BIN / "aws"), "--endpoint-url", endpoint, "--output", "json", "sqs", *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


def test_the_command_line_sends_and_receives(guarded: str) -> None:
    url = aws(guarded, "create-queue", "--queue-name", "cli")["QueueUrl"]
    attributes = '{"kind": {"DataType": "String", "StringValue": "tea"}}'
    sent = aws(guarded, "send-message", "--queue-url", url, "--message-body", "hi", "--message-attributes", attributes)
    (message,) = aws(guarded, "receive-message", "--queue-url", url, "--message-attribute-names", "All")["Messages"]
    assert (message["Body"], message["MessageId"]) == ("hi", sent["MessageId"])
    assert aws(guarded, "delete-message", "--queue-url", url, "--receipt-handle", message["ReceiptHandle"]) is None
    assert aws(guarded, "list-queues", "--queue-name-prefix", "cli") == {"QueueUrls": [url]}


def test_the_command_line_shows_errors(guarded: str) -> None:
    command = [str(BIN / "aws"), "--endpoint-url", guarded, "sqs", "get-queue-url", "--queue-name", "nothing"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "(AWS.SimpleQueueService.NonExistentQueue)" in done.stderr


# ── kombu and Celery ──────────────────────────────────────────────────────────────────────────────────────────────────


def broker_url(endpoint: str) -> str:
    return endpoint.replace("http://", "sqs://AKIDEXAMPLE:a%2Fsecret%2Bkey@")


def test_kombu_puts_and_gets(guarded: str) -> None:
    options = {"region": "eu-west-1", "wait_time_seconds": 1}
    connect: Any = Connection  # it has no types
    with connect(broker_url(guarded), transport_options=options) as connection:
        queue = connection.SimpleQueue("kombu-numbers")
        for number in range(5):
            queue.put({"number": number})
        found = []
        for _ in range(5):
            message = queue.get(timeout=10)
            found.append(message.payload["number"])
            message.ack()
        assert sorted(found) == list(range(5))
        assert queue.qsize() == 0
        queue.close()


TASKS = """
import os
from celery import Celery

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BACKEND"])
app.conf.broker_transport_options = {"region": "eu-west-1", "wait_time_seconds": 5}
app.conf.worker_hijack_root_logger = False
app.conf.broker_connection_retry_on_startup = True


@app.task
def add(left, right):
    return left + right


@app.task(bind=True, max_retries=3)
def fail_twice(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return f"done at try {self.request.retries + 1}"
"""

CALLS = """
from tasks import add, fail_twice

results = [add.delay(number, number) for number in range(20)]
retried = fail_twice.delay()
late = add.apply_async((1, 2), countdown=1)
print([result.get(timeout=60) for result in results], retried.get(timeout=60), late.get(timeout=60))
"""


def test_celery_does_real_tasks(guarded: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "results").mkdir()
    variables = environment(
        BROKER=broker_url(guarded),
        BACKEND=f"file://{tmp_path / 'results'}",
        PYTHONPATH=str(tmp_path),
        HOME=str(tmp_path),
    )
    log = tmp_path / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [str(BIN / "celery"), "-A", "tasks", "worker", "--pool", "solo", "--without-mingle", "--without-gossip"],
            env=variables,
            cwd=tmp_path,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        done = subprocess.run(
            [sys.executable, "-c", CALLS],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr + log.read_text()
        assert done.stdout.strip() == f"{[2 * number for number in range(20)]} done at try 3 3"
    finally:
        worker.terminate()
        worker.wait(30)


# ── the query protocol ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def query_sqs(guarded: str, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """A boto3 client that speaks as it did before SQS spoke JSON."""
    models = tmp_path_factory.mktemp("models")
    folder = models / "sqs" / "2012-11-05"
    folder.mkdir(parents=True)
    (folder / "service-2.json").write_text(json.dumps(query_description()))
    session = Session()
    session.get_component("data_loader").search_paths.insert(0, str(models))
    return boto3.Session(botocore_session=session).client("sqs", **access(guarded))


def test_an_older_sdk_does_all_that_a_newer_one_does(query_sqs: Client) -> None:
    sqs = query_sqs
    assert sqs.meta.service_model.metadata["protocol"] == "query"
    dead = sqs.create_queue(QueueName="older-dead")["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
    policy = json.dumps({"deadLetterTargetArn": found["Attributes"]["QueueArn"], "maxReceiveCount": 5})
    url = sqs.create_queue(
        QueueName="older", Attributes={"VisibilityTimeout": "60", "RedrivePolicy": policy}, tags={"team": "red"}
    )["QueueUrl"]
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "red"}
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    body = 'text with "quotes", <tags> & line\r\nbreaks, é and 🙂'
    attributes = {
        "kind": {"DataType": "String", "StringValue": "tea"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    sent = sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes)
    batch = [{"Id": "a", "MessageBody": "one"}, {"Id": "b", "MessageBody": "\x07", "DelaySeconds": 0}]
    result = sqs.send_message_batch(QueueUrl=url, Entries=batch)
    assert [entry["Id"] for entry in result["Successful"]] == ["a"]
    assert [(entry["Id"], entry["SenderFault"]) for entry in result["Failed"]] == [("b", True)]
    messages = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
    )["Messages"]
    assert [message["Body"] for message in messages] == [body, "one"]
    assert messages[0]["MessageAttributes"] == attributes
    assert messages[0]["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert messages[0]["Attributes"]["ApproximateReceiveCount"] == "1"
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"], VisibilityTimeout=90)
    handles = [{"Id": f"m{place}", "ReceiptHandle": each["ReceiptHandle"]} for place, each in enumerate(messages)]
    assert len(sqs.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == 2
    assert sqs.receive_message(QueueUrl=url).get("Messages", []) == []
    assert url in sqs.list_queues(QueueNamePrefix="old")["QueueUrls"]
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="older")


def test_a_presigned_url_does_what_it_says_until_it_is_changed(query_sqs: Client) -> None:
    queue = query_sqs.create_queue(QueueName="presigned")["QueueUrl"]
    parameters = {"QueueUrl": queue, "MessageBody": "a b+c/é"}
    url = query_sqs.generate_presigned_url("send_message", Params=parameters, HttpMethod="POST")
    assert b"<SendMessageResult>" in urllib.request.urlopen(url, b"", timeout=30).read()
    (message,) = query_sqs.receive_message(QueueUrl=queue)["Messages"]
    assert message["Body"] == "a b+c/é"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url.replace("SendMessage", "PurgeQueue"), b"", timeout=30)
    assert refused.value.code == 403
    assert b"<Code>SignatureDoesNotMatch</Code>" in refused.value.read()
    refused.value.close()


def test_a_form_sent_to_the_url_of_a_queue_is_understood(endpoint: str) -> None:
    def post(url: str, **form: str) -> str:
        with urllib.request.urlopen(url, urlencode(form).encode(), timeout=30) as response:
            return str(response.read().decode())

    assert "<QueueUrl>" in post(endpoint, Action="CreateQueue", QueueName="form", Version="2012-11-05")
    url = f"{endpoint}/000000000000/form"
    assert "<MD5OfMessageBody>" in post(url, Action="SendMessage", MessageBody="hello world")
    assert "<Body>hello world</Body>" in post(url, Action="ReceiveMessage")


# ── signatures ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "secret", "code"),
    [
        ("AKIDEXAMPLE", "wrong", "SignatureDoesNotMatch"),
        ("NOBODY", KEYS["AKIDEXAMPLE"], "InvalidClientTokenId"),
    ],
)
def test_a_wrong_key_is_refused(guarded: str, key: str, secret: str, code: str) -> None:
    with closing(boto3.client("sqs", **access(guarded, key, secret))) as sqs, pytest.raises(ClientError) as error:
        sqs.list_queues()
    assert error.value.response["Error"]["Code"] == code
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_a_right_key_is_let_in_and_an_open_server_lets_everybody_in(guarded: str, endpoint: str) -> None:
    name = f"q-{uuid.uuid4().hex}"
    for client in (
        boto3.client("sqs", **access(guarded)),
        boto3.client("sqs", **access(endpoint, "any", "thing")),
    ):
        with closing(client):
            url = client.create_queue(QueueName=name)["QueueUrl"]
            client.send_message(QueueUrl=url, MessageBody="x" * 100_000)
            assert len(client.receive_message(QueueUrl=url)["Messages"]) == 1


def test_without_a_signature_nobody_is_let_in(guarded: str) -> None:
    unsigned = boto3.client("sqs", **access(guarded) | {"config": Config(signature_version=UNSIGNED)})
    with closing(unsigned), pytest.raises(ClientError) as error:
        unsigned.list_queues()
    assert error.value.response["Error"]["Code"] == "MissingAuthenticationToken"
