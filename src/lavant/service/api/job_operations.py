"""What can be done with jobs over HTTP."""

from __future__ import annotations

from typing import Any

from lavant.service.api import jobs
from lavant.service.api.bodies import JSON
from lavant.service.api.operation import Body, Operation, Outcome, Parameter
from lavant.service.api.values import CancelAnswer, DefinedAnswer, JobAnswer, JobDescription, JobPage, NewJob

_NUMBER = Parameter("number", "path", "of the job", int, is_required=True)
_UNKNOWN = Outcome(404, "no job has that number, or it is forgotten")
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
        summary="What the resource manager measures, and what it has decided and why",
        handler=jobs.show_resources,
        outcomes=(
            Outcome(200, "figures and decisions; `lavant resources` shows them as tables", dict[str, Any], {}),
            Outcome(404, "the server was started without --resources"),
        ),
    ),
    Operation(
        method="PUT",
        path="/workflows",
        summary="Define job types and their topics; jobs under way go on as they were",
        handler=jobs.define,
        scope="admin",
        bodies=(Body(jobs.TOML, str, _TOML), Body(JSON, dict[str, Any], _TABLES)),
        outcomes=(
            Outcome(200, "defined", DefinedAnswer, {"types": ["simple"], "topics": ["C", "D"]}),
            Outcome(400, "what is wrong with the definitions"),
            Outcome(415, "neither TOML nor JSON"),
        ),
    ),
    Operation(
        method="POST",
        path="/jobs",
        summary="Submit a job",
        handler=jobs.submit,
        scope="publish",
        bodies=(Body(JSON, NewJob, {"type": "simple", "input": {"scan": 17}, "name": "scan-17"}),),
        outcomes=(
            Outcome(200, "it had been submitted under that name", JobAnswer, {"job": 7, "is_new": False}),
            Outcome(201, "it is on disk, and will end", JobAnswer, {"job": 7, "is_new": True}),
            Outcome(400, "a value that cannot be accepted"),
            Outcome(404, "no job type has that name"),
            Outcome(503, "there is no room on the disk; see Retry-After"),
        ),
    ),
    Operation(
        method="GET",
        path="/jobs",
        summary="List jobs by number",
        handler=jobs.list_jobs,
        parameters=(
            Parameter("state", "query", "running, completed, failed or cancelled ones only"),
            Parameter("after", "query", "only larger numbers", int),
            Parameter("limit", "query", "how many at most, 1 to 1000; 100 if not given", int),
        ),
        outcomes=(
            Outcome(200, "a page", JobPage, {"jobs": [{**_LINE, "ended_ms": 1772271000104}], "next": None}),
            Outcome(400, "a value that cannot be accepted"),
        ),
    ),
    Operation(
        method="GET",
        path="/jobs/{number}",
        summary="Describe a job: state, timeline, results",
        handler=jobs.describe,
        parameters=(_NUMBER,),
        outcomes=(Outcome(200, "the job", JobDescription, _DESCRIBED), _UNKNOWN),
    ),
    Operation(
        method="DELETE",
        path="/jobs/{number}",
        summary="Cancel a job; what is known of it stays",
        handler=jobs.cancel,
        scope="publish",
        parameters=(_NUMBER,),
        outcomes=(
            Outcome(200, "it has ended, now or before", CancelAnswer, {"state": "cancelled", "is_new": True}),
            _UNKNOWN,
        ),
    ),
)
