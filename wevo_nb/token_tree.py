"""The tree of tokens behind a choice among fixed replies, for exact scoring in one forward pass.

Used by models.py: only tokens after which the replies differ have to be computed, and what
several questions begin with alike is computed once.
"""

from __future__ import annotations

from typing import NamedTuple


class TokenTree(NamedTuple):
    """What must be computed to choose among replies. Node -1 is the end of the shared prompt.

    tokens, parents: of the nodes, parents first. questions: for each one its branches (node ->
    the tokens that may follow) and, for each reply, its (node, token) edges at branches.
    """

    tokens: list[int]
    parents: list[int]
    questions: list[tuple[dict[int, list[int]], list[list[tuple[int, int]]]]]


def token_tree(asked: list[tuple[list[int], list[list[int]]]]) -> TokenTree:
    """The tree of (rest of a prompt, its replies), pruned to the ancestors of branches: exact, and small."""
    children: dict[int, dict[int, int]] = {-1: {}}
    tokens, parents = [], []

    def follow(node: int, token: int) -> int:
        if token not in children[node]:
            children[node][token] = len(tokens)
            children[len(tokens)] = {}
            tokens.append(token)
            parents.append(node)
        return children[node][token]

    found = []
    for rest, choices in asked:
        start = -1
        for token in rest:
            start = follow(start, token)
        following: dict[int, dict[int, None]] = {}
        paths = []
        for choice in choices:
            node, path = start, []
            for token in choice:
                following.setdefault(node, {})[token] = None
                path.append((node, token))
                node = follow(node, token)
            paths.append(path)
        branches = {node: list(ways) for node, ways in following.items() if len(ways) > 1}
        found.append((branches, [[edge for edge in path if edge[0] in branches] for path in paths]))
    needed = set()
    for branches, _ in found:
        for node in branches:
            while node >= 0 and node not in needed:
                needed.add(node)
                node = parents[node]
    order = sorted(needed)
    place = {-1: -1} | {node: i for i, node in enumerate(order)}
    return TokenTree(
        tokens=[tokens[node] for node in order],
        parents=[place[parents[node]] for node in order],
        questions=[
            ({place[n]: ways for n, ways in branches.items()}, [[(place[n], t) for n, t in path] for path in paths])
            for branches, paths in found
        ],
    )
