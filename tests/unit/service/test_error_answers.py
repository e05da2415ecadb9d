"""Every error of the tree: what a client sees of it over HTTP, over SQS and on the command line."""

from __future__ import annotations

import pytest

from lavant.broker.protocol.queues import Refused
from lavant.cli import BAD_INPUT
from lavant.core import errors
from lavant.core.errors import LavantError
from lavant.service.aws.sqs.errors import refusal
from lavant.service.http.errors import error_of

ANSWERS = {
    # error: HTTP status, Retry-After, SQS fault, exit code
    "LavantError": (400, None, "InternalFailure", 2),
    "InvalidValue": (400, None, "InvalidParameterValue", 2),
    "LimitExceeded": (400, None, "OverLimit", 2),
    "QuotaExceeded": (429, None, "OverLimit", 2),
    "FilterSyntaxError": (400, None, "InternalFailure", 2),
    "DuplicateSubscription": (409, None, "InternalFailure", 2),
    "UnknownSubscription": (404, None, "InternalFailure", 2),
    "UnknownAdvertisement": (404, None, "InternalFailure", 2),
    "IdempotencyConflict": (422, None, "InternalFailure", 2),
    "Overloaded": (429, "1", "ThrottlingException", 2),
    "CorruptSnapshot": (400, None, "InternalFailure", 2),
    "IdentityMismatch": (400, None, "InternalFailure", 2),
    "PartlyRefused": (400, None, "InternalFailure", 2),
    "NotPublished": (400, None, "InternalFailure", 2),
    "PublisherClosed": (400, None, "InternalFailure", 2),
    "AccessDenied": (403, None, "AccessDenied", 2),
    "ConnectionLost": (400, None, "InternalFailure", 2),
    "CorruptJournal": (400, None, "InternalFailure", 2),
    "StorageFull": (503, "10", "ServiceUnavailable", 2),
    "StorageLocked": (400, None, "InternalFailure", 2),
    "StorageFailed": (500, None, "InternalFailure", 2),
    "Infeasible": (400, None, "InternalFailure", 2),
    "MissingComponent": (400, None, "InternalFailure", 2),
    "NotReady": (503, "1", "InternalFailure", 2),
    "FailedStream": (400, None, "InternalFailure", 2),
    "UnknownQueue": (404, None, "QueueDoesNotExist", 2),
    "QueueExists": (409, None, "QueueNameExists", 2),
    "QueueFull": (503, "5", "OverLimit", 2),
    "TooManyInFlight": (429, "1", "OverLimit", 2),
    "StaleReceipt": (409, None, "InternalFailure", 2),
    "NotInFlight": (409, None, "InternalFailure", 2),
    "UnknownMove": (400, None, "ResourceNotFoundException", 2),
    "MoveRunning": (400, None, "InvalidParameterValue", 2),
    "UnknownTopic": (404, None, "InternalFailure", 2),
    "UnknownJobType": (404, None, "InternalFailure", 2),
    "UnknownJob": (404, None, "InternalFailure", 2),
    "AttemptOver": (400, None, "InternalFailure", 2),
    "InternalError": (500, None, "InternalFailure", 2),
    "PermanentFailure": (400, None, "InternalFailure", 2),
    "WorkerStuck": (400, None, "InternalFailure", 2),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_error_is_answered_as_it_always_was(name: str) -> None:
    refused = Refused(name, "because")
    over_http = error_of(refused)
    retry_after = over_http.headers.get("Retry-After")
    assert (over_http.status, retry_after, refusal(refused).kind, BAD_INPUT) == ANSWERS[name]


def test_the_table_knows_every_error() -> None:
    tree = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, LavantError)}
    assert tree == ANSWERS.keys()


def test_a_name_of_a_newer_version_is_a_bad_request_over_http_and_an_internal_failure_over_sqs() -> None:
    refused = Refused("NeverHeardOf", "because")
    assert error_of(refused).status == 400
    assert refusal(refused).kind == "InternalFailure"
