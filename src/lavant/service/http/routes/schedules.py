"""`/schedules`: add, list and remove schedules of jobs and messages."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.protocol.jobs import AddSchedule, ListSchedules, RemoveSchedule, ScheduleState
from lavant.service.http.bodies import JSON, integer, page_end, read_json
from lavant.service.http.context import ApiContext, json_response
from lavant.service.http.operation import Body, Operation, OperationOutcome, Parameter
from lavant.service.http.schemas import NewSchedule, SchedulesPage, ScheduleView


async def put_schedule(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    asked = await read_json(request, context.limits, NewSchedule)
    body = asked.input.encode() if isinstance(asked.input, str) else msgspec.json.encode(asked.input)
    name = request.path_params["name"]
    command = AddSchedule(name, asked.cron, asked.interval_ms, asked.job_type, asked.queue, body)
    added = await context.ask(principal, command)
    return json_response(_view(added.schedule), 201 if added.is_new else 200)


async def list_schedules(context: ApiContext, request: Request) -> Response:
    query = request.query_params
    limit = integer(query, "limit", default=100, lowest=1, highest=1000)
    asked = ListSchedules(after=query.get("after", ""), count=limit)
    found = (await context.ask(context.principal(request), asked)).schedules
    page = SchedulesPage(schedules=list(map(_view, found)), next=page_end([each.name for each in found], limit))
    return json_response(page)


async def remove_schedule(context: ApiContext, request: Request) -> Response:
    await context.ask(context.principal(request), RemoveSchedule(request.path_params["name"]))
    return Response(status_code=204)


def _view(schedule: ScheduleState) -> ScheduleView:
    return ScheduleView(**{field: getattr(schedule, field) for field in ScheduleView.__struct_fields__})


_NAME = Parameter("name", "path", "of the schedule", is_required=True)
_WANTED = {"cron": "0 9 * * mon-fri", "job_type": "report", "input": {"day": "today"}}
_SEEN = {
    "name": "morning",
    "cron": "0 9 * * mon-fri",
    "interval_ms": 0,
    "job_type": "report",
    "queue": "",
    "next_ms": 1772442000000,
    "fired": 0,
    "last_ms": 0,
    "last_error": "",
}

SCHEDULE_OPERATIONS = (
    Operation(
        method="PUT",
        path="/schedules/{name}",
        request=AddSchedule,
        summary="Submit a job or send a message by a cron expression, or at an interval",
        handler=put_schedule,
        parameters=(_NAME,),
        bodies=(Body(JSON, NewSchedule, _WANTED),),
        outcomes=(
            OperationOutcome(200, "it is the same as before", ScheduleView, _SEEN),
            OperationOutcome(201, "added, or replaced", ScheduleView, _SEEN),
            OperationOutcome(400, "an invalid expression or name"),
            OperationOutcome(429, "the limit of schedules is reached"),
        ),
    ),
    Operation(
        method="GET",
        path="/schedules",
        request=ListSchedules,
        summary="List schedules by name",
        handler=list_schedules,
        parameters=(
            Parameter("after", "query", "only names after this one"),
            Parameter("limit", "query", "the size of a page, 1 to 1000; 100 by default", int, least=1, most=1000),
        ),
        outcomes=(OperationOutcome(200, "a page", SchedulesPage, {"schedules": [_SEEN], "next": None}),),
    ),
    Operation(
        method="DELETE",
        path="/schedules/{name}",
        request=RemoveSchedule,
        summary="Remove a schedule",
        handler=remove_schedule,
        parameters=(_NAME,),
        outcomes=(OperationOutcome(204, "removed"), OperationOutcome(404, "no schedule has that name")),
    ),
)
