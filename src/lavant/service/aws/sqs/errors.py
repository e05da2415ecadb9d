"""The faults of the SQS protocol: the names, codes and statuses that clients act upon.

kind        the key of `FAULTS`, and `sqs_fault` of errors        InvalidParameterValue
type        `__type` of a JSON answer                             com.amazonaws.sqs#InvalidParameterValueException
code        in an XML answer, in a batch entry and in the         InvalidParameterValue
            header `x-amzn-query-error`
"""

from __future__ import annotations

from typing import NamedTuple

from lavant.broker.protocol.queues import Refused
from lavant.core.addresses import http_address
from lavant.core.errors import LimitExceeded, error_class

_SQS = "com.amazonaws.sqs#"
_CORAL = "com.amazon.coral.service#"
_SIMPLE = "AWS.SimpleQueueService."


class SqsFault(NamedTuple):
    type: str
    code: str
    status: int = 400
    is_senders: bool = True
    """Whether the sender is at fault; otherwise a retry may help."""


def _own(name: str, code: str = "", status: int = 400) -> SqsFault:
    """A fault from the model of the service."""
    return SqsFault(_SQS + name, code if code else name, status)


FAULTS = {
    "BatchEntryIdsNotDistinct": _own("BatchEntryIdsNotDistinct", _SIMPLE + "BatchEntryIdsNotDistinct"),
    "BatchRequestTooLong": _own("BatchRequestTooLong", _SIMPLE + "BatchRequestTooLong"),
    "EmptyBatchRequest": _own("EmptyBatchRequest", _SIMPLE + "EmptyBatchRequest"),
    "InvalidAddress": _own("InvalidAddress", status=404),
    "InvalidAttributeName": _own("InvalidAttributeName"),
    "InvalidAttributeValue": _own("InvalidAttributeValue"),
    "InvalidBatchEntryId": _own("InvalidBatchEntryId", _SIMPLE + "InvalidBatchEntryId"),
    "InvalidMessageContents": _own("InvalidMessageContents"),
    "InvalidParameterValue": _own("InvalidParameterValueException", "InvalidParameterValue"),
    "MessageNotInflight": _own("MessageNotInflight", _SIMPLE + "MessageNotInflight"),
    "MissingParameter": _own("MissingRequiredParameterException", "MissingParameter"),
    "OverLimit": _own("OverLimit", status=403),
    "QueueDoesNotExist": _own("QueueDoesNotExist", _SIMPLE + "NonExistentQueue"),
    "QueueMoved": _own("QueueMoved", _SIMPLE + "QueueMoved", status=421),
    "QueueNameExists": _own("QueueNameExists", "QueueAlreadyExists"),
    "ReceiptHandleIsInvalid": _own("ReceiptHandleIsInvalid", status=404),
    "ResourceNotFoundException": _own("ResourceNotFoundException", status=404),
    "TooManyEntriesInBatchRequest": _own("TooManyEntriesInBatchRequest", _SIMPLE + "TooManyEntriesInBatchRequest"),
    "UnsupportedOperation": _own("UnsupportedOperation", _SIMPLE + "UnsupportedOperation"),
    # Common to all AWS services, so not in the model of SQS.
    "AccessDenied": SqsFault(_CORAL + "AccessDeniedException", "AccessDenied", 403),
    "IncompleteSignature": SqsFault(_CORAL + "IncompleteSignatureException", "IncompleteSignature"),
    "InternalFailure": SqsFault(_CORAL + "InternalFailure", "InternalFailure", 500, is_senders=False),
    "InvalidAction": SqsFault(_CORAL + "UnknownOperationException", "InvalidAction"),
    "InvalidClientTokenId": SqsFault(_CORAL + "UnrecognizedClientException", "InvalidClientTokenId", 403),
    "MalformedInput": SqsFault(_CORAL + "SerializationException", "MalformedInput"),
    "MethodNotAllowed": SqsFault(_CORAL + "UnsupportedHttpMethodException", "MethodNotAllowed", 405),
    "MissingAction": SqsFault(_CORAL + "UnknownOperationException", "MissingAction"),
    "MissingAuthenticationToken": SqsFault(
        _CORAL + "MissingAuthenticationTokenException", "MissingAuthenticationToken", 403
    ),
    "RequestEntityTooLarge": SqsFault(_CORAL + "RequestEntityTooLargeException", "RequestEntityTooLarge", 413),
    "RequestExpired": SqsFault(_CORAL + "InvalidSignatureException", "RequestExpired", 403),
    "ThrottlingException": SqsFault(_CORAL + "ThrottlingException", "ThrottlingException"),
    "ServiceUnavailable": SqsFault(_CORAL + "ServiceUnavailableException", "ServiceUnavailable", 503, is_senders=False),
    "SignatureDoesNotMatch": SqsFault(_CORAL + "InvalidSignatureException", "SignatureDoesNotMatch", 403),
    "UnsupportedMediaType": SqsFault(_CORAL + "UnsupportedMediaTypeException", "UnsupportedMediaType", 415),
}


NOT_AUTHENTICATED = frozenset(
    {
        "AccessDenied",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "RequestExpired",
        "SignatureDoesNotMatch",
    }
)
"""The request is not signed, signed wrongly, or its key is not allowed."""


class SqsError(Exception):
    """Ends a request, or one entry of a batch."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.fault = FAULTS[kind]
        self.message = message


def missing(parameter: str) -> SqsError:
    return SqsError("MissingParameter", f"The request must contain the parameter {parameter}.")


def bad_value(parameter: str, value: object, reason: str) -> SqsError:
    text = str(value)
    if len(text) > 200:
        text = text[:200] + "…"
    return SqsError("InvalidParameterValue", f"Value {text} for parameter {parameter} is invalid. Reason: {reason}")


def refusal(refused: Refused) -> SqsError:
    """A refusal of the broker as an SQS error."""
    kind = error_class(refused.code).sqs_fault
    if kind == "QueueMoved":
        return SqsError(kind, f"The queue is at another broker now, use the endpoint {http_address(refused.address)}.")
    if kind == "QueueDoesNotExist":
        return SqsError(kind, "The specified queue does not exist.")
    return SqsError(kind, refused.reason)


def entry_refusal(refused: Refused) -> SqsError:
    """The refusal of one entry of a batch: if a message exceeds a limit, its value is invalid."""
    if refused.code == LimitExceeded.__name__:
        return SqsError("InvalidParameterValue", f"One or more parameters are invalid. Reason: {refused.reason}")
    return refusal(refused)
