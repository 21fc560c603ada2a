"""What a coordinator knew when its process died, the next one knows: its memory was what its log says.

Only the last batch of the log may be news: the process may have died between log and memory.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

from ottla.base.types import TopicPartition
from ottla.broker.runtime.coordinators import Coordinators
from ottla.coordinator.decision import Decision
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.txn.metadata import to_record
from ottla.coordinator.txn.shard import TransactionShard
from ottla.wire import transaction_records
from ottla.wire.offsets_records import OffsetCommitKey, decode_key
from ottla.wire.records import decode_batch
from sim.cluster.log import Entry

Shard: TypeAlias = GroupShard | TransactionShard
S = TypeVar("S", GroupShard, TransactionShard)
#: What a shard knows, by the key of its record.
Known: TypeAlias = Mapping[object, object]


def watch_loads(
    coordinators: Coordinators[S], former: dict[TopicPartition, S], check: Callable[[TopicPartition, S, S], None]
) -> None:
    """Call `check` with the former shard and the new one, whenever a shard has read its log and before it does more.

    `former` has the last shard of each partition that has read its log.
    """
    make = coordinators._make_shard

    def made(tp: TopicPartition) -> S:
        return watched(tp, make(tp))

    def watched(tp: TopicPartition, shard: S) -> S:
        shard.loaded = partial(has_loaded, tp, shard, shard.loaded)  # type: ignore[method-assign]
        return shard

    def has_loaded(
        tp: TopicPartition, shard: S, loaded: Callable[[int], Iterator[Decision]], now_ms: int
    ) -> Iterator[Decision]:
        if tp in former:
            check(tp, former[tp], shard)
        former[tp] = shard
        return loaded(now_ms)

    coordinators._make_shard = made
    for runner in coordinators._runners.values():
        runner._make_shard = made
        watched(runner.tp, runner.shard)


def forgotten(former: Shard, now: Shard, last: Entry | None) -> list[str]:
    """What the new shard knows otherwise than the former one, but for the log's last batch."""
    before, after = _known(former), _known(now)
    excused = set(_changed_by(former, last)) if last is not None else set()
    return [
        f"{key} was {before.get(key)} and is {after.get(key)}"
        for key in {**before, **after}
        if key not in excused and before.get(key) != after.get(key)
    ]


def _known(shard: Shard) -> Known:
    if isinstance(shard, TransactionShard):
        return {each.transactional_id: to_record(each).value for each in shard.store.all()}
    store = shard._offsets
    return {
        OffsetCommitKey(group, *tp): committed.value
        for group in store.group_ids()
        for tp, committed in store.of_group(group).items()
    }


def _changed_by(former: Shard, last: Entry) -> Iterator[Any]:
    if last.header.is_control:
        assert isinstance(former, GroupShard)
        for group, offsets in former._offsets._pending.get(last.header.producer_id, {}).items():
            yield from (OffsetCommitKey(group, *tp) for tp in offsets)
        return
    for record in decode_batch(last.payload):
        key = record.key or b""
        yield transaction_records.decode_key(key) if isinstance(former, TransactionShard) else decode_key(key)
