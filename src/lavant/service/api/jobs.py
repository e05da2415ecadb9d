"""`/jobs` and `/workflows`: define job types, submit jobs, look at them, cancel them."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.queues.commands import Done
from lavant.broker.queues.refusals import refusal
from lavant.broker.workflows import read_workflows
from lavant.broker.workflows.commands import (
    CancelJob,
    Cancelled,
    DefineJobs,
    DescribeJob,
    JobsListed,
    JobSummary,
    JobView,
    ListJobs,
    ListJobTypes,
    Result,
    SubmitJob,
    Submitted,
)
from lavant.broker.workflows.reading import convert_workflows
from lavant.core.errors import InvalidValue
from lavant.service.api.bodies import JSON, content_type, decode, read_body, read_json
from lavant.service.api.desk import Desk, json_response
from lavant.service.api.faults import ApiError, bad_request, error_of
from lavant.service.api.queries import integer
from lavant.service.api.values import (
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


async def define(desk: Desk, request: Request) -> Response:
    """Topics and job types, as in a workflow file: in TOML, or the same in JSON."""
    principal = desk.principal(request)
    body = await read_body(request, desk.limits)
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
    await desk.ask(principal, DefineJobs(workflows), Done)
    return json_response(DefinedAnswer(types=[job.name for job in workflows.jobs], topics=list(workflows.topics)))


async def submit(desk: Desk, request: Request) -> Response:
    principal = desk.principal(request)
    asked = await read_json(request, desk.limits, NewJob)
    answer = await desk.ask(principal, SubmitJob(asked.type, _input(asked), asked.name), Submitted)
    return json_response(JobAnswer(job=answer.job, is_new=answer.is_new), 201 if answer.is_new else 200)


async def list_jobs(desk: Desk, request: Request) -> Response:
    principal = desk.principal(request)
    query = request.query_params
    after = integer(query, "after", default=0, lowest=0, highest=NUMBER_MAX)
    limit = integer(query, "limit", default=100, lowest=1, highest=1000)
    page = await desk.ask(principal, ListJobs(after, limit, query.get("state", "")), JobsListed)
    return json_response(JobPage(jobs=[_line(job) for job in page.jobs], next=page.after))


async def describe(desk: Desk, request: Request) -> Response:
    view = await desk.ask(desk.principal(request), DescribeJob(_number(request)), JobView)
    return json_response(_description(view))


async def cancel(desk: Desk, request: Request) -> Response:
    answer = await desk.ask(desk.principal(request), CancelJob(_number(request)), Cancelled)
    return json_response(CancelAnswer(state=answer.job_state, is_new=answer.is_new))


async def show_resources(desk: Desk, request: Request) -> Response:
    """It tells of jobs, so it is for those who may see jobs."""
    principal = desk.principal(request)
    desk.placed(principal, ListJobTypes())
    view = None if desk.resources is None else desk.resources()
    if view is None:
        raise ApiError(404, "NoResourceManager", "there is no resource manager; start the server with --resources FILE")
    return json_response(view)


def _number(request: Request) -> int:
    return integer(request.path_params, "number", default=0, lowest=1, highest=NUMBER_MAX)


def _input(asked: NewJob) -> bytes:
    """A text is what it says; whatever else is JSON stays JSON."""
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
