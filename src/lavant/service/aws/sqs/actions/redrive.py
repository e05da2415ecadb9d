"""Actions that redrive the messages of a dead-letter queue to their sources or to another queue."""

from __future__ import annotations

from lavant.broker.protocol.queues import (
    CancelMove,
    Described,
    DescribeQueue,
    ListMoves,
    ListSources,
    MoveState,
    StartMove,
)
from lavant.service.aws.sqs import limits, requests, results
from lavant.service.aws.sqs.context import SqsCall, SqsContext
from lavant.service.aws.sqs.errors import SqsError, bad_value
from lavant.service.aws.sqs.names import queue_of_arn


async def start_message_move_task(
    context: SqsContext, call: SqsCall, request: requests.StartMessageMoveTask
) -> results.StartMessageMoveTaskResult:
    rate_per_s = request.max_number_of_messages_per_second
    if rate_per_s is not None and not 1 <= rate_per_s <= limits.MOVE_RATE_PER_S_MAX:
        raise bad_value(
            "MaxNumberOfMessagesPerSecond", rate_per_s, f"Must be between 1 and {limits.MOVE_RATE_PER_S_MAX}."
        )
    source = queue_of_arn(request.source_arn, "SourceArn")
    await _check_queue(context, source, "SourceArn")
    if not (await context.ask(ListSources(source))).queues:
        raise SqsError("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.")
    destination = None
    if request.destination_arn is not None:
        destination = queue_of_arn(request.destination_arn, "DestinationArn")
        await _check_queue(context, destination, "DestinationArn")
    started = await context.ask(StartMove(source, destination, rate_per_s))
    return results.StartMessageMoveTaskResult(context.handles.task_handle(started.task))


async def list_message_move_tasks(
    context: SqsContext, call: SqsCall, request: requests.ListMessageMoveTasks
) -> results.ListMessageMoveTasksResult:
    count = 1 if request.max_results is None else request.max_results
    if not 1 <= count <= limits.MOVES_LISTED_MAX:
        raise bad_value("MaxResults", count, f"Must be between 1 and {limits.MOVES_LISTED_MAX}.")
    source = queue_of_arn(request.source_arn, "SourceArn")
    await _check_queue(context, source, "SourceArn")
    moves = (await context.ask(ListMoves(source))).moves
    newest = sorted(moves, key=lambda move: -move.task)[:count]
    return results.ListMessageMoveTasksResult([_entry(context, move) for move in newest])


async def cancel_message_move_task(
    context: SqsContext, call: SqsCall, request: requests.CancelMessageMoveTask
) -> results.CancelMessageMoveTaskResult:
    moved = await context.ask(CancelMove(context.handles.task(request.task_handle)))
    return results.CancelMessageMoveTaskResult(moved.state.moved)


async def _check_queue(context: SqsContext, queue: str, parameter: str) -> None:
    if not isinstance(await context.execute(DescribeQueue(queue)), Described):
        raise SqsError(
            "ResourceNotFoundException",
            f"The resource that you specified for the {parameter} parameter doesn't exist.",
        )


def _entry(context: SqsContext, move: MoveState) -> results.ListMessageMoveTasksResultEntry:
    return results.ListMessageMoveTasksResultEntry(
        move.status.upper(),
        context.arn(move.source),
        move.moved,
        move.total,
        move.started_ms,
        context.handles.task_handle(move.task) if move.status == "running" else None,
        None if move.destination is None else context.arn(move.destination),
        move.rate_per_s,
        move.reason if move.status == "failed" else None,
    )
