"""H1: ZooKeeper's tree: versions, ephemerals, and refusals that change nothing."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.zookeeper_era.tree import (
    BadVersionError,
    Change,
    EphemeralParentError,
    Happened,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Tree,
    ZooKeeperError,
    parent_of,
)

_PATHS = ("/a", "/a/x", "/a/y", "/a/x/deep", "/b", "/b/x")


def test_a_new_znode_is_version_0_and_every_change_of_its_data_is_one_more() -> None:
    tree = Tree()
    assert tree.create("/a", "one") == [Change("/a", Happened.CREATED), Change("/", Happened.CHILDREN)]
    assert tree.get("/a") == Node("one", 0, 0)
    assert tree.set("/a", "two") == [Change("/a", Happened.DATA)]
    assert tree.set("/a", "three", version=1) == [Change("/a", Happened.DATA)]
    assert tree.get("/a") == Node("three", 2, 0)
    with pytest.raises(BadVersionError, match="version 2, not 1"):
        tree.set("/a", "four", version=1)
    with pytest.raises(BadVersionError):
        tree.delete("/a", version=0)
    assert tree.delete("/a", version=2) == [Change("/a", Happened.DELETED), Change("/", Happened.CHILDREN)]
    assert not tree.exists("/a")


def test_what_is_there_is_not_made_again_and_what_is_not_there_is_not_found() -> None:
    tree = Tree()
    tree.make(["/a/b"])
    with pytest.raises(NodeExistsError):
        tree.create("/a")
    with pytest.raises(NoNodeError):
        tree.create("/nowhere/x")
    for missing in (tree.get, tree.children, tree.delete):
        with pytest.raises(NoNodeError):
            missing("/nowhere")
    with pytest.raises(NotEmptyError):
        tree.delete("/a")
    with pytest.raises(NotEmptyError):
        tree.delete("/")


def test_ephemerals_have_no_children_and_go_with_their_session() -> None:
    tree = Tree()
    tree.make(["/ids", "/owners"])
    tree.create("/ids/one", owner=1)
    tree.create("/owners/0", "one", owner=1)
    tree.create("/ids/two", owner=2)
    with pytest.raises(EphemeralParentError):
        tree.create("/ids/one/x")
    assert tree.owned_by(1) == ("/ids/one", "/owners/0")
    assert {change.path for change in tree.end_session(1)} == {"/ids/one", "/ids", "/owners/0", "/owners"}
    assert (tree.children("/ids"), tree.children("/owners")) == (("two",), ())
    assert tree.end_session(1) == []


def test_persistent_znodes_belong_to_no_session() -> None:
    tree = Tree()
    tree.make(["/ids"])
    assert tree.owned_by(0) == ()
    assert tree.end_session(0) == []


_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from(_PATHS), st.integers(0, 2)),
        st.tuples(st.just("set"), st.sampled_from(_PATHS), st.integers(-1, 2)),
        st.tuples(st.just("delete"), st.sampled_from(_PATHS), st.integers(-1, 2)),
        st.tuples(st.just("end"), st.just(""), st.integers(1, 2)),
    ),
    max_size=40,
)


def _do(tree: Tree, what: str, path: str, number: int) -> list[Change]:
    match what:
        case "create":
            return tree.create(path, "new", number)
        case "set":
            return tree.set(path, "other", number)
        case "delete":
            return tree.delete(path, number)
        case _:
            return tree.end_session(number)


def _whole(tree: Tree) -> dict[str, tuple[Node, tuple[str, ...]]]:
    return {path: (tree.get(path), tree.children(path)) for path in ("/", *_PATHS) if tree.exists(path)}


@given(_OPERATIONS)
def test_whatever_is_done_the_tree_is_one_and_a_refusal_changes_nothing(operations: list[tuple[str, str, int]]) -> None:
    tree = Tree()
    for what, path, number in operations:
        before = _whole(tree)
        changed: set[str] = set()
        try:
            changed = {change.path for change in _do(tree, what, path, number)}
        except ZooKeeperError:
            assert _whole(tree) == before
        after = _whole(tree)
        different = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        assert different <= changed
        for there in after.keys() - {"/"}:
            assert there.rpartition("/")[2] in after[parent_of(there)][1]
            assert not after[parent_of(there)][0].owner
        assert sum(len(children) for _, children in after.values()) == len(after) - 1


@given(_OPERATIONS, st.integers(1, 2))
def test_after_a_session_nothing_of_it_is_left(operations: list[tuple[str, str, int]], session: int) -> None:
    tree = Tree()
    for what, path, number in operations:
        with contextlib.suppress(ZooKeeperError):
            _do(tree, what, path, number)
    others = {path for path, (node, _) in _whole(tree).items() if node.owner != session}
    tree.end_session(session)
    assert set(_whole(tree)) == others
