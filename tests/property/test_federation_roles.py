"""Roles of brokers over random trees: all brokers agree, and every client has a place."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.federation.routes.roles import BrokerRole, FederationRoles, edge_for, roles_of
from lavant.broker.protocol.federation import BrokerMember

SETTINGS = st.sampled_from(["auto", "auto", "auto", "any", "head", "edge", ""])


@st.composite
def trees(draw: st.DrawFn, settings: st.SearchStrategy[str] = SETTINGS) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Neighbours and setting of each broker."""
    count = draw(st.integers(1, 12))
    tree: dict[str, list[str]] = {"b0": []}
    for number in range(1, count):
        parent, name = f"b{draw(st.integers(0, number - 1))}", f"b{number}"
        tree[parent].append(name)
        tree[name] = [parent]
    return tree, {name: draw(settings) for name in tree}


def paths_to(tree: dict[str, list[str]], own: str) -> dict[str, list[str]]:
    """The brokers from each one to the neighbour of `own`, as members carry them."""
    paths, waiting = {own: list[str]()}, deque([own])
    while waiting:
        here = waiting.popleft()
        for each in tree[here]:
            if each not in paths:
                paths[each] = [each, *paths[here]]
                waiting.append(each)
    return paths


def seen_by(tree: dict[str, list[str]], settings: dict[str, str], own: str) -> FederationRoles:
    members = [
        BrokerMember(name, name.upper(), 1, 1, path if path else [name], role=settings[name])
        for name, path in paths_to(tree, own).items()
    ]
    return roles_of(members[0], [{each.identity.encode(): each} for each in members[1:]])


@given(trees())
def test_all_brokers_derive_the_same_roles_and_clusters(
    given_tree: tuple[dict[str, list[str]], dict[str, str]],
) -> None:
    tree, settings = given_tree
    views = {own: seen_by(tree, settings, own) for own in tree}
    first = views["b0"]
    assert set(first.roles) == set(first.clusters) == set(tree)
    for own, view in views.items():
        assert (view.roles, view.clusters) == (first.roles, first.clusters)
        assert view.own is first.roles[own]
        assert {each.identity for each in view.heads} == {
            name for name, role in first.roles.items() if role is BrokerRole.HEAD and name != own
        }
        assert sorted(each.identity for near in view.edges for each in near) == sorted(
            name for name, role in first.roles.items() if role is BrokerRole.EDGE and name != own
        )


@given(trees(st.just("auto")))
def test_heads_are_the_inner_brokers_and_each_edge_has_its_head_next_to_it(
    given_tree: tuple[dict[str, list[str]], dict[str, str]],
) -> None:
    tree, settings = given_tree
    for own, neighbours in tree.items():
        view = seen_by(tree, settings, own)
        if len(tree) < 3:
            assert view.own is BrokerRole.ANY
            assert not view.heads
            assert not view.edges
        elif len(neighbours) > 1:
            assert view.own is BrokerRole.HEAD
            assert view.edges
            leaves = {each for each in neighbours if len(tree[each]) == 1}
            assert {each.identity for each in view.edges[0]} == leaves or not leaves
        else:
            assert view.own is BrokerRole.EDGE
            assert view.heads[0].identity == view.clusters[own] == neighbours[0]


@given(trees())
def test_an_operator_decides(given_tree: tuple[dict[str, list[str]], dict[str, str]]) -> None:
    tree, settings = given_tree
    roles = seen_by(tree, settings, "b0").roles
    for name, setting in settings.items():
        if setting != "auto":
            assert roles[name] == (setting if setting else "any")


@given(trees())
def test_a_cluster_is_that_of_a_nearest_head(given_tree: tuple[dict[str, list[str]], dict[str, str]]) -> None:
    tree, settings = given_tree
    view = seen_by(tree, settings, "b0")
    heads = [name for name, role in view.roles.items() if role is BrokerRole.HEAD]
    for name, cluster in view.clusters.items():
        distances = {head: len(paths_to(tree, name)[head]) for head in heads}
        assert cluster in distances if heads else cluster == ""
        assert not heads or distances[cluster] == min(distances.values())


@given(st.sets(st.integers(0, 30), min_size=2), st.text(max_size=4), st.text(max_size=8))
def test_an_edge_that_leaves_changes_the_place_of_its_own_subscriptions_only(
    numbers: set[int], namespace: str, name: str
) -> None:
    edges = [BrokerMember(str(each), str(each), 1, 1, [str(each)]) for each in sorted(numbers)]
    chosen = edge_for(namespace, name, edges)
    for gone in edges:
        left = [each for each in reversed(edges) if each is not gone]
        assert gone is chosen or edge_for(namespace, name, left) is chosen
