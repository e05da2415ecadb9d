"""Strongly connected components of a graph in compressed rows (Tarjan, 1972), without recursion."""

from __future__ import annotations


def strong_components(starts: list[int], targets: list[int]) -> tuple[int, list[int]]:
    """Their number, and the sizes of those that no arc leaves.

    The targets of node `i` are `targets[starts[i]:starts[i + 1]]`.

    >>> strong_components([0, 1, 3, 4, 5], [1, 0, 2, 3, 2])
    (2, [2])
    """
    count = len(starts) - 1
    order, low, component = [-1] * count, [0] * count, [-1] * count
    stack: list[int] = []
    sizes: list[int] = []
    position = list(starts[:-1])
    clock = 0
    for root in range(count):
        if order[root] >= 0:
            continue
        path = [root]
        while path:
            node = path[-1]
            if order[node] < 0:
                order[node] = low[node] = clock
                clock += 1
                stack.append(node)
            at, end = position[node], starts[node + 1]
            while at < end:
                target = targets[at]
                at += 1
                if order[target] < 0:
                    path.append(target)
                    break
                if component[target] < 0 and order[target] < low[node]:
                    low[node] = order[target]
            position[node] = at
            if path[-1] != node:
                continue
            path.pop()
            if path and low[node] < low[path[-1]]:
                low[path[-1]] = low[node]
            if low[node] == order[node]:
                sizes.append(_close(node, stack, component, len(sizes)))
    return len(sizes), _terminal(starts, targets, component, sizes)


def _close(root: int, stack: list[int], component: list[int], number: int) -> int:
    size = 0
    while True:
        node = stack.pop()
        component[node] = number
        size += 1
        if node == root:
            return size


def _terminal(starts: list[int], targets: list[int], component: list[int], sizes: list[int]) -> list[int]:
    """Sizes of components that no arc leaves."""
    is_left = [False] * len(sizes)
    for node, own in enumerate(component):
        for target in targets[starts[node] : starts[node + 1]]:
            if component[target] != own:
                is_left[own] = True
    return [size for size, left in zip(sizes, is_left, strict=True) if not left]
