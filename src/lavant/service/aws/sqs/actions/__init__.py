"""The actions of the SQS protocol: each is a coroutine from a decoded request to a result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from lavant.service.aws.sqs import requests
from lavant.service.aws.sqs.actions import acknowledge as acknowledging
from lavant.service.aws.sqs.actions import queues
from lavant.service.aws.sqs.actions import receive as receiving
from lavant.service.aws.sqs.actions import redrive as moves
from lavant.service.aws.sqs.actions import send as sending


class Action(NamedTuple):
    name: str
    request: type[msgspec.Struct]
    perform: Callable[..., Awaitable[Any]]
    decode_json: Callable[[bytes], Any]


def _action(name: str, request: type[msgspec.Struct], perform: Callable[..., Awaitable[Any]]) -> Action:
    return Action(name, request, perform, msgspec.json.Decoder(request).decode)


ACTIONS = {
    action.name: action
    for action in (
        _action("AddPermission", requests.Permission, queues.unsupported),
        _action("CancelMessageMoveTask", requests.CancelMessageMoveTask, moves.cancel_message_move_task),
        _action("ChangeMessageVisibility", requests.ChangeMessageVisibility, acknowledging.change_message_visibility),
        _action(
            "ChangeMessageVisibilityBatch",
            requests.ChangeMessageVisibilityBatch,
            acknowledging.change_message_visibility_batch,
        ),
        _action("CreateQueue", requests.CreateQueueRequest, queues.create_queue),
        _action("DeleteMessage", requests.DeleteMessage, acknowledging.delete_message),
        _action("DeleteMessageBatch", requests.DeleteMessageBatch, acknowledging.delete_message_batch),
        _action("DeleteQueue", requests.QueueOnly, queues.delete_queue),
        _action("GetQueueAttributes", requests.GetQueueAttributes, queues.get_queue_attributes),
        _action("GetQueueUrl", requests.GetQueueUrl, queues.get_queue_url),
        _action(
            "ListDeadLetterSourceQueues", requests.ListDeadLetterSourceQueues, queues.list_dead_letter_source_queues
        ),
        _action("ListMessageMoveTasks", requests.ListMessageMoveTasks, moves.list_message_move_tasks),
        _action("ListQueueTags", requests.QueueOnly, queues.list_queue_tags),
        _action("ListQueues", requests.ListQueuesRequest, queues.list_queues),
        _action("PurgeQueue", requests.QueueOnly, queues.purge_queue),
        _action("ReceiveMessage", requests.ReceiveMessage, receiving.receive_message),
        _action("RemovePermission", requests.Permission, queues.unsupported),
        _action("SendMessage", requests.SendMessage, sending.send_message),
        _action("SendMessageBatch", requests.SendMessageBatch, sending.send_message_batch),
        _action("SetQueueAttributes", requests.SetQueueAttributes, queues.set_queue_attributes),
        _action("StartMessageMoveTask", requests.StartMessageMoveTask, moves.start_message_move_task),
        _action("TagQueue", requests.TagQueueRequest, queues.tag_queue),
        _action("UntagQueue", requests.UntagQueue, queues.untag_queue),
    )
}
