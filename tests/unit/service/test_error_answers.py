"""Every error of the tree: what a client sees of it over HTTP, over SQS and on the command line."""

from __future__ import annotations

import pytest

from lavant.broker.protocol.queues import Refused
from lavant.core import errors
from lavant.core.errors import (
    Conflict,
    Denied,
    Internal,
    Invalid,
    LavantError,
    Missing,
    OverLimit,
    Unavailable,
    error_class,
)
from lavant.service.aws.sqs.errors import FAULTS, refusal
from lavant.service.http.errors import error_of

KINDS = (Invalid, Denied, Missing, Conflict, OverLimit, Unavailable, Internal)
NEVER = "no request of this protocol leads to it"
"""So it has the answer of its kind."""

ANSWERS = {
    # error: HTTP status, Retry-After, SQS fault, exit code
    "LavantError": (400, None, "InternalFailure", 2),
    "InvalidValue": (400, None, "InvalidParameterValue", 2),
    "LimitExceeded": (400, None, "OverLimit", 2),
    "QuotaExceeded": (429, None, "OverLimit", 2),
    "FilterSyntaxError": (400, None, NEVER, 2),
    "Infeasible": (NEVER, None, NEVER, 2),
    "AccessDenied": (403, None, "AccessDenied", 2),
    "UnknownSubscription": (404, None, NEVER, 2),
    "UnknownAdvertisement": (404, None, NEVER, 2),
    "UnknownNeighbour": (NEVER, None, NEVER, 2),
    "UnknownQueue": (404, None, "QueueDoesNotExist", 2),
    "UnknownMove": (NEVER, None, "ResourceNotFoundException", 2),
    "UnknownTopic": (404, None, NEVER, 2),
    "UnknownJobType": (404, None, NEVER, 2),
    "UnknownJob": (404, None, NEVER, 2),
    "DuplicateSubscription": (409, None, "InternalFailure", 2),
    "QueueExists": (409, None, "QueueNameExists", 2),
    "IdempotencyConflict": (422, None, "InternalFailure", 2),
    "StaleReceipt": (409, None, "InternalFailure", 2),
    "NotInFlight": (409, None, "InternalFailure", 2),
    "MoveRunning": (NEVER, None, "InvalidParameterValue", 2),
    "AttemptOver": (NEVER, None, "InternalFailure", 2),
    "IdentityMismatch": (NEVER, None, "InternalFailure", 2),
    "PublisherClosed": (NEVER, None, "InternalFailure", 2),
    "Overloaded": (429, "1", "ThrottlingException", 2),
    "QueueFull": (503, "5", "OverLimit", 2),
    "TooManyInFlight": (429, "1", "OverLimit", 2),
    "ConnectionLost": (NEVER, None, NEVER, 2),
    "MissingComponent": (NEVER, None, NEVER, 2),
    "ServerUnreachable": (NEVER, None, NEVER, 2),
    "NotReady": (503, "1", NEVER, 2),
    "NotPublished": (NEVER, None, NEVER, 2),
    "StorageFull": (503, "10", "ServiceUnavailable", 2),
    "StorageLocked": (NEVER, None, NEVER, 2),
    "InternalError": (500, None, "InternalFailure", 2),
    "StorageFailed": (500, None, "InternalFailure", 2),
    "CorruptJournal": (NEVER, None, "InternalFailure", 2),
    "CorruptSnapshot": (NEVER, None, "InternalFailure", 2),
    "FailedStream": (NEVER, None, "InternalFailure", 2),
    "WorkerStuck": (NEVER, None, "InternalFailure", 1),
    "PartlyRefused": (400, None, "InternalFailure", 2),
    "PermanentFailure": (400, None, "InternalFailure", 2),
}


def statuses_of_kind(name: str) -> tuple[int, str]:
    [kind] = [kind for kind in KINDS if issubclass(error_class(name), kind)]
    return kind.http_status, kind.sqs_fault


@pytest.mark.parametrize("name", ANSWERS)
def test_an_error_is_answered_as_it_always_was(name: str) -> None:
    refused = Refused(name, "because")
    over_http = error_of(refused)
    status, retry_after, fault, exit_code = ANSWERS[name]
    if status == NEVER:
        status = statuses_of_kind(name)[0]
    if fault == NEVER:
        fault = statuses_of_kind(name)[1]
    assert (over_http.status, over_http.headers.get("Retry-After")) == (status, retry_after)
    assert refusal(refused).kind == fault
    assert error_class(name).exit_code == exit_code


def test_the_table_knows_every_error() -> None:
    tree = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, LavantError)}
    assert tree == ANSWERS.keys() | {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_error_has_a_fault_that_sqs_knows(kind: type[LavantError]) -> None:
    assert kind.sqs_fault in FAULTS


def test_a_name_of_a_newer_version_is_a_bad_request_over_http_and_an_internal_failure_over_sqs() -> None:
    refused = Refused("NeverHeardOf", "because")
    assert error_of(refused).status == 400
    assert refusal(refused).kind == "InternalFailure"
