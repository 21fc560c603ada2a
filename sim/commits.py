"""Tells the history which offsets the coordinators of groups have committed, for whom, and in which generation.

It also tells when a group's generations begin again.

The records of a commit do not say who made it. So the shards are asked: what they decide counts once it is in their
log.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.base.types import TopicPartition
from ottla.broker.runtime.coordinators import Coordinators
from ottla.coordinator.decision import Decision
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.shard import GroupShard
from ottla.testing.history.facts import Committed, GroupBegan
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.wire.offsets_records import record_type

Note = Callable[[str, str, Committed | GroupBegan], object]
#: The types of the records that say a group's generation, or member epoch.
_GENERATIONS = (2, 3)


@dataclass(frozen=True, slots=True)
class Lives:
    """What is known of the shards of a broker, in this life and the one before."""

    #: Generations of groups as they were told last.
    generations: dict[str, int] = field(default_factory=dict)
    #: The last shard of each partition, and commits that it has decided: they may be in the log or not.
    shards: dict[TopicPartition, GroupShard] = field(default_factory=dict)
    decided: dict[TopicPartition, list[Committed]] = field(default_factory=dict)


def watch(groups: Coordinators[GroupShard], note: Note, known: Lives) -> None:
    """Note every commit that these shards carry out from now on; also the shards that they make later."""
    make = groups._make_shard

    def made(tp: TopicPartition) -> GroupShard:
        return watched(tp, make(tp), note, known)

    groups._make_shard = made
    for runner in groups._runners.values():
        runner._make_shard = made
        watched(runner.tp, runner.shard, note, known)


def watched(tp: TopicPartition, shard: GroupShard, note: Note, known: Lives) -> GroupShard:
    """The shard, which from now on notes its commits, and groups whose generations begin again; see `watch`.

    A generation of the classic protocol comes into the log with its leader's SyncGroup. Before that its members know
    it, and may commit in it while the group prepares the next one. A coordinator that is loaded then counts that number
    again. A process that dies between log and memory has told nothing of a commit: the next one does, when it finds it.
    """
    generations = known.generations
    decided: list[Committed] = []
    lives: list[bool] = []
    commit, append_failed, apply = shard.commit_offsets, shard.append_failed, shard.apply
    loaded = shard.loaded

    def commit_offsets(token: int, request: OffsetCommitRequest, now_ms: int, **more: Any) -> Decision:
        decision = commit(token, request, now_ms, **more)
        offsets = _accepted(request, decision)
        decided[:] = [Committed(request.group_id, offsets, *_member(request))] if offsets else []
        return decision

    def failed(decision: Decision, error: ErrorCode) -> Decision:
        decided.clear()
        return append_failed(decision, error)

    def tell(each: Committed) -> None:
        places = ", ".join(f"{tp}@{offset}" for tp, offset in each.offsets.items())
        note("offsets committed", f"{each.group} {each.member_id}/{each.generation}: {places}", each)

    def applied(*args: Any) -> None:
        for each in decided:
            tell(each)
        decided.clear()
        apply(*args)
        if lives and record_type(args[0].key) in _GENERATIONS:
            told()

    def told() -> None:
        for group in _begun_again(shard, generations):
            note("group begins again", group, GroupBegan(group, keeps_offsets=True))

    def has_loaded(now_ms: int) -> Iterator[Decision]:
        lives.append(True)  # what was replayed is looked at as a whole: most of it was told before
        # One whose log could not be read was never loaded, and knows nothing of those before it.
        former, known.shards[tp] = known.shards.get(tp), shard
        unsaid, known.decided[tp] = known.decided.get(tp, []), decided
        for name, generation in ({} if former is None else _generations(former)).items():
            generations[name] = max(generations.get(name, 0), generation)
        told()
        for each in unsaid:
            if each.offsets.items() <= positions_in(shard, each.group).items():
                tell(each)
        return loaded(now_ms)

    shard.commit_offsets = commit_offsets  # type: ignore[method-assign]
    shard.append_failed = failed  # type: ignore[method-assign]
    shard.apply = applied  # type: ignore[method-assign, assignment]
    shard.loaded = has_loaded  # type: ignore[method-assign]
    return shard


def positions_in(shard: GroupShard, group: str) -> dict[TopicPartition, int]:
    """All offsets that the group has committed, as its coordinator tells them."""
    answer = shard.fetch_offsets(OffsetFetchRequestGroup(group, topics=None), require_stable=False)
    return {
        TopicPartition(topic.name, part.partition_index): part.committed_offset
        for topic in answer.topics
        for part in topic.partitions
    }


def _begun_again(shard: GroupShard, before: dict[str, int]) -> list[str]:
    """Groups whose generation is lower than it was. `before` is brought up to date."""
    now = _generations(shard)
    begun = [name for name, generation in now.items() if generation < before.get(name, generation)]
    before.update(now)
    return begun


def _generations(shard: GroupShard) -> dict[str, int]:
    return {
        name: group.epoch if isinstance(group, ConsumerGroup) else getattr(group, "generation", 0)
        for name, group in shard._groups.items()
    }


def _member(request: OffsetCommitRequest) -> tuple[str, int]:
    return request.member_id, request.generation_id_or_member_epoch


def _accepted(request: OffsetCommitRequest, decision: Decision) -> dict[TopicPartition, int]:
    """The offsets for which the answer has no error."""
    found = {}
    for reply in decision.replies if decision.records else ():
        if isinstance(reply.response, OffsetCommitResponse):
            for topic, answered in zip(request.topics, reply.response.topics, strict=True):
                for part, result in zip(topic.partitions, answered.partitions, strict=True):
                    if result.error_code == ErrorCode.NONE:
                        found[TopicPartition(topic.name, part.partition_index)] = part.committed_offset
    return found
