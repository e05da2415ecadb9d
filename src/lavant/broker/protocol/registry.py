"""The registry: every request that the broker knows, declared once.

    class statement           tag, fields, command or query, answer, description (the docstring's first line)
    row of `DECLARATIONS`     scope, namespace rule, machine, step, data or administration
    row of `ANSWERS`          how an answer loses its namespace

Decoders, machines, authorisation, the audit log, observers, the HTTP interface and clients read these tables, so a
request that is declared here is known everywhere. An incomplete declaration raises `TypeError` when this module, or the
module of a machine that lacks the handler, is imported.

A machine handles `CreateQueue` in its method `_create_queue`, which returns a plan (command) or an answer (query). The
step is the method of `lavant.broker.machine.machine.BrokerMachine` that applies the request, and answers it when its
record is durable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

import msgspec

from lavant.broker.protocol import federation as f
from lavant.broker.protocol import jobs as j
from lavant.broker.protocol import namespaces as n
from lavant.broker.protocol import queues as q
from lavant.broker.protocol import subscriptions as s
from lavant.broker.protocol.commands import A_co, Answer, CommandFor, QueryFor, RequestFor
from lavant.broker.protocol.namespaces import Rule, Strip

SCOPES = PUBLISH, SUBSCRIBE, ADMIN = "publish", "subscribe", "admin"
ANY, SERVER = "", "server"
"""A key with any scope; no key, since only the server itself issues such commands."""
DURABLE = QUEUES, JOBS, SUBSCRIPTIONS, FEDERATION, MIGRATION = (
    "queues",
    "jobs",
    "subscriptions",
    "federation",
    "migration",
)
BROKER, INGEST, LINKS = "broker", "ingest", "links"
MACHINES = (*DURABLE, BROKER, INGEST, LINKS)
"""The durable ones hold state, and the journal records their commands. `BrokerMachine` itself renews leases and ends
long polls; the server's ingest queue matches publications, and records the matches as `Deliver`; its links move
subscriptions."""
DATA, ADMINISTRATION = True, False

ANSWERS: dict[type[Answer], Strip] = {
    q.Refused: n.strip_refused,
    q.Sent: n.strip_entries,
    q.Received: n.strip_received,
    q.Acknowledged: n.strip_refusals,
    q.VisibilityChanged: n.strip_refusals,
    q.Described: n.strip_described,
    q.Listed: n.strip_listed,
    q.Peeked: n.strip_peeked,
    q.Moved: n.strip_moved,
    q.Moves: n.strip_moves,
    s.Subscribed: n.strip_subscribed,
    s.Advertised: n.strip_advertised,
    s.Published: n.strip_entries,
    s.SubscriptionsListed: n.strip_subscriptions,
    s.AdvertisementsListed: n.strip_advertisements,
    **dict.fromkeys((q.Done, q.QueueCreated, q.MoveStarted), n.no_names),
    **dict.fromkeys((j.JobSubmitted, j.TasksLeased, j.Reported, j.Cancelled), n.no_names),
    j.ScheduleAdded: n.strip_scheduled,
    j.SchedulesListed: n.strip_schedules,
    **dict.fromkeys((f.NeighbourRemoved, f.FederationDescribed, f.SubscriptionMigrated), n.no_names),
    **dict.fromkeys((j.JobView, j.JobsListed, j.JobTypeView, j.JobTypesListed), n.no_names),
}
"""Jobs and neighbours belong to no namespace, so answers about them have no names to strip."""


class Declaration(msgspec.Struct, frozen=True):
    """One request."""

    request: type[RequestFor[Any]]
    scope: str
    """`PUBLISH`, `SUBSCRIBE`, `ADMIN`, `ANY` or `SERVER`."""
    rule: Rule
    """Puts the request into the namespace of a key."""
    machine: str
    step: str
    """Of `BrokerMachine`, without the leading underscore."""
    is_data: bool
    """High-volume traffic: messages, publications, tasks, and queries. The rest is administration."""

    def __post_init__(self) -> None:
        """Raise `TypeError` if the declaration is incomplete, or contradicts itself."""
        faults = list(self._faults())
        if faults:
            name = getattr(self.request, "__name__", repr(self.request))
            raise TypeError(f"the declaration of {name} is incomplete: {'; '.join(faults)}")

    @property
    def name(self) -> str:
        return self.request.__name__

    @property
    def tag(self) -> str:
        return str(self.request.__struct_config__.tag)

    @property
    def is_query(self) -> bool:
        return issubclass(self.request, QueryFor)

    @property
    def is_recorded(self) -> bool:
        """Whether the journal records it: a command of a machine with durable state."""
        return not self.is_query and self.machine in DURABLE

    @property
    def answer(self) -> type[Answer]:
        """The type of the answer, unless that is `Refused`: the argument of `CommandFor` or `QueryFor`."""
        return get_args(self.request.__orig_bases__[0])[0]  # type: ignore[attr-defined,no-any-return]

    @property
    def strip(self) -> Strip:
        """Removes a namespace from the answer."""
        return ANSWERS[self.answer]

    @property
    def handler(self) -> str:
        """The method of the machine.

        >>> REGISTRY[q.CreateQueue].handler
        '_create_queue'
        """
        return re.sub("(?=[A-Z])", "_", self.name).lower()

    @property
    def description(self) -> str:
        return (self.request.__doc__ or "").partition("\n")[0].strip()

    def _faults(self) -> Iterator[str]:
        if not (isinstance(self.request, type) and issubclass(self.request, CommandFor | QueryFor)):
            yield "derive the request from CommandFor or QueryFor"
            return
        if not isinstance(self.request.__struct_config__.tag, str):
            yield "give it a tag"
        if self.answer not in ANSWERS:
            yield "its answer has no row in ANSWERS"
        if self.scope not in (*SCOPES, ANY, SERVER):
            yield f"scope {self.scope!r} is none of {', '.join(map(repr, (*SCOPES, ANY, SERVER)))}"
        if not callable(self.rule) or (self.rule is n.no_client_rule) != (self.scope == SERVER):
            yield "give it a namespace rule; no_client_rule goes with the scope SERVER"
        if self.machine not in MACHINES:
            yield f"machine {self.machine!r} is none of {', '.join(MACHINES)}"
        if not isinstance(self.step, str) or not self.step or (self.step == "query") != self.is_query:
            yield "name a step of BrokerMachine; 'query' is that of queries"
        if not isinstance(self.is_data, bool):
            yield "say whether it is DATA or ADMINISTRATION"
        if __debug__ and not self.description:  # python -OO removes docstrings
            yield "describe it in the first line of its docstring"


def _own(request: type[RequestFor[Any]], machine: str) -> Declaration:
    return Declaration(request, SERVER, n.no_client_rule, machine, "refuse", ADMINISTRATION)


def _query(request: type[RequestFor[Any]], scope: str, rule: Rule, machine: str) -> Declaration:
    return Declaration(request, scope, rule, machine, "query", DATA)


DECLARATIONS = (
    # queues
    _own(q.Open, QUEUES),
    Declaration(q.CreateQueue, ADMIN, n.config_rule, QUEUES, "grow_queue", ADMINISTRATION),
    Declaration(q.ConfigureQueue, ADMIN, n.config_rule, QUEUES, "grow_queue", ADMINISTRATION),
    Declaration(q.TagQueue, ADMIN, n.queue_rule, QUEUES, "grow_queue", ADMINISTRATION),
    Declaration(q.DeleteQueue, ADMIN, n.queue_rule, QUEUES, "change_queue", ADMINISTRATION),
    Declaration(q.PurgeQueue, ADMIN, n.queue_rule, QUEUES, "change_queue", ADMINISTRATION),
    Declaration(q.Send, PUBLISH, n.queue_rule, QUEUES, "send", DATA),
    _own(q.FanOut, QUEUES),
    Declaration(q.Receive, SUBSCRIBE, n.queue_rule, QUEUES, "receive", DATA),
    Declaration(q.Acknowledge, SUBSCRIBE, n.queue_rule, QUEUES, "acknowledge", DATA),
    Declaration(q.ChangeVisibility, SUBSCRIBE, n.queue_rule, QUEUES, "change_visibility", DATA),
    Declaration(q.Release, SUBSCRIBE, n.queue_rule, QUEUES, "change_queue", DATA),
    Declaration(q.EndLongPolls, SUBSCRIBE, n.queue_rule, BROKER, "end_long_polls", DATA),
    Declaration(q.StartMove, ADMIN, n.start_move_rule, QUEUES, "start_move", ADMINISTRATION),
    _own(q.MoveSome, QUEUES),
    Declaration(q.CancelMove, ADMIN, n.cancel_move_rule, QUEUES, "cancel_move", ADMINISTRATION),
    _query(q.DescribeQueue, ANY, n.queue_rule, QUEUES),
    _query(q.ListQueues, ANY, n.list_rule, QUEUES),
    _query(q.ListSources, ANY, n.queue_rule, QUEUES),
    _query(q.Peek, SUBSCRIBE, n.queue_rule, QUEUES),
    _query(q.ListMoves, ANY, n.source_rule, QUEUES),
    # subscriptions and publications
    Declaration(s.Publish, PUBLISH, n.publish_rule, INGEST, "refuse", DATA),
    _own(s.Deliver, SUBSCRIPTIONS),
    Declaration(s.Subscribe, SUBSCRIBE, n.subscribe_rule, SUBSCRIPTIONS, "subscribe", ADMINISTRATION),
    Declaration(s.RenewSubscription, SUBSCRIBE, n.namespace_rule, BROKER, "renew_subscription", DATA),
    Declaration(s.UpdateSubscription, SUBSCRIBE, n.namespace_rule, SUBSCRIPTIONS, "subscribe", ADMINISTRATION),
    Declaration(s.Unsubscribe, SUBSCRIBE, n.namespace_rule, SUBSCRIPTIONS, "unsubscribe", ADMINISTRATION),
    Declaration(s.Advertise, PUBLISH, n.namespace_rule, SUBSCRIPTIONS, "advertise", ADMINISTRATION),
    Declaration(s.Unadvertise, PUBLISH, n.namespace_rule, SUBSCRIPTIONS, "unadvertise", ADMINISTRATION),
    _query(s.DescribeSubscription, ANY, n.namespace_rule, SUBSCRIPTIONS),
    _query(s.ListSubscriptions, ANY, n.namespace_rule, SUBSCRIPTIONS),
    _query(s.ListAdvertisements, ANY, n.namespace_rule, SUBSCRIPTIONS),
    # federation
    _own(f.AddNeighbour, FEDERATION),
    Declaration(f.RemoveNeighbour, ADMIN, n.server_wide_rule, FEDERATION, "change_federation", ADMINISTRATION),
    _own(f.LearnRoutes, FEDERATION),
    _own(f.AcknowledgeLink, FEDERATION),
    _query(f.DescribeFederation, ANY, n.server_wide_rule, FEDERATION),
    Declaration(f.MoveSubscription, ADMIN, n.server_wide_rule, LINKS, "refuse", ADMINISTRATION),
    Declaration(f.SwitchBalancing, ADMIN, n.server_wide_rule, LINKS, "refuse", ADMINISTRATION),
    _own(f.RedirectSubscription, MIGRATION),
    _own(f.OfferSubscription, MIGRATION),
    _own(f.HandOverSubscription, MIGRATION),
    _own(f.ForgetMessages, MIGRATION),
    _own(f.EndDeparture, MIGRATION),
    _own(f.PrepareArrival, MIGRATION),
    _own(f.TakeMessages, MIGRATION),
    _own(f.OpenArrival, MIGRATION),
    _own(f.EndArrival, MIGRATION),
    # jobs
    Declaration(j.DefineJobs, ADMIN, n.server_wide_rule, JOBS, "grow_jobs", ADMINISTRATION),
    Declaration(j.RemoveJobType, ADMIN, n.server_wide_rule, JOBS, "change_jobs", ADMINISTRATION),
    Declaration(j.KeepJobs, ADMIN, n.server_wide_rule, JOBS, "change_jobs", ADMINISTRATION),
    Declaration(j.SubmitJob, PUBLISH, n.server_wide_rule, JOBS, "grow_jobs", DATA),
    Declaration(j.LeaseTasks, SUBSCRIBE, n.server_wide_rule, JOBS, "receive", DATA),
    Declaration(j.CompleteTask, SUBSCRIBE, n.server_wide_rule, JOBS, "change_jobs", DATA),
    Declaration(j.FailTask, SUBSCRIBE, n.server_wide_rule, JOBS, "change_jobs", DATA),
    Declaration(j.ExtendTask, SUBSCRIBE, n.server_wide_rule, JOBS, "change_jobs", DATA),
    _own(j.ReleaseTasks, JOBS),
    Declaration(j.CancelJob, PUBLISH, n.server_wide_rule, JOBS, "change_jobs", ADMINISTRATION),
    Declaration(j.AddSchedule, ADMIN, n.schedule_rule, JOBS, "grow_jobs", ADMINISTRATION),
    Declaration(j.RemoveSchedule, ADMIN, n.namespace_rule, JOBS, "change_jobs", ADMINISTRATION),
    _own(j.FireSchedule, JOBS),
    _query(j.ListSchedules, ANY, n.namespace_rule, JOBS),
    _query(j.DescribeJob, ANY, n.server_wide_rule, JOBS),
    _query(j.ListJobs, ANY, n.server_wide_rule, JOBS),
    _query(j.DescribeJobType, ANY, n.server_wide_rule, JOBS),
    _query(j.ListJobTypes, ANY, n.server_wide_rule, JOBS),
)


def declared(declarations: Iterable[Declaration], requests: Iterable[type]) -> dict[type, Declaration]:
    """By type; raises `TypeError` unless each request is declared exactly once."""
    table: dict[type, Declaration] = {}
    for each in declarations:
        if table.setdefault(each.request, each) is not each:
            raise TypeError(f"{each.name} is declared twice")
    missing = sorted(request.__name__ for request in set(requests) - table.keys())
    if missing:
        raise TypeError(f"add to DECLARATIONS: {', '.join(missing)}")
    return table


_BASES = (RequestFor, CommandFor, QueryFor)
REGISTRY: Mapping[type, Declaration] = declared(
    DECLARATIONS, {each for base in _BASES for each in base.__subclasses__()}.difference(_BASES)
)
QUERIES = frozenset(each.request for each in DECLARATIONS if each.is_query)
COMMANDS = frozenset(each.request for each in DECLARATIONS if each.is_recorded)
"""Those that the journal records."""
DATA_REQUESTS = frozenset(each.request for each in DECLARATIONS if each.is_data)
_ANSWERS = {each.request: each.answer for each in DECLARATIONS}


def checked(request: RequestFor[A_co], answer: Answer) -> A_co | q.Refused:
    """The answer, typed by the declaration of its request; raises `TypeError` if it is of another type."""
    wanted, kind = _ANSWERS[type(request)], type(answer)
    if kind is wanted or kind is q.Refused:
        return answer  # type: ignore[return-value]
    raise TypeError(f"{type(request).__name__} was answered by {kind.__name__}, not {wanted.__name__}")


def handlers_of(machine: str, methods: Mapping[str, Any], kinds: frozenset[type]) -> dict[type, Callable[..., Any]]:
    """The handlers of a machine's commands or queries among the methods of its class; raises if one is missing."""
    wanted = [each for each in DECLARATIONS if each.machine == machine and each.request in kinds]
    for each in wanted:
        if each.handler not in methods:
            raise TypeError(f"machine {machine} needs a method {each.handler} that handles {each.name}")
    return {each.request: methods[each.handler] for each in wanted}


def steps_of(methods: Mapping[str, Any]) -> dict[type, str]:
    """The names of `BrokerMachine`'s methods by request; raises if its class lacks one."""
    for each in DECLARATIONS:
        if f"_{each.step}" not in methods:
            raise TypeError(f"BrokerMachine needs a method _{each.step} for {each.name}")
    return {each.request: f"_{each.step}" for each in DECLARATIONS}
