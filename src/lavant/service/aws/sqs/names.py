"""Queue names in URLs and ARNs.

A server is one account in one region, so only the name of the queue counts: a client may use URLs and ARNs from another
server.
"""

from __future__ import annotations

from lavant.service.aws.sqs.errors import SqsError, bad_value

FIFO_SUFFIX = ".fifo"


def queue_of_url(url: str) -> str:
    """Returns the name of the queue in a URL, or the name itself.

    >>> queue_of_url("http://127.0.0.1:9324/000000000000/orders.fifo")
    'orders.fifo'
    """
    name = url.rpartition("/")[2]
    if not name:
        raise SqsError("InvalidAddress", f"The address {url} is not valid for this endpoint.")
    return name


def queue_of_arn(arn: str, parameter: str) -> str:
    """Returns the name of the queue in an ARN.

    >>> queue_of_arn("arn:aws:sqs:us-east-1:000000000000:orders", "SourceArn")
    'orders'
    """
    parts = arn.split(":")
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sqs" or not parts[5]:
        raise bad_value(parameter, arn, "It must have the form arn:aws:sqs:region:account:queue.")
    return parts[5]


def is_fifo(queue: str) -> bool:
    return queue.endswith(FIFO_SUFFIX)
