"""The service's model as it was when SDKs spoke the query protocol: today's, with the names of elements put back."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from botocore.model import ServiceModel
from tests.unit.service.aws.sqs.talking import service_model

LIST_ELEMENTS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueUrlList": "QueueUrl",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
}
MAP_ELEMENTS = {
    "MessageBodyAttributeMap": ("MessageAttribute", "Name", "Value"),
    "MessageBodySystemAttributeMap": ("MessageSystemAttribute", "Name", "Value"),
    "MessageSystemAttributeMap": ("Attribute", "Name", "Value"),
    "QueueAttributeMap": ("Attribute", "Name", "Value"),
    "TagMap": ("Tag", "Key", "Value"),
}


@cache
def query_model() -> ServiceModel:
    return ServiceModel(query_description(), "sqs")


def query_description() -> dict[str, Any]:
    description: dict[str, Any] = copy.deepcopy(service_model()._service_description)
    metadata = description["metadata"]
    for name in ("awsQueryCompatible", "jsonVersion", "targetPrefix"):
        del metadata[name]
    metadata |= {
        "protocol": "query",
        "protocols": ["query"],
        "xmlNamespace": "http://queue.amazonaws.com/doc/2012-11-05/",
    }
    for name, operation in description["operations"].items():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{name}Result"
    shapes = description["shapes"]
    for name, element in LIST_ELEMENTS.items():
        shapes[name]["flattened"] = True
        shapes[name]["member"]["locationName"] = element
    for name, (_, key, value) in MAP_ELEMENTS.items():
        shapes[name]["key"]["locationName"] = key
        shapes[name]["value"]["locationName"] = value
    for shape in shapes.values():
        for member in shape.get("members", {}).values():
            if member["shape"] in MAP_ELEMENTS:
                member["locationName"] = MAP_ELEMENTS[member["shape"]][0]
    for name, fault in ERROR_CODES.items():
        shapes[name]["error"] = {"code": fault, "httpStatusCode": 400, "senderFault": True}
    return description


ERROR_CODES = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "MessageNotInflight": "AWS.SimpleQueueService.MessageNotInflight",
    "BatchEntryIdsNotDistinct": "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
    "EmptyBatchRequest": "AWS.SimpleQueueService.EmptyBatchRequest",
}
