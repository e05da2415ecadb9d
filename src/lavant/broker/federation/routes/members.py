"""Who is behind each link, and whether another link would close a cycle.

Each broker tells its neighbours who is on its side, with the path from there. What a broker says of its neighbours has
a number that counts up, so of two contradicting statements the older one is known: a broker that left and joined
elsewhere is no cycle, although some brokers have not heard of it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lavant.broker.protocol.federation import BrokerMember


def side_of(own: BrokerMember, neighbours: Mapping[str, Iterable[BrokerMember]], but: str) -> list[BrokerMember]:
    """The brokers on this side of the link to `but`, which is not among the sources."""
    behind = [passed_on(member, own.identity) for name, each in neighbours.items() if name != but for member in each]
    return [own, *(member for member in behind if member is not None)]


def passed_on(member: BrokerMember, identity: str) -> BrokerMember | None:
    """A member as the broker with this identity tells of it; None if it is on the path already."""
    if identity in member.path:
        return None
    return BrokerMember(member.identity, member.name, member.epoch, member.changes, [*member.path, identity])


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


def _is_current(member: BrokerMember, own: Mapping[str, BrokerMember], other: Mapping[str, BrokerMember]) -> bool:
    """Whether no broker on its path said something newer to the other side."""
    return all(other[each].changes <= own[each].changes for each in member.path if each in own and each in other)


def loop_of(member: BrokerMember, own: BrokerMember) -> list[str] | None:
    """The identities on a cycle if a neighbour tells this broker of itself; None if that is an old story."""
    return member.path if member.identity == own.identity and member.changes == own.changes else None
