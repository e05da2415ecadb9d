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
    "QuotaExceeded": (429, None, "OverLimit", 6),
    "FilterSyntaxError": (400, None, NEVER, 2),
    "Infeasible": (NEVER, None, NEVER, 8),
    "AccessDenied": (403, None, "AccessDenied", 6),
    "UnknownSubscription": (404, None, NEVER, 5),
    "UnknownAdvertisement": (404, None, NEVER, 5),
    "UnknownNeighbour": (NEVER, None, NEVER, 5),
    "UnknownQueue": (404, None, "QueueDoesNotExist", 5),
    "UnknownMove": (NEVER, None, "ResourceNotFoundException", 5),
    "UnknownTopic": (404, None, NEVER, 5),
    "UnknownJobType": (404, None, NEVER, 5),
    "UnknownJob": (404, None, NEVER, 5),
    "UnknownSchedule": (404, None, NEVER, 5),
    "DuplicateSubscription": (409, None, "InternalFailure", 6),
    "SubscriptionChanged": (412, None, "InternalFailure", 6),
    "QueueExists": (409, None, "QueueNameExists", 6),
    "IdempotencyConflict": (422, None, "InternalFailure", 6),
    "StaleReceipt": (409, None, "InternalFailure", 6),
    "NotInFlight": (409, None, "InternalFailure", 6),
    "MoveRunning": (NEVER, None, "InvalidParameterValue", 6),
    "AtOtherBroker": (307, None, "QueueMoved", 6),
    "SubscriptionMoved": (307, None, "QueueMoved", 6),
    "NotHead": (307, None, "QueueMoved", 6),
    "NotEdge": (307, None, "QueueMoved", 6),
    "AttemptOver": (NEVER, None, "InternalFailure", 6),
    "IdentityMismatch": (NEVER, None, "InternalFailure", 6),
    "PublisherClosed": (NEVER, None, "InternalFailure", 6),
    "Overloaded": (429, "1", "ThrottlingException", 6),
    "QueueFull": (503, "5", "OverLimit", 6),
    "TooManyInFlight": (429, "1", "OverLimit", 6),
    "ConnectionLost": (NEVER, None, NEVER, 7),
    "MissingComponent": (NEVER, None, NEVER, 7),
    "ServerUnreachable": (NEVER, None, NEVER, 7),
    "NotReady": (503, "1", NEVER, 7),
    "NoReply": (NEVER, None, NEVER, 7),
    "NotPublished": (NEVER, None, NEVER, 7),
    "SubscriptionMoving": (503, "1", "ServiceUnavailable", 7),
    "StorageFull": (503, "10", "ServiceUnavailable", 7),
    "StorageLocked": (NEVER, None, NEVER, 7),
    "InternalError": (500, None, "InternalFailure", 9),
    "StorageFailed": (500, None, "InternalFailure", 9),
    "CorruptJournal": (NEVER, None, "InternalFailure", 9),
    "NewerFormat": (NEVER, None, "InternalFailure", 9),
    "CorruptSnapshot": (NEVER, None, "InternalFailure", 9),
    "FailedStream": (NEVER, None, "InternalFailure", 9),
    "WorkerStuck": (NEVER, None, "InternalFailure", 1),
    "PartlyRefused": (400, None, "InternalFailure", 6),
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
