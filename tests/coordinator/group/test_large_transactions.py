"""The end of a transaction with very many offsets is applied in steps, and nobody sees one that ended in part."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.limits import MAX_OFFSETS_PER_STEP
from ottla.base.steps import result_of
from ottla.base.types import TopicPartition
from ottla.coordinator.decision import NOTHING
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.offsets import store as offsets_store
from ottla.coordinator.offsets.store import OffsetStore
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.offsets_records import OffsetCommitKey, OffsetCommitValue
from tests.coordinator.group.rig import GROUP, Rig
from tests.counted_calls import calls

_LOOKED_UP = offsets_store._AsEnded.__getitem__.__code__
_PRODUCERS = (1, 2)
_GROUPS = ("g", "h")
_KEYS = [OffsetCommitKey(group, topic, number) for group in _GROUPS for topic in ("a", "b") for number in range(3)]
#: By whom (0 is a plain commit), for which partition, and which offset; None deletes.
_WRITES = st.lists(
    st.tuples(st.sampled_from((0, *_PRODUCERS)), st.sampled_from(_KEYS), st.integers(0, 99) | st.none()), max_size=40
)


def _filled(writes: list[tuple[int, OffsetCommitKey, int | None]]) -> OffsetStore:
    store = OffsetStore()
    for producer_id, key, offset in writes:
        if offset is None:
            store.apply_tombstone(key)
        elif producer_id:
            store.apply_transactional(producer_id, key, OffsetCommitValue(offset, -1, "", 0))
        else:
            store.apply_commit(key, OffsetCommitValue(offset, -1, "", 0))
    return store


def _seen(store: OffsetStore) -> dict[str, object]:
    """What can be asked of it."""
    seen: dict[str, object] = {}
    for group in _GROUPS:
        found = store.of_group(group)
        pending = {key for key in _KEYS if store.is_pending(group, TopicPartition(key.topic, key.partition))}
        seen[group] = (dict(found), len(found), pending)
        assert store.count(group) >= len(found)
    return seen


@given(writes=_WRITES, commit=st.booleans(), producer_id=st.sampled_from(_PRODUCERS))
def test_from_the_first_step_on_all_is_as_after_the_last(
    writes: list[tuple[int, OffsetCommitKey, int | None]], commit: bool, producer_id: int
) -> None:
    at_once, in_steps = _filled(writes), _filled(writes)
    assert list(at_once.apply_marker(producer_id, commit=commit)) == []
    for _ in in_steps.apply_marker(producer_id, commit=commit, at_once=1):
        assert _seen(in_steps) == _seen(at_once)
    assert _seen(in_steps) == _seen(at_once)
    assert {group: in_steps.has_pending(group) for group in _GROUPS} == {
        group: at_once.has_pending(group) for group in _GROUPS
    }
    assert sorted(in_steps.group_ids()) == sorted(at_once.group_ids())


def _rig(offsets: int) -> Rig:
    """One open transaction has as many offsets of a group that has committed one of them."""
    rig = Rig()
    rig.commit(1, partition=3)
    partitions = tuple(TxnOffsetCommitRequestPartition(number, 5) for number in range(offsets))
    topics = (TxnOffsetCommitRequestTopic("words", partitions),)
    request = TxnOffsetCommitRequest("tx", GROUP, 7, 0, topics=topics)
    rig.run(rig.shard.commit_transactional_offsets(rig.token(), request, rig.now_ms))
    return rig


def _fetched(shard: GroupShard, offsets: int) -> set[tuple[int, ErrorCode]]:
    topic = OffsetFetchRequestTopics(name="words", partition_indexes=tuple(range(offsets)))
    answer = shard.fetch_offsets(OffsetFetchRequestGroup(GROUP, topics=(topic,)), require_stable=True)
    return {(each.committed_offset, ErrorCode(each.error_code)) for each in answer.topics[0].partitions}


def test_the_end_is_one_decision_with_a_rest() -> None:
    """40,000 offsets had taken 42 and 74 ms in one turn."""
    offsets = 3 * MAX_OFFSETS_PER_STEP
    rig = _rig(offsets)
    assert _fetched(rig.shard, offsets) == {(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    decision, parts = rig.shard.apply_marker(7, True), 1
    while decision.rest is not None:
        assert not decision.records
        assert _fetched(rig.shard, offsets) == {(5, ErrorCode.NONE)}
        assert len(rig.shard.committed(GROUP)["words"]) == offsets
        assert sum(len(each.partition_indexes) for each in result_of(rig.shard.topics_of(GROUP))) == offsets
        decision, parts = decision.rest(), parts + 1
    assert decision == NOTHING
    assert parts == 3
    assert _fetched(rig.shard, offsets) == {(5, ErrorCode.NONE)}


def test_partitions_are_named_in_steps_meanwhile() -> None:
    """40,000 offsets were gone through at the first step, which took 24 ms."""
    offsets = 4 * MAX_OFFSETS_PER_STEP
    rig = _rig(offsets)
    decision = rig.shard.apply_marker(7, True)
    assert decision.rest is not None
    steps, looked = rig.shard.topics_of(GROUP), list[int]()
    named: list[OffsetFetchRequestTopics] = []

    def step() -> None:
        try:
            next(steps)
        except StopIteration as end:
            named.extend(end.value)

    while not named:
        looked.append(calls(step, _LOOKED_UP))
    assert max(looked) <= MAX_OFFSETS_PER_STEP
    assert sum(looked) == offsets
    assert [len(each.partition_indexes) for each in named] == [offsets]


def test_most_ends_have_no_rest() -> None:
    rig = _rig(MAX_OFFSETS_PER_STEP)
    assert rig.shard.apply_marker(7, False) == NOTHING
    assert rig.shard.committed(GROUP) == {"words": {3: 1}}
    assert rig.shard.apply_marker(7, True) == NOTHING, "it has ended"
