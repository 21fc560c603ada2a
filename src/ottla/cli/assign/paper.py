"""What the options of `ottla assign` describe: topics, members, what they had before, who dies and who comes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, cast

from ottla.assign import BUILT_IN, Assignor, BaseAssignor, Cluster, PartitionInfo, find
from ottla.assign.server import BUILT_IN as SERVER_BUILT_IN
from ottla.assign.server import ServerAssignor, unfit
from ottla.assign.server.on_paper import OnPaper
from ottla.base.digits import INT32_MAX, natural
from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition
from ottla.cli.common import CommandError

#: So many partitions all topics may have together: a rehearsal holds each in memory several times.
_MOST_PARTITIONS = 1_000_000


class PaperMember(NamedTuple):
    """A member: its topics (None for all of them), what it has, and where it is."""

    topics: tuple[str, ...] | None = None
    holds: tuple[TopicPartition, ...] | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None
    client_id: str | None = None


class PaperGroup(NamedTuple):
    """A group and its topics, before anybody dies or comes."""

    strategy: str
    cluster: Cluster
    members: dict[str, PaperMember]
    generation_id: int = 0
    #: Whether it is a consumer group (KIP-848), whose assignor runs on the broker; and its topics' ids, if known.
    is_consumer_group: bool = False
    topic_ids: Mapping[str, bytes] = {}
    #: By topic and partition, how many records a live consumer group has not read.
    lags: Mapping[str, Mapping[int, int]] = {}


def topics_of(texts: Sequence[str]) -> Cluster:
    """`t0:3@a/b/c,t1:3` → topics with their partitions. Raises CommandError.

    After @ stand the racks of partition 0, 1 and so on, of several replicas as a+b. They begin again from the first.
    """
    found: dict[str, tuple[PartitionInfo, ...]] = {}
    total = 0
    for text in _split(texts):
        what, at, where = text.partition("@")
        name, separator, count = what.rpartition(":")
        partitions = natural(count, INT32_MAX)
        if not separator or not name or partitions is None:
            raise CommandError(f"--topics: {text!r} is not TOPIC:PARTITIONS; write for example --topics t0:3,t1:3")
        if name in found:
            raise CommandError(f"--topics: {name} is there twice")
        total += partitions
        if total > _MOST_PARTITIONS:
            raise CommandError(f"--topics: {total} partitions; at most {_MOST_PARTITIONS} can be rehearsed")
        racks = [tuple(each.split("+")) for each in where.split("/")] if at else [()]
        if any("" in each for each in racks):
            raise CommandError(
                f"--topics: {text!r} names no rack for a partition; write for example --topics t0:3@a/b/c"
            )
        if at and len(racks) > partitions:
            raise CommandError(f"--topics: {text!r} has racks for {len(racks)} partitions, and {name} has {partitions}")
        found[name] = tuple(PartitionInfo(number, racks[number % len(racks)]) for number in range(partitions))
    return Cluster(found)


def topics_wanted(texts: Sequence[str]) -> set[str]:
    """The topics that `C0=t0,t1` and others name."""
    return set(_split([text.partition("=")[2] for text in texts]))


def members_of(
    option: str, texts: Sequence[str], known: Mapping[str, object], *, is_live: bool = False
) -> dict[str, tuple[str, ...] | None]:
    """`C0=t0,t1`, or `C0` for all topics → members with their topics; `is_live`: of a cluster. Raises CommandError."""
    found: dict[str, tuple[str, ...] | None] = {}
    for text in texts:
        name, separator, topics = (part.strip() for part in text.partition("="))
        if not name:
            raise CommandError(f"{option}: {text!r} has no name; write for example {option} C0=t0,t1")
        if name in found:
            raise CommandError(f"{option}: {name} is there twice")
        found[name] = tuple(_split([topics])) if separator else None
        for topic in found[name] or ():
            if topic not in known:
                where = f" ({', '.join(known) or 'none'}): see --topics"
                if is_live:
                    where = "; `ottla topics list` shows which there are"
                raise CommandError(f"{option}: {name} wants {topic}, and there is no such topic{where}")
    return found


def racks_of(texts: Sequence[str], members: Iterable[str], *, is_live: bool = False) -> dict[str, str]:
    """`C0=a` → those of `members` with their racks. Raises CommandError."""
    found = {}
    known = dict.fromkeys(members)
    for text in _split(texts):
        name, _, rack = text.partition("=")
        if not name or not rack:
            raise CommandError(f"--rack: {text!r} is not MEMBER=RACK; write for example --rack C0=a")
        if name not in known:
            named = ", ".join(known) or "none"
            if is_live:
                raise CommandError(f"--rack: with --group, for members that --add brings ({named}); not for {name}")
            raise CommandError(f"--rack: there is no member {name} ({named})")
        found[name] = rack
    return found


def assignor_of(group: PaperGroup) -> Callable[[], Assignor]:
    """The group's built-in assignor, or `package.module:Class`, which is imported. Raises CommandError."""
    strategy = group.strategy
    if group.is_consumer_group:
        return lambda: OnPaper(_server_assignor(strategy), group.topic_ids, group.lags)
    if ":" not in strategy:
        if not is_known(strategy, is_consumer_group=False):
            text = f"there is no assignor {strategy!r}; there are {', '.join(BUILT_IN)}"
            raise CommandError(f"{text}, and your own as package.module:Class")
        return lambda: find(strategy)
    if not isinstance(_imported(strategy), BaseAssignor | Assignor):
        raise CommandError(f"{strategy} is no assignor: it has not the methods of ottla.assign.Assignor")
    return lambda: cast(Assignor, _imported(strategy))


def is_known(strategy: str, *, is_consumer_group: bool) -> bool:
    """Whether this is the name of one of Ottla's own assignors."""
    if is_consumer_group:
        return strategy in SERVER_BUILT_IN
    try:
        find(strategy)
    except ConfigError:
        return False
    return True


def _server_assignor(strategy: str) -> ServerAssignor:
    if ":" not in strategy:
        if strategy not in SERVER_BUILT_IN:
            text = f"there is no assignor {strategy!r} on the broker; there are {', '.join(SERVER_BUILT_IN)}"
            raise CommandError(f"{text}, and your own as package.module:Class")
        return SERVER_BUILT_IN[strategy]()
    made = _imported(strategy)
    problem = unfit(made)
    if problem is not None:
        raise CommandError(f"{strategy} {problem}")
    return cast(ServerAssignor, made)


def _imported(strategy: str) -> object:
    """An object of the user's class. Modules of the current directory are found, as with `python -m`."""
    module_name, _, class_name = strategy.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        made: object = getattr(import_module(module_name), class_name)()
    except ModuleNotFoundError as error:
        text = f"the assignor {strategy} cannot be made: {error}"
        if f"{module_name}.".startswith(f"{error.name}."):  # and not what it imports itself
            text += "; it is looked for in the current directory, on PYTHONPATH, and among installed packages"
        raise CommandError(text) from error
    except (ImportError, AttributeError) as error:
        raise CommandError(f"the assignor {strategy} cannot be made: {error}") from error
    except (Exception, SystemExit) as error:  # of code that the user has written
        raise CommandError(f"the assignor {strategy} cannot be made: {error!r}") from error
    return made


def _split(texts: Sequence[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]
