"""A system as a TOML file: topics, job types, and the goal. Errors name the line.

rates_per = "minute"            # or "second", "hour": the unit of all rates in the file; times are in seconds
model = "refined"               # or "paper": Eq. 2 without Whitt's refinement

[[topic]]
name = "A"
service_rate = 4.2              # of one consumer
service_scv = 0.33              # squared coefficient of variation, 1 by default
cost = 1.0                      # of each consumer; [1, 1, 2] one by one; {price = 1, exponent = 1.5}
consumers_min = 1
consumers_max = 20
value = 1.0                     # of a request that waits here

[[job]]
name = "1"
arrival_rate = 3.0
arrival_scv = 0.33
route = ["A", "B", "D"]         # or tasks, for jobs that fork and join:
# tasks.read = {topic = "A"}
# tasks.file = {topic = "D", after = ["read"]}

[goal]
response_s = 50                 # with percentile = 0.95 and job = "1", if wanted; or else
# budget = 5                    # what may be spent on top of the least allocation
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

import msgspec

from lavant.control.allocation.system.costs import Cost, Linear, Power, Prices
from lavant.control.allocation.system.system import Budget, Goal, Limits, System, Target
from lavant.control.allocation.system.what_if import changed
from lavant.core.errors import InvalidValue
from lavant.models.network import ModelJobType, ModelTask, Network, Topic, refuse_twice

Path: TypeAlias = tuple[str | int, ...]
"""Keys and numbers of tables: ("topic", 0, "service_rate")."""

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"\s*([\w\"'.*-]+)\s*=")


def line_of(text: str, path: Path) -> int:
    """The line of the innermost table or key on the path to a value, from 1.

    >>> line_of('[[topic]]\\nname = "A"\\n[[topic]]\\nname = "B"\\nrate = 3', ("topic", 1, "rate"))
    5
    """
    best_depth, best_line = 0, 1
    table: Path = ()
    counts: dict[Path, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            names = _names(header[2])
            if header[1] == "[[":
                counts[names] = counts.get(names, -1) + 1
            here = table = _numbered(names, counts)
        elif key := _KEY.match(line):
            here = (*table, *_names(key[1]))
        else:
            continue
        depth = min(len(here), len(path))  # a dotted key may begin further inside than the requested value
        if depth > best_depth and path[:depth] == here[:depth]:
            best_depth, best_line = depth, number
    return best_line


def _names(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _numbered(names: Path, counts: dict[Path, int]) -> Path:
    """With the table's number after each name of an array of tables."""
    found: Path = ()
    for length in range(1, len(names) + 1):
        found = (*found, names[length - 1])
        if names[:length] in counts:
            found = (*found, counts[names[:length]])
    return found


SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
SIZE_BYTES_MAX = 4_000_000

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class _Rising(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    price: Positive
    exponent: Positive


class _Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    service_rate: Positive
    service_scv: NotNegative = 1.0
    value: NotNegative = 1.0
    cost: Positive | list[Positive] | _Rising = 1.0
    consumers_min: Count = 1
    consumers_max: Count = 1000


class _Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    after: list[str] = []


class _Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arrival_rate: Positive
    arrival_scv: NotNegative = 1.0
    value: NotNegative = 1.0
    route: list[str] | None = None
    tasks: dict[str, _Task] | None = None


class _Goal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    response_s: Positive | None = None
    percentile: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    job: str | None = None
    budget: NotNegative | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: Annotated[list[_Topic], msgspec.Meta(min_length=1)]
    job: Annotated[list[_Job], msgspec.Meta(min_length=1)]
    goal: _Goal | None = None
    rates_per: Literal["second", "minute", "hour"] = "second"
    model: Literal["refined", "paper"] = "refined"


class SystemFile:
    """The contents of a file: the system and the goal."""

    def __init__(self, text: str, *, name: str, tables: dict[str, Any] | None = None, remark: str = "") -> None:
        self._text, self._name, self._remark = text, name, remark
        if len(text) > SIZE_BYTES_MAX:
            raise InvalidValue(f"{name}: a system file has at most {SIZE_BYTES_MAX} bytes, this has {len(text)}")
        try:
            self.tables = tomllib.loads(text) if tables is None else tables
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            self._refuse(str(error), line=int(line[1]) if line else len(text.splitlines()))
        self._file = self._converted()
        self.system = self._system()
        self.goal = self._goal()

    @property
    def rates_per(self) -> str:
        """The unit of the file's rates."""
        return self._file.rates_per

    def with_changes(self, changes: Sequence[str]) -> SystemFile:
        """The same file with other values, in the syntax of `what_if`."""
        tables = self.tables
        for change in changes:
            tables = changed(tables, change)
        remark = f" (with {', '.join(changes)})" if changes else ""
        return SystemFile(self._text, name=self._name, tables=tables, remark=remark)

    def place(self, *path: str | int) -> str:
        """File and line of a value, for errors."""
        return f"{self._name}:{line_of(self._text, path)}{self._remark}"

    def _system(self) -> System:
        rate_s = SECONDS[self._file.rates_per]
        topics: list[Topic] = []
        costs: list[Cost] = []
        limits: list[Limits] = []
        for number, table in enumerate(self._file.topic):
            with self._place("topic", number):
                topics.append(
                    Topic(
                        name=table.name,
                        service_rate_per_s=table.service_rate / rate_s,
                        service_scv=table.service_scv,
                        value=table.value,
                    )
                )
            with self._place("topic", number, "cost"):
                costs.append(_cost(table.cost))
            with self._place("topic", number, "consumers_max"):
                limits.append(Limits(least=table.consumers_min, most=table.consumers_max))
        with self._place("topic"):
            refuse_twice("topic", (topic.name for topic in topics))
        jobs = [self._job(number, table, rate_s) for number, table in enumerate(self._file.job)]
        with self._place("job"):
            network = Network(topics=tuple(topics), jobs=tuple(jobs))
        refined = self._file.model == "refined"
        return System(network=network, costs=tuple(costs), limits=tuple(limits), refined=refined)

    def _job(self, number: int, table: _Job, rate_s: float) -> ModelJobType:
        if (table.route is None) == (table.tasks is None):
            self._refuse(f"job type {table.name!r} needs a route or tasks, and not both", "job", number)
        common = {
            "name": table.name,
            "arrival_rate_per_s": table.arrival_rate / rate_s,
            "arrival_scv": table.arrival_scv,
            "value": table.value,
        }
        with self._place("job", number, "route" if table.tasks is None else "tasks"):
            if table.tasks is None:
                assert table.route is not None
                job = ModelJobType.along(table.route, **common)  # type: ignore[arg-type]
            else:
                tasks = tuple(ModelTask(name, task.topic, tuple(task.after)) for name, task in table.tasks.items())
                job = ModelJobType(tasks=tasks, **common)  # type: ignore[arg-type]
        names = [topic.name for topic in self._file.topic]
        for task in job.tasks:
            if task.topic not in names:
                where: Path = ("route",) if table.tasks is None else ("tasks", task.name, "topic")
                self._refuse(
                    f"job type {table.name!r} goes to topic {task.topic!r}, which is none of {', '.join(names)}",
                    *("job", number, *where),
                )
        return job

    def _goal(self) -> Goal | None:
        goal = self._file.goal
        if goal is None:
            return None
        if (goal.response_s is None) == (goal.budget is None):
            self._refuse("a goal is a response_s or a budget, and not both", "goal")
        if goal.budget is not None:
            if goal.percentile is not None or goal.job is not None:
                self._refuse("percentile and job belong to a response_s, not to a budget", "goal", "percentile")
            return Budget(additional=goal.budget)
        if goal.job is not None and goal.job not in self.system.network.job_names:
            names = ", ".join(self.system.network.job_names)
            self._refuse(f"the goal is about job type {goal.job!r}, which is none of {names}", "goal", "job")
        assert goal.response_s is not None
        return Target(response_s=goal.response_s, percentile=goal.percentile, job=goal.job)

    # ---- errors with their location
    # ---------------------------------------------------------------------------------

    def _converted(self) -> _File:
        try:
            return msgspec.convert(self.tables, _File)
        except msgspec.ValidationError as error:
            self._explain(str(error))

    def _explain(self, message: str) -> NoReturn:
        """Raise msgspec's error with the value and the line."""
        said, _, where = message.partition(" - at ")
        path = tuple(
            int(part) if part.isdecimal() else part
            for part in re.findall(r"\w[\w-]*", where.strip("`").removeprefix("$"))
        )
        if field := re.search(r"unknown field `(.+)`", said):
            self._refuse(f"{self._spoken(path)} has no field {field[1]!r}", *path, field[1])
        if field := re.search(r"missing required field `(.+)`", said):
            self._refuse(f"{self._spoken(path)} needs a {field[1]}", *path)
        value = self._value(path)
        choices = _CHOICES.get(str(path[-1]) if path else "")
        wanted = f"expected {choices}" if choices else _plain(said)
        if isinstance(value, dict | list):
            self._refuse(f"{self._spoken(path)}: {wanted}", *path)
        self._refuse(f"{self._spoken(path)} is {value!r}, {wanted}", *path)

    def _spoken(self, path: Path) -> str:
        """A path as text: "service_rate of topic 'A'"."""
        if len(path) < 2 or not isinstance(path[1], int):
            return ".".join(map(str, path)) if path else "the file"
        name = self._value((*path[:2], "name"))
        owner = f"{path[0]} {path[1] + 1 if name is None else repr(name)}"
        return f"{'.'.join(map(str, path[2:]))} of {owner}" if len(path) > 2 else owner

    def _value(self, path: Path) -> Any:
        value: Any = self.tables
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def _place(self, *path: str | int) -> _Place:
        return _Place(self, path)

    def _refuse(self, what: str, *path: str | int, line: int | None = None) -> NoReturn:
        place = self.place(*path) if line is None else f"{self._name}:{line}"
        raise InvalidValue(f"{place}: {what}")


class _Place:
    """Adds the location in the file to errors about its values."""

    def __init__(self, file: SystemFile, path: Path) -> None:
        self._file, self._path = file, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidValue):
            self._file._refuse(str(error), *self._path)


def _cost(given: float | list[float] | _Rising) -> Cost:
    if isinstance(given, _Rising):
        return Power(given.price, given.exponent)
    return Prices(tuple(given)) if isinstance(given, list) else Linear(float(given))


_CHOICES = {"rates_per": "second, minute or hour", "model": "refined or paper"}
_WORDS = {
    "`float`": "a number",
    "`int`": "a whole number",
    "`str`": "a text",
    "`array`": "a list",
    "`object`": "a table",
}


def _plain(said: str) -> str:
    for word, plain in _WORDS.items():
        said = said.replace(word, plain)
    return (said[0].lower() + said[1:]).replace("`", "").replace(".0", "")
