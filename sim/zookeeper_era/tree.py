"""ZooKeeper's data: a tree of znodes with versions and ephemeral owners. Pure: operations in, changes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ottla.base.errors import OttlaError

ROOT = "/"


class ZooKeeperError(OttlaError):
    """An operation was refused. The tree is what it was."""


class NoNodeError(ZooKeeperError):
    """There is no znode of this name, or no parent for it."""


class NodeExistsError(ZooKeeperError):
    """There is a znode of this name already."""


class BadVersionError(ZooKeeperError):
    """The znode has another version than the one that was asked for."""


class NotEmptyError(ZooKeeperError):
    """A znode with children cannot be deleted."""


class EphemeralParentError(ZooKeeperError):
    """An ephemeral znode has no children."""


class Happened(Enum):
    """What a change did to a znode."""

    CREATED = "created"
    DELETED = "deleted"
    DATA = "data"
    CHILDREN = "children"


class Change(NamedTuple):
    """One thing that a watch may wait for."""

    path: str
    what: Happened


class Node(NamedTuple):
    """What a reader gets of a znode. `owner` is the session of an ephemeral one, 0 of any other."""

    data: str
    version: int
    owner: int


@dataclass(slots=True)
class _Znode:
    data: str
    owner: int
    version: int = 0
    children: set[str] = field(default_factory=set)


def parent_of(path: str) -> str:
    """The path of the parent."""
    return path.rpartition("/")[0] or ROOT


class Tree:
    """See the module."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Znode] = {ROOT: _Znode("", 0)}

    # -- reading

    def get(self, path: str) -> Node:
        """Raises NoNodeError."""
        node = self._node(path)
        return Node(node.data, node.version, node.owner)

    def children(self, path: str) -> tuple[str, ...]:
        """The names of the children, sorted. Raises NoNodeError."""
        return tuple(sorted(self._node(path).children))

    def exists(self, path: str) -> bool:
        """Whether there is a znode of this name."""
        return path in self._nodes

    def owned_by(self, session: int) -> tuple[str, ...]:
        """The ephemeral znodes of a session, sorted."""
        return tuple(sorted(path for path, node in self._nodes.items() if session and node.owner == session))

    # -- writing: each returns what has changed, in order

    def create(self, path: str, data: str = "", owner: int = 0) -> list[Change]:
        """A new znode; ephemeral when it has an `owner`. Raises NoNodeError, NodeExistsError, EphemeralParentError."""
        if path in self._nodes:
            raise NodeExistsError(path)
        parent = parent_of(path)
        above = self._node(parent)
        if above.owner:
            raise EphemeralParentError(parent)
        self._nodes[path] = _Znode(data, owner)
        above.children.add(path.rpartition("/")[2])
        return [Change(path, Happened.CREATED), Change(parent, Happened.CHILDREN)]

    def set(self, path: str, data: str, version: int = -1) -> list[Change]:
        """New data. -1 is any version. Raises NoNodeError, BadVersionError."""
        node = self._of_version(path, version)
        node.data = data
        node.version += 1
        return [Change(path, Happened.DATA)]

    def delete(self, path: str, version: int = -1) -> list[Change]:
        """Raises NoNodeError, BadVersionError, NotEmptyError. It does not ask whose ephemeral it is."""
        if self._of_version(path, version).children or path == ROOT:
            raise NotEmptyError(path)
        del self._nodes[path]
        parent = parent_of(path)
        self._nodes[parent].children.discard(path.rpartition("/")[2])
        return [Change(path, Happened.DELETED), Change(parent, Happened.CHILDREN)]

    def end_session(self, session: int) -> list[Change]:
        """All ephemerals of a session go at once."""
        return [change for path in self.owned_by(session) for change in self.delete(path)]

    def make(self, paths: Iterable[str]) -> None:
        """Persistent znodes with all their parents, where they are missing. For the beginning, before anyone looks."""
        for path in paths:
            parts = path.strip("/").split("/")
            for depth in range(1, len(parts) + 1):
                above = "/" + "/".join(parts[:depth])
                if not self.exists(above):
                    self.create(above)

    def _node(self, path: str) -> _Znode:
        if path not in self._nodes:
            raise NoNodeError(path)
        return self._nodes[path]

    def _of_version(self, path: str, version: int) -> _Znode:
        node = self._node(path)
        if version not in (-1, node.version):
            raise BadVersionError(f"{path} has version {node.version}, not {version}")
        return node
