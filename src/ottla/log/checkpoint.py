"""Kafka's small text files: checkpoints, partition.metadata, the clean-shutdown marker. Pure encode and decode.

A checkpoint is a version line, a count line, and one line per entry:

    0                                   0
    2                                   1
    orders 0 4711                       0 0
    orders 1 12
    recovery-point-offset-checkpoint    leader-epoch-checkpoint

The data directory has four of them (recovery point, log start offset, high watermark, and how far each compacted log
is clean): they map partitions to offsets.
The broker writes these and the marker. The partition writes its leader epochs and partition.metadata.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition, topic_id_bytes, topic_id_text
from ottla.log.names import MAX_OFFSET

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_MARKER: Final = ".kafka_cleanshutdown"
_VERSION: Final = "0"
_DIGITS: Final = len(str(MAX_OFFSET))


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """A checkpoint of the data directory."""
    return _encode(f"{each.topic} {each.partition} {offset}" for each, offset in sorted(offsets.items()))


def decode_offsets(content: bytes) -> dict[TopicPartition, int]:
    """Reads what `encode_offsets`, or Kafka, has written. CorruptDataError when the content is not a checkpoint."""
    offsets = {}
    for fields in _decode(content, fields_per_line=3):
        topic, partition, offset = fields
        offsets[TopicPartition(topic, _number(partition))] = _number(offset)
    return offsets


def encode_leader_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """leader-epoch-checkpoint from (epoch, start offset) pairs."""
    return _encode(f"{epoch} {start_offset}" for epoch, start_offset in epochs)


def decode_leader_epochs(content: bytes) -> list[tuple[int, int]]:
    """(epoch, start offset) pairs; CorruptDataError when the content is no checkpoint of leader epochs."""
    return [(_number(epoch), _number(start)) for epoch, start in _decode(content, fields_per_line=2)]


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """partition.metadata: the 16 bytes of the topic id in Kafka's 22 letters (KIP-516)."""
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}".encode()


def decode_partition_metadata(content: bytes) -> bytes:
    """The topic id's 16 bytes; CorruptDataError when the file does not hold one."""
    fields = dict(map(_field, content.decode("utf-8", "replace").split("\n")))
    if fields.get("version") != "0":
        raise CorruptDataError(f"partition.metadata is of version {fields.get('version')!r}, not 0")
    text = fields.get("topic_id")
    if text is None:
        raise CorruptDataError("partition.metadata has no topic_id line")
    topic_id = topic_id_bytes(text)
    if topic_id_text(topic_id) != text:
        raise CorruptDataError(f"partition.metadata has no topic id: {text!r}")
    return topic_id


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    """The marker that lets the next start skip recovery (KIP-966's form)."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def is_clean_shutdown(content: bytes | None) -> bool:
    """Whether the marker says that the broker stopped in order; None: there is none.

    CorruptDataError when no broker has left this. Brokers before KIP-966 left it empty.
    """
    if not content:
        return content is not None
    try:
        fields = json.loads(content)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not isinstance(fields.get("version"), int):
        raise CorruptDataError(f"no mark of a clean shutdown: {content[:40]!r}")
    return True


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode()


def _decode(content: bytes, *, fields_per_line: int) -> list[list[str]]:
    text = content.decode("utf-8", "replace")
    lines = text.splitlines()
    if len(lines) < 2 or lines[0].strip() != _VERSION:
        raise CorruptDataError(f"not a checkpoint of version {_VERSION}: {lines[:1]}")
    if not text.endswith("\n"):  # its last number may have lost digits
        raise CorruptDataError(f"checkpoint ends in the middle of a line: {lines[-1]!r}")
    count, entries = _number(lines[1]), [line.split() for line in lines[2:] if line.strip()]
    if count != len(entries) or any(len(entry) != fields_per_line for entry in entries):
        raise CorruptDataError(f"checkpoint says {count} entries of {fields_per_line} fields, holds {entries[:3]}…")
    return entries


def _number(text: str) -> int:
    """An offset, an epoch, a partition or a count: 0 to 2⁶³ - 1."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) <= MAX_OFFSET):
        raise CorruptDataError(f"checkpoint: {text!r} is not a number from 0 to {MAX_OFFSET}")
    return int(text)
