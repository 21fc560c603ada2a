"""Reads back what is there in the end, for `check_history`: the logs of topics, and what groups have committed."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.base.types import TopicPartition
from ottla.client.admin.types import ConfigResource, OffsetSpec, ResourceType
from ottla.client.blocking.admin import Admin
from ottla.client.blocking.consumer import Consumer
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.several import several
from ottla.testing.history import History, LogRecord

#: How long one poll, or the time between two looks at the last stable offset, may be, in seconds.
_POLL_S: Final = 1.0
_LOOK_S: Final = 0.05


def value_as_text(record: ConsumerRecord) -> str:
    """The uid of a record whose value names it. Bytes that are no UTF-8 are escaped; no value is an empty text."""
    return bytes(record.value or b"").decode("utf-8", "backslashreplace")


def note_final_state(
    history: History,
    config: Mapping[str, object],
    topics: Iterable[str],
    groups: Iterable[str] = (),
    *,
    uid: Callable[[ConsumerRecord], str] = value_as_text,
    settle_s: float = 10.0,
    timeout_s: float = 60.0,
) -> dict[TopicPartition, tuple[LogRecord, ...]]:
    """Note in `history` all records of `topics` and the committed offsets of `groups`. Returns the records.

    Call it when all clients have finished. `config` is what a client needs to connect: `bootstrap.servers`, and perhaps
    keys of security. `uid` names a record as the test's notes do. Ottla's own client reads every partition twice, with
    each `isolation.level`: what only read_uncommitted returns is aborted, or its transaction is open. The markers of a
    transaction may be written after its commit was answered, so the last stable offset is waited for, `settle_s` at
    most; one that stays behind is noted as it is (stuck-lso).

    Raises TypeError for one name in the place of a list, TimeoutError when a partition was not read to its end within
    `timeout_s`, UnknownTopicOrPartitionError for a topic that is not there, and what else the clients raise
    (`ottla.client.errors`).
    """
    topics, groups = several(topics, "topics"), several(groups, "groups")
    with Admin(config) as admin:
        described = admin.describe_topics(topics)
        partitions = [TopicPartition(name, each.partition) for name in described for each in described[name].partitions]
        compacted = _compacted(admin, described)
        starts = _offsets(admin, partitions, OffsetSpec.EARLIEST)
        ends, stable = _ends(admin, partitions, settle_s)
        for group in groups:
            offsets = admin.list_group_offsets(group)
            history.positions(group, {tp: committed.offset for tp, committed in offsets.items()})
    everything = _read(config, "read_uncommitted", starts, ends, timeout_s)
    visible = _read(config, "read_committed", starts, stable, timeout_s)
    found = {}
    for tp in partitions:
        seen = {record.offset for record in visible[tp]}
        found[tp] = tuple(LogRecord(each.offset, uid(each), each.offset in seen) for each in everything[tp])
        history.log(
            tp,
            found[tp],
            start_offset=starts[tp],
            high_watermark=ends[tp],
            last_stable_offset=stable[tp],
            compacted=tp.topic in compacted,
        )
    return found


def _compacted(admin: Admin, topics: Iterable[str]) -> set[str]:
    """Topics of which a record may be missing because a later one has its key."""
    found = admin.describe_configs(ConfigResource(ResourceType.TOPIC, name) for name in topics)
    return {resource.name for resource, keys in found.items() if "compact" in (keys["cleanup.policy"].value or "")}


def _offsets(
    admin: Admin, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    found = admin.list_offsets(dict.fromkeys(partitions, spec), read_committed=read_committed)
    return {tp: at.offset for tp, at in found.items()}


def _ends(
    admin: Admin, partitions: list[TopicPartition], settle_s: float
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """High watermarks and last stable offsets, when they are the same, or when `settle_s` is over."""
    until_s = time.monotonic() + settle_s
    while True:
        stable = _offsets(admin, partitions, OffsetSpec.LATEST, read_committed=True)
        ends = _offsets(admin, partitions, OffsetSpec.LATEST)
        if stable == ends or time.monotonic() >= until_s:
            return ends, stable
        time.sleep(_LOOK_S)


def _read(
    config: Mapping[str, object],
    isolation: str,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    timeout_s: float,
) -> dict[TopicPartition, list[ConsumerRecord]]:
    """The records of each partition from its start up to its end."""
    until_s = time.monotonic() + timeout_s
    found: dict[TopicPartition, list[ConsumerRecord]] = {tp: [] for tp in starts}
    with Consumer({**config, "isolation.level": isolation, "auto.offset.reset": "none"}) as consumer:
        consumer.assign(starts)
        for tp, offset in starts.items():
            consumer.seek(tp, offset)
        while behind := [tp for tp in starts if consumer.position(tp) < ends[tp]]:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                at = ", ".join(f"{tp} at {consumer.position(tp)} of {ends[tp]}" for tp in behind)
                raise TimeoutError(f"not read to the end within {timeout_s:g} s ({isolation}): {at}")
            for record in consumer.poll(min(left_s, _POLL_S)):
                tp = TopicPartition(record.topic, record.partition)
                if record.offset < ends[tp]:
                    found[tp].append(record)
    return found
