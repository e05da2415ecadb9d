"""Clients that repeat a whole cycle: send, receive, acknowledge; 1 KB messages, one by one or in batches.

Each is a function that is called once in a client's process, and gives a function for one cycle and one for the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.bench.queues.amqp import AmqpClient
from tests.bench.queues.lean import lean_client

BODY = b"x" * 1024
WAIT_S = 20


def queue_name() -> str:
    """A queue for each client, so that none has to wait for what another was given in advance."""
    return f"bench-{os.getpid()}"


Step = Callable[[], None]
Client = tuple[Step, Step]


def lavant_client(port: int, batch: int) -> Client:
    from lavant import connect

    client = connect(f"lavant://127.0.0.1:{port}")
    queue = client.create_queue(queue_name())
    bodies = [BODY] * batch

    def cycle() -> None:
        queue.send_many(bodies)
        left = batch
        while left:
            received = queue.receive(left, wait_s=WAIT_S)
            queue.acknowledge(*received)
            left -= len(received)

    return cycle, client.close


def rabbitmq_client(port: int, batch: int) -> Client:
    """A quorum queue, publisher confirms, a consumer that is pushed to, and one acknowledgement for a batch."""
    client = AmqpClient(port, queue=queue_name(), body=BODY, batch=batch, timeout_s=WAIT_S)
    return client.cycle, client.close


def sqs_client(port: int, batch: int) -> Client:
    import boto3

    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    sqs = boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="bench",
        aws_secret_access_key="bench",
    )
    url = sqs.create_queue(QueueName=queue_name())["QueueUrl"]
    text = BODY.decode()
    entries = [{"Id": str(number), "MessageBody": text} for number in range(batch)]

    def cycle() -> None:
        if batch == 1:
            sqs.send_message(QueueUrl=url, MessageBody=text)
        else:
            sqs.send_message_batch(QueueUrl=url, Entries=entries)
        left = batch
        while left:
            answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=left, WaitTimeSeconds=WAIT_S)
            received = answer.get("Messages", [])
            if batch == 1:
                for message in received:
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            elif received:
                handles = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(received)]
                sqs.delete_message_batch(QueueUrl=url, Entries=handles)
            left -= len(received)

    return cycle, sqs.close


CLIENTS = {
    "lavant": lavant_client,
    "lavant, lean": lean_client(queue_name, BODY, WAIT_S, waits_for_acknowledgement=True),
    "lavant, lean, early": lean_client(queue_name, BODY, WAIT_S, waits_for_acknowledgement=False),
    "rabbitmq": rabbitmq_client,
    "sqs": sqs_client,
}
