"""Who is behind each link, and whether another link would close a cycle.

Each broker tells its neighbours who is on its side, with the path from there. What a broker says of its neighbours has
a number that counts up, so of two contradicting statements the older one is known: a broker that left and joined
elsewhere is no cycle, although some brokers have not heard of it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from lavant.broker.protocol.federation import BrokerMember, RouteEntry
from lavant.core.errors import InvalidValue

NAME_SHOWN = 80
_Entry = TypeVar("_Entry", bound=RouteEntry)


def side_of(own: BrokerMember, neighbours: Mapping[str, Iterable[BrokerMember]], but: str) -> list[BrokerMember]:
    """The brokers on this side of the link to `but`, which is not among the sources. Nobody asks how old links are."""
    behind = [passed_on(member, own.identity, 0) for name, each in neighbours.items() if name != but for member in each]
    return [own, *(member for member in behind if member is not None)]


def passed_on(member: _Entry, identity: str, link_opened_ms: int) -> _Entry | None:
    """A route as the broker with this identity, which heard of it over a link that was opened then, tells of it.

    None if this broker is on the path of a member already.
    """
    if not isinstance(member, BrokerMember):
        return member
    if identity in member.path:
        return None
    return msgspec.structs.replace(member, path=[*member.path, identity], opened_ms=[*member.opened_ms, link_opened_ms])


def link_id(own: BrokerMember, changes: int, now_ms: int) -> str:
    """The id of a new link, which both sides remember."""
    return f"{own.identity}-{own.epoch}-{changes}-{now_ms}"


def opened_ms(link: str) -> int:
    """When a link was opened; 0 if its id does not say so.

    >>> opened_ms("5f3a-1-2-1700000000000"), opened_ms("5f3a-1-2")
    (1700000000000, 0)
    """
    parts = link.rsplit("-", 3)
    return int(parts[3]) if len(parts) == 4 and parts[3].isdecimal() else 0


def youngest_link(loop: BrokerMember, last_opened_ms: int) -> tuple[str, str]:
    """The brokers of the youngest link on a cycle; all brokers on it agree. The last link is the one it is told over.

    >>> youngest_link(BrokerMember("a", "a", 1, 1, ["a", "b", "c"], opened_ms=[30, 20]), 10)
    ('a', 'b')
    """
    ages = [*loop.opened_ms, *[0] * (len(loop.path) - 1 - len(loop.opened_ms)), last_opened_ms]
    pairs = zip(loop.path, [*loop.path[1:], loop.path[0]], strict=True)
    _, pair = max((age, tuple(sorted(pair))) for age, pair in zip(ages, pairs, strict=True))
    return pair[0], pair[1]


def cycle_of(mine: list[BrokerMember], theirs: list[BrokerMember]) -> list[str] | None:
    """The names on the cycle that a link between both sides would close, beginning and ending with the broker that
    both sides have; None if there is none.

    >>> a, b, c = (BrokerMember(name, name, 1, 1, [name]) for name in "abc")
    >>> behind = BrokerMember("c", "c", 1, 1, ["c", "b"])
    >>> cycle_of([a, BrokerMember("b", "b", 1, 1, ["b", "a"])], [c]) is None
    True
    >>> cycle_of([b, BrokerMember("c", "c", 1, 1, ["c", "b"])], [a, BrokerMember("c", "c", 1, 1, ["c", "a"])])
    ['c', 'b', 'a', 'c']
    """
    names = {member.identity: member.name for member in (*theirs, *mine)}
    here = {member.identity: member for member in mine}
    there = {member.identity: member for member in theirs}
    for identity in sorted(here.keys() & there.keys()):
        if _is_current(here[identity], here, there) and _is_current(there[identity], there, here):
            path = [*here[identity].path, *reversed(there[identity].path)]
            return [names.get(each, each) for each in path]
    return None


def twins_of(mine: Iterable[BrokerMember], theirs: Iterable[BrokerMember]) -> list[str]:
    """The names that two brokers have, one on each side of a link.

    >>> twins_of([BrokerMember("1", "a", 1, 1, ["1"])], [BrokerMember("2", "a", 1, 1, ["2"])])
    ['a']
    """
    known = {(member.name, member.identity) for member in mine}
    names = {name for name, _ in known}
    return sorted({each.name for each in theirs if each.name in names and (each.name, each.identity) not in known})


def _is_current(member: BrokerMember, own: Mapping[str, BrokerMember], other: Mapping[str, BrokerMember]) -> bool:
    """Whether no broker on its path said something newer to the other side."""
    return all(other[each].changes <= own[each].changes for each in member.path if each in own and each in other)


def check_member(member: BrokerMember, neighbour: str) -> None:
    """Raise unless the path of a broker leads from it to this neighbour: roles and traces follow it."""
    path = member.path
    is_whole = len(path) > len(member.opened_ms) and path[0] == member.identity and path[-1] == neighbour
    if not is_whole or len(set(path)) < len(path):
        raise InvalidValue(
            f"the path to broker {member.name[:NAME_SHOWN]!r} is malformed: it leads from that broker to the "
            f"neighbour, with each broker on it once, got {path!r:.200}"
        )


def is_loop(member: BrokerMember, own: BrokerMember) -> bool:
    """Whether a neighbour tells this broker of itself, so that there is a cycle; an old story is none."""
    return member.identity == own.identity and member.changes == own.changes


def names_on(path: list[str], own: BrokerMember, behind: Iterable[Mapping[bytes, BrokerMember]]) -> list[str]:
    """The names of the brokers on a path of identities."""
    names = {each.identity: each.name for known in behind for each in known.values()}
    names[own.identity] = own.name
    return [names.get(each, each) for each in path]
