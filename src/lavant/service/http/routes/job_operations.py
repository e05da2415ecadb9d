"""The routes of jobs, workflows and resources."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.protocol.jobs import (
    CancelJob,
    DefineJobs,
    DescribeJob,
    JobSummary,
    JobView,
    ListJobs,
    ListJobTypes,
    Result,
    SubmitJob,
)
from lavant.broker.queues.validation import refusal
from lavant.broker.workflows.definitions.toml_file import convert_workflows, read_workflows
from lavant.broker.workflows.job import JOB_STATES
from lavant.core.errors import InvalidValue
from lavant.core.estimation import read_history
from lavant.core.publications.trace_context import of_headers
from lavant.service.http.bodies import JSON, content_type, decode, integer, read_body, read_json
from lavant.service.http.context import ApiContext, json_response
from lavant.service.http.errors import ApiError, bad_request, error_of
from lavant.service.http.operation import Body, Operation, OperationOutcome, Parameter
from lavant.service.http.schemas import (
    CancelAnswer,
    DefinedAnswer,
    JobAnswer,
    JobAttempt,
    JobDescription,
    JobLine,
    JobPage,
    JobResult,
    JobTask,
    NewJob,
)

TOML = "application/toml"
NUMBER_MAX = 2**63 - 1


async def define(context: ApiContext, request: Request) -> Response:
    """Defines topics and job types, as in a workflow file: in TOML, or the same in JSON."""
    principal = context.principal(request)
    body = await read_body(request, context.limits)
    kind = content_type(request)
    try:
        if kind == TOML:
            workflows = read_workflows(body.decode())
        elif kind == JSON:
            workflows = convert_workflows(decode(body, dict))
        else:
            raise ApiError(415, "UnsupportedMediaType", f"definitions are {TOML} or {JSON}, got {kind or 'none'!r}")
    except UnicodeDecodeError as error:
        raise bad_request(f"the definitions are no text in UTF-8: byte {error.start}") from None
    except InvalidValue as error:
        raise error_of(refusal(error)) from None
    await context.ask(principal, DefineJobs(workflows))
    return json_response(DefinedAnswer(types=[job.name for job in workflows.jobs], topics=list(workflows.topics)))


async def submit(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    asked = await read_json(request, context.limits, NewJob)
    answer = await context.ask(principal, SubmitJob(asked.type, _input(asked), asked.name, of_headers(request.headers)))
    return json_response(JobAnswer(job=answer.job, is_new=answer.is_new), 201 if answer.is_new else 200)


async def list_jobs(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    query = request.query_params
    after = integer(query, "after", default=0, lowest=0, highest=NUMBER_MAX)
    limit = integer(query, "limit", default=100, lowest=1, highest=1000)
    page = await context.ask(principal, ListJobs(after, limit, query.get("state", "")))
    return json_response(JobPage(jobs=[_line(job) for job in page.jobs], next=page.after))


async def describe(context: ApiContext, request: Request) -> Response:
    view = await context.ask(context.principal(request), DescribeJob(_number(request)))
    return json_response(_description(view))


async def cancel(context: ApiContext, request: Request) -> Response:
    answer = await context.ask(context.principal(request), CancelJob(_number(request)))
    return json_response(CancelAnswer(state=answer.job_state, is_new=answer.is_new))


TELEMETRY_FILES = 60
"""Of the newest: ten minutes of work. More would take seconds to read."""


async def show_resources(context: ApiContext, request: Request) -> Response:
    """It shows jobs, so a key needs the scope to read jobs."""
    principal = context.principal(request)
    context.authorized(principal, ListJobTypes())
    view = None if context.resources is None else context.resources()
    if view is None:
        raise ApiError(404, "NoResourceManager", "there is no resource manager; start the server with --resources FILE")
    return json_response(view)


async def show_telemetry(context: ApiContext, request: Request) -> Response:
    """It shows all queues and jobs, so a key needs the scope to read jobs."""
    principal = context.principal(request)
    context.authorized(principal, ListJobTypes())
    if context.telemetry is None:
        raise ApiError(404, "NoTelemetry", "the server keeps no telemetry; start it with --telemetry DIR")
    try:
        history = await asyncio.to_thread(read_history, context.telemetry, files_max=TELEMETRY_FILES)
    except InvalidValue:
        raise ApiError(
            404, "NoTelemetry", "nothing has been written yet; a file is written every 10 seconds while there is work"
        ) from None
    return json_response(history)


def _number(request: Request) -> int:
    return integer(request.path_params, "number", default=0, lowest=1, highest=NUMBER_MAX)


def _input(asked: NewJob) -> bytes:
    """A string as text; any other value as JSON."""
    if asked.input_base64 is not None:
        return asked.input_base64
    return asked.input.encode() if isinstance(asked.input, str) else msgspec.json.encode(asked.input)


def _line(job: JobSummary) -> JobLine:
    return JobLine(
        number=job.number,
        type=job.job_type,
        name=job.name,
        state=job.state,
        submitted_ms=job.submitted_ms,
        ended_ms=job.ended_ms or None,
    )


def _description(view: JobView) -> JobDescription:
    tasks = [
        JobTask(
            name=task.name,
            topic=task.topic,
            state=task.state,
            attempts=[JobAttempt(**msgspec.structs.asdict(attempt)) for attempt in task.attempts],
        )
        for task in view.tasks
    ]
    return JobDescription(
        number=view.number,
        type=view.job_type,
        name=view.name,
        state=view.state,
        reason=view.reason,
        submitted_ms=view.submitted_ms,
        ended_ms=view.ended_ms or None,
        tasks=tasks,
        results={name: _result(result) for name, result in view.results.items()},
    )


def _result(result: Result) -> JobResult:
    try:
        return JobResult(text=result.body.decode(), attributes=result.attributes)
    except UnicodeDecodeError:
        return JobResult(body_base64=result.body, attributes=result.attributes)


_NUMBER = Parameter("number", "path", "of the job", int, is_required=True, least=1)
_UNKNOWN = OperationOutcome(404, "no job has that number, or it is forgotten")
_TOML = 'topics = ["C", "D"]\n[jobs.simple]\nstart = "load"\ntasks.load = { topic = "C" }\n'
_TABLES = {"topics": ["C", "D"], "jobs": {"simple": {"start": "load", "tasks": {"load": {"topic": "C"}}}}}
_LINE = {"number": 7, "type": "simple", "name": "scan-17", "state": "completed", "submitted_ms": 1772271000000}
_ATTEMPT = {"queued_ms": 1772271000000, "started_ms": 1772271000004, "ended_ms": 1772271000104, "worker": "ann"}
_DESCRIBED = {
    **_LINE,
    "reason": "",
    "ended_ms": 1772271000104,
    "tasks": [{"name": "load", "topic": "C", "state": "done", "attempts": [{**_ATTEMPT, "outcome": "completed"}]}],
    "results": {"load": {"text": "pixels"}},
}

JOB_OPERATIONS = (
    Operation(
        method="GET",
        path="/resources",
        request=ListJobTypes,
        summary="What the resource manager measures, and what it has decided and why",
        handler=show_resources,
        outcomes=(
            OperationOutcome(200, "figures and decisions; `lavant resources` shows them as tables", dict[str, Any], {}),
            OperationOutcome(404, "the server was started without --resources"),
        ),
    ),
    Operation(
        method="GET",
        path="/telemetry",
        request=ListJobTypes,
        summary="Rates, variabilities and response times of all queues and job types, by window",
        handler=show_telemetry,
        outcomes=(
            OperationOutcome(
                200, "estimates over the newest telemetry files; `lavant plan --from`", dict[str, Any], {}
            ),
            OperationOutcome(404, "the server was started without --telemetry, or nothing was written yet"),
        ),
    ),
    Operation(
        method="PUT",
        path="/workflows",
        request=DefineJobs,
        summary="Define job types and their topics; jobs under way go on as they were",
        handler=define,
        bodies=(Body(TOML, str, _TOML), Body(JSON, dict[str, Any], _TABLES)),
        outcomes=(
            OperationOutcome(200, "defined", DefinedAnswer, {"types": ["simple"], "topics": ["C", "D"]}),
            OperationOutcome(400, "what is wrong with the definitions"),
            OperationOutcome(415, "neither TOML nor JSON"),
        ),
    ),
    Operation(
        method="POST",
        path="/jobs",
        request=SubmitJob,
        summary="Submit a job",
        handler=submit,
        bodies=(Body(JSON, NewJob, {"type": "simple", "input": {"scan": 17}, "name": "scan-17"}),),
        outcomes=(
            OperationOutcome(200, "it had been submitted under that name", JobAnswer, {"job": 7, "is_new": False}),
            OperationOutcome(201, "it is on disk, and will end", JobAnswer, {"job": 7, "is_new": True}),
            OperationOutcome(400, "a value that cannot be accepted"),
            OperationOutcome(404, "no job type has that name"),
            OperationOutcome(422, "the name belongs to a job with another type or input; nothing was submitted"),
            OperationOutcome(429, "the limit of running jobs is reached"),
            OperationOutcome(503, "there is no room on the disk; see Retry-After"),
        ),
    ),
    Operation(
        method="GET",
        path="/jobs",
        request=ListJobs,
        summary="List jobs by number",
        handler=list_jobs,
        parameters=(
            Parameter("state", "query", "only jobs in this state", choices=JOB_STATES),
            Parameter("after", "query", "only larger numbers", int, least=0),
            Parameter("limit", "query", "how many at most, 1 to 1000; 100 if not given", int, least=1, most=1000),
        ),
        outcomes=(
            OperationOutcome(200, "a page", JobPage, {"jobs": [{**_LINE, "ended_ms": 1772271000104}], "next": None}),
            OperationOutcome(400, "a value that cannot be accepted"),
        ),
    ),
    Operation(
        method="GET",
        path="/jobs/{number}",
        request=DescribeJob,
        summary="Describe a job: state, timeline, results",
        handler=describe,
        parameters=(_NUMBER,),
        outcomes=(OperationOutcome(200, "the job", JobDescription, _DESCRIBED), _UNKNOWN),
    ),
    Operation(
        method="DELETE",
        path="/jobs/{number}",
        request=CancelJob,
        summary="Cancel a job; what is known of it stays",
        handler=cancel,
        parameters=(_NUMBER,),
        outcomes=(
            OperationOutcome(200, "it has ended, now or before", CancelAnswer, {"state": "cancelled", "is_new": True}),
            _UNKNOWN,
        ),
    ),
)
