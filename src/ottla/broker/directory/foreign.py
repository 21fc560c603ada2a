"""Looks at a directory that this broker cannot start on, partition by partition.

It may be Apache Kafka's; or its metadata log is damaged, and then a start changes nothing. Each partition is recovered
by itself, with what the directory's checkpoints say of it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.directory.overlay import OverlayDisk
from ottla.broker.directory.state import Found, LogState, state_of
from ottla.broker.disk import Folder, InTheWayError
from ottla.broker.metadata.features import METADATA_VERSION_FEATURE, NEWEST_METADATA_VERSION
from ottla.broker.metadata.image import TOPIC_RESOURCE
from ottla.broker.metadata.names import META_PROPERTIES, METADATA_TOPIC
from ottla.broker.metadata.properties import read_properties
from ottla.broker.metadata.records import ConfigRecord, FeatureLevelRecord, TopicRecord, decode_record
from ottla.broker.runtime.checkpoints import Checkpoints
from ottla.broker.runtime.findings import told_of
from ottla.broker.runtime.manifest import MANIFEST
from ottla.broker.told import Kind, Tell, Told
from ottla.log.checkpoint import CLEANER_OFFSET_CHECKPOINT
from ottla.log.config import LogConfig
from ottla.log.names import LOG, base_offset
from ottla.log.partition import PartitionLog
from ottla.wire.batch import check_integrity, iter_headers
from ottla.wire.records import decode_batch

_METADATA_FOLDER: Final = f"{METADATA_TOPIC}-0"
#: What Apache Kafka's quorum writes beside its log: snapshots of the metadata, which are batches, and its vote.
_SNAPSHOT: Final = ".checkpoint"
_FIRST_METADATA: Final = "bootstrap.checkpoint"
_VOTE: Final = "quorum-state"
_POLICY: Final = (TOPIC_RESOURCE, "cleanup.policy")


def partition_of(folder: Folder) -> TopicPartition | None:
    """The partition that a folder's name says."""
    topic, _, number = folder.name.rpartition("-")
    return TopicPartition(topic, int(number)) if topic and number.isascii() and number.isdigit() else None


def look_around(overlay: OverlayDisk, config: BrokerConfig, clock: Clock, tell: Tell, *, is_theirs: bool) -> Found:
    """Open every partition's folder. `is_theirs`: the directory is Apache Kafka's."""
    if is_theirs:
        # It was ours perhaps. What we knew of the files then says nothing now.
        own = overlay.own_files()
        own.delete(MANIFEST)
        if own.read(CLEANER_OFFSET_CHECKPOINT) == b"":  # as Apache Kafka makes it, before its cleaner has cleaned
            own.delete(CLEANER_OFFSET_CHECKPOINT)
        _check_their_files(overlay, tell)
    known = Checkpoints(overlay.own_files(), is_used=not is_theirs, tell=tell)
    metadata = _Metadata(overlay)
    if metadata.version is not None and is_theirs and metadata.version > NEWEST_METADATA_VERSION:
        text = (
            f"{_METADATA_FOLDER}: {METADATA_VERSION_FEATURE} {metadata.version} is newer than that of Apache Kafka 4.3 "
            f"({NEWEST_METADATA_VERSION}), which this version of Ottla knows: what it does not know it cannot check"
        )
        tell(Told(Kind.NOTE, _METADATA_FOLDER, text))
    logs = []
    for folder in overlay.folders():
        tp = partition_of(folder)
        entries = overlay.entries(folder.name) or []
        if tp is None or not any(base_offset(entry.name, LOG) is not None for entry in entries):
            continue
        policy = frozenset({"delete"}) if tp.topic == METADATA_TOPIC else metadata.policy_of(tp.topic, config)
        state = _open(overlay, tp, policy, known, clock, tell, is_theirs=is_theirs)
        if state is not None:
            logs.append(state)
    return Found(metadata.version, tuple(sorted(logs, key=lambda each: each.tp)))


def _open(
    overlay: OverlayDisk,
    tp: TopicPartition,
    policy: frozenset[str],
    known: Checkpoints,
    clock: Clock,
    tell: Tell,
    *,
    is_theirs: bool,
) -> LogState | None:
    storage = overlay.open_folder(str(tp))
    config = LogConfig(cleanup_policy=policy)
    try:
        log = PartitionLog.open(
            tp,
            storage,
            config,
            clock.now_ms(),
            clean=known.clean,
            recovery_point=known.recovery_points.get(tp, 0),
            log_start_offset=known.log_start_offsets.get(tp),
            outside=known.outside(tp, is_known=False)._replace(is_theirs=is_theirs),
        )
        for told in told_of(tp, log.findings):
            tell(told)
        state = state_of(tp, log, storage, clock.now_ms(), compacts=config.compacts)
        log.close()
    except InTheWayError:
        return None  # `strays` tells it
    except (StorageError, CorruptDataError) as fault:
        tell(Told(Kind.DAMAGE, str(tp), f"{tp} cannot be opened: {fault}"))
        return None
    return state


class _Metadata:
    """What the metadata log says, as far as it can be read: no record of an unknown type stands in the way."""

    def __init__(self, overlay: OverlayDisk) -> None:
        self.version: int | None = None
        self._topics: set[str] = set()
        self._policies: dict[str, str | None] = {}
        for value in _values(overlay):
            with suppress(CorruptDataError):
                record = decode_record(value)
                if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION_FEATURE:
                    self.version = record.feature_level
                elif isinstance(record, TopicRecord):
                    self._topics.add(record.name)
                elif isinstance(record, ConfigRecord) and (record.resource_type, record.name) == _POLICY:
                    self._policies[record.resource_name] = record.value

    def policy_of(self, topic: str, config: BrokerConfig) -> frozenset[str]:
        """How a topic is cleaned up. If it is not known, it may be compacted: then missing offsets are nothing."""
        if topic not in self._topics:
            return frozenset({"compact"})
        own = self._policies.get(topic)
        return frozenset(
            config.list("log.cleanup.policy") if own is None else (word.strip() for word in own.split(","))
        )


def _values(overlay: OverlayDisk) -> Iterator[bytes]:
    """The values of the metadata's records: of the newest snapshot, then of the log."""
    storage = overlay.open_folder(_METADATA_FOLDER)
    names = storage.names()
    snapshots = [name for name in names if name.endswith(_SNAPSHOT)]
    for name in (*snapshots[-1:], *(name for name in names if base_offset(name, LOG) is not None)):
        content = storage.read(name) or b""
        with suppress(CorruptDataError):
            for position, header in iter_headers(content):
                batch = content[position : position + header.size_bytes]
                check_integrity(batch, 0, header)
                if not header.is_control:
                    yield from (record.value for record in decode_batch(batch) if record.value is not None)


def _check_their_files(overlay: OverlayDisk, tell: Tell) -> None:
    """Apache Kafka's own files, which no recovery of ours reads."""
    if read_properties(overlay) is None:
        tell(Told(Kind.DAMAGE, META_PROPERTIES, f"{META_PROPERTIES} is gone or damaged: put it back from a copy"))
    own, folder = overlay.own_files(), overlay.open_folder(_METADATA_FOLDER)
    if _FIRST_METADATA in own.names():
        _tell_fault(_FIRST_METADATA, own.read(_FIRST_METADATA) or b"", _check_batches, tell)
    for name in folder.names():
        path = f"{_METADATA_FOLDER}/{name}"
        if name.endswith(_SNAPSHOT) and name[:1].isdigit():
            _tell_fault(path, folder.read(name) or b"", _check_batches, tell)
        elif name == _VOTE:
            _tell_fault(path, folder.read(name) or b"", _check_json, tell)


def _tell_fault(path: str, content: bytes, check: Callable[[bytes], None], tell: Tell) -> None:
    try:
        check(content)
    except CorruptDataError as fault:
        tell(Told(Kind.DAMAGE, path, f"{path} is damaged ({fault}): put it back from a copy"))


def _check_batches(content: bytes) -> None:
    end = 0
    for position, header in iter_headers(content):
        check_integrity(content, position, header)
        end = position + header.size_bytes
    if end < len(content) or not content:
        raise CorruptDataError(f"no batch at position {end}")


def _check_json(content: bytes) -> None:
    try:
        found = json.loads(content)
    except ValueError as fault:
        raise CorruptDataError(str(fault)) from None
    if not isinstance(found, Mapping):
        raise CorruptDataError("it is no JSON object")
