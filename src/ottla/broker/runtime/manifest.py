"""`ottla-manifest`: what the data directory's other files should hold, so that a start notices when one was changed.

Kafka's checkpoints have no checksum: a digit that changed in the offset where a log begins would drop records, or bring
deleted ones back. A `.txnindex` has none either: if it is changed, or gone, readers are shown aborted records.
`meta.properties` has none: with another cluster id, clients would take this cluster for another one. And if a
partition's `damaged-offsets` is gone, or all files of a segment, nothing else may show that a compacted log has a hole.
If all of the metadata log's folder is an older copy, nothing in it says so. Apache Kafka ignores this file.

The files cannot be replaced together. So before one is replaced, the manifest holds the checksums of its old and of its
new content; a death in between is no damage.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.log.damage import OffsetRange
from ottla.log.storage import Storage
from ottla.log.txn_index import AbortsSeal
from ottla.wire.crc import crc32c

MANIFEST: Final = "ottla-manifest"
#: 1 had no checksums of `.txnindex` files.
_VERSION: Final = 2
#: In place of a checksum: there is no such file.
ABSENT: Final = -1


@dataclass(frozen=True, slots=True)
class Manifest:
    """What it says."""

    #: The checksums that each file may have.
    checksums: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: What the `.txnindex` of each segment must hold, by base offset.
    aborts: Mapping[TopicPartition, Mapping[int, AbortsSeal]] = field(default_factory=dict)
    #: The content of `meta.properties`; None when it is not known.
    properties: str | None = None
    #: Where flushed records of a partition are missing.
    holes: Mapping[TopicPartition, tuple[OffsetRange, ...]] = field(default_factory=dict)
    #: Base offsets of a partition's segments, as they were at a stop in order.
    bases: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    #: Below which offset a partition's records may be missing by compaction, in any segment, and also where the topic
    #: is not compacted any more.
    thinned: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: Each log's leader epochs begin where the log does, or before. Older versions let them begin behind a hole.
    epochs_reach_start: bool = False
    #: Up to where the metadata log was on the device; None when that is not known.
    metadata_end: int | None = None

    def fault_of(self, name: str, content: bytes | None) -> str | None:
        """What is wrong with a file; None when it is as it was left, or when nothing is known of it."""
        known = self.checksums.get(name)
        if known is None or checksum(content) in known:
            return None
        return "is gone" if content is None else f"is not as the broker has left it ({MANIFEST})"


def checksum(content: bytes | None) -> int:
    """A file's checksum."""
    return ABSENT if content is None else crc32c(content)


def encode_manifest(manifest: Manifest) -> bytes:
    """The file: a checksum of the rest in the first line, then JSON."""
    aborts = [
        [tp.topic, tp.partition, *([base, *seal] for base, seal in seals.items())]
        for tp, seals in sorted(manifest.aborts.items())
        if seals
    ]
    body = json.dumps(
        {
            "version": _VERSION,
            "checksums": {name: list(each) for name, each in manifest.checksums.items()},
            "aborts": aborts,
            "properties": manifest.properties,
            "holes": [[*tp, *holes] for tp, holes in sorted(manifest.holes.items())],
            "bases": [[*tp, *bases] for tp, bases in sorted(manifest.bases.items())],
            "thinned": [[*tp, below] for tp, below in sorted(manifest.thinned.items())],
            "epochs_reach_start": manifest.epochs_reach_start,
            "metadata_end": manifest.metadata_end,
        }
    ).encode()
    return f"{crc32c(body)}\n".encode() + body


def decode_manifest(content: bytes) -> Manifest:
    """CorruptDataError when it is not whole."""
    head, _, body = content.partition(b"\n")
    if head != str(crc32c(body)).encode():
        raise CorruptDataError("its checksum is wrong")
    try:
        return _manifest(json.loads(body))
    except (ValueError, KeyError, TypeError) as fault:  # the checksum is right: nobody has written it by accident
        raise CorruptDataError(f"it is no manifest: {fault}") from None


def _manifest(found: Any) -> Manifest:
    if found["version"] != _VERSION:
        raise CorruptDataError(f"it is of version {found['version']}")
    return Manifest(
        {name: tuple(each) for name, each in found["checksums"].items()},
        {
            TopicPartition(topic, number): {base: AbortsSeal(*seal) for base, *seal in seals}
            for topic, number, *seals in found["aborts"]
        },
        found.get("properties"),
        {
            TopicPartition(topic, number): tuple(OffsetRange(*hole) for hole in holes)
            for topic, number, *holes in found.get("holes", ())
        },
        {TopicPartition(topic, number): tuple(bases) for topic, number, *bases in found.get("bases", ())},
        {TopicPartition(topic, number): below for topic, number, below in found.get("thinned", ())},
        found.get("epochs_reach_start") is True,
        found.get("metadata_end"),
    )


def sealed_properties(storage: Storage) -> str | None:
    """What `meta.properties` held when the broker saw it last; None when that is not known."""
    return _sealed(storage).properties


def sealed_metadata_end(storage: Storage) -> int | None:
    """Up to where the metadata log must reach; None when that is not known."""
    return _sealed(storage).metadata_end


def _sealed(storage: Storage) -> Manifest:
    content = storage.read(MANIFEST)
    with suppress(CorruptDataError):  # told by who reads the rest
        return Manifest() if content is None else decode_manifest(content)
    return Manifest()


def either(before: Iterable[int], now: int) -> tuple[int, ...]:
    """The checksums that a file may have while it is replaced."""
    return (*(each for each in before if each != now), now)
