"""`ottla dump-log`: shows what is in a log directory's files, ours or Apache Kafka's. It needs no broker."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import Annotated

import typer

from ottla.base.errors import CorruptDataError
from ottla.cli.common import CommandError

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_TXN_ENTRY = Struct(">hqqqq")

#: Control records of Apache Kafka's quorum, by their type; 0 and 1 end transactions.
_QUORUM_RECORDS = {
    2: "leader change",
    3: "snapshot header",
    4: "snapshot footer",
    5: "kraft version",
    6: "kraft voters",
}

Row = dict[str, object]


def dump_log(
    paths: Annotated[list[Path], typer.Argument(help="Files of a log, or a partition's whole directory.")],
    records: Annotated[bool, typer.Option("--records", help="Print every record, not only batches.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print segments (.log), indexes (.index, .timeindex, .txnindex) and producer snapshots (.snapshot).

    Every batch's CRC is checked, and every entry of .index and .timeindex against the segment beside it. Records of
    `__consumer_offsets`, `__transaction_state` and `__cluster_metadata` are shown decoded. Exits 1 at the first thing
    that is corrupt.

    Example: `ottla dump-log --records ./data/orders-0`
    """
    for path in _files(paths):
        if not as_json:
            print(f"{path}:")
        for row in rows_of(path, with_records=records):
            print(json.dumps({"file": str(path), **row}) if as_json else "  " + _line(row))


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(each for each in path.iterdir() if each.suffix in _READERS)
            if not found:
                raise CommandError(f"{path} holds no log files; name a partition's directory, such as data/orders-0")
            yield from found
        elif not path.exists():
            raise CommandError(f"{path} does not exist; name a file such as data/orders-0/00000000000000000000.log")
        else:
            yield path


def rows_of(path: Path, *, with_records: bool = False) -> Iterator[Row]:
    """What one file holds, entry by entry. CommandError for a kind of file that is not known, CorruptDataError."""
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise CommandError(f"{path}: cannot tell what this is; known are {', '.join(sorted(_READERS))}")
    content = path.read_bytes()
    if path.suffix == ".log":
        yield from _segment(content, _record_decoder(path.parent.name) if with_records else None)
    else:
        yield from reader(content, path)


RecordDecoder = Callable[[bytes | None, bytes | None], Row]


def _segment(content: bytes, decoder: RecordDecoder | None) -> Iterator[Row]:
    from ottla.wire.batch import check_integrity, iter_headers

    end = 0
    for position, header in iter_headers(content):
        check_integrity(content, position, header)
        end = position + header.size_bytes
        row: Row = {
            "offsets": f"{header.base_offset}-{header.last_offset}",
            "position": position,
            "size_bytes": header.size_bytes,
            "records": header.record_count,
            "compression": header.compression.name.lower(),
            "max_timestamp_ms": header.max_timestamp_ms,
            "leader_epoch": header.partition_leader_epoch,
        }
        if header.has_producer_id:
            row |= {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
            if header.base_sequence >= 0:  # markers and a coordinator's own batches have none
                row |= {"sequences": f"{header.base_sequence}-{header.last_sequence}"}
        row["transactional"] = header.is_transactional
        if header.is_control:
            row |= _control(content[position:end])
        yield row
        if decoder is not None and not header.is_control:
            yield from _records(content[position:end], decoder)
    if end < len(content) and any(content[end:]):
        yield {"torn_bytes": len(content) - end, "position": end}


def _control(batch: bytes) -> Row:
    """A transaction's marker, or what Apache Kafka's quorum writes between its records (KIP-595)."""
    from ottla.wire.markers import parse_end_txn_marker
    from ottla.wire.records import decode_batch

    kinds = [int.from_bytes((record.key or b"")[2:4], "big") for record in decode_batch(batch)]
    if not kinds:
        return {"marker": "compacted away"}
    if all(kind in _QUORUM_RECORDS for kind in kinds):
        return {"control": [_QUORUM_RECORDS[kind] for kind in kinds]}
    commit, coordinator_epoch = parse_end_txn_marker(batch)
    return {"marker": "commit" if commit else "abort", "coordinator_epoch": coordinator_epoch}


def _records(batch: bytes, decoder: RecordDecoder) -> Iterator[Row]:
    from ottla.wire.records import decode_batch

    for record in decode_batch(batch):
        row: Row = {"offset": record.offset, "timestamp_ms": record.timestamp_ms, **decoder(record.key, record.value)}
        if record.headers:
            row["headers"] = {name: _text(value) for name, value in record.headers}
        yield row


def _record_decoder(directory: str) -> RecordDecoder:
    """How records of the partition in `directory` are shown."""
    topic = directory.rpartition("-")[0]
    return _DECODERS.get(topic, _plain_record)


def _plain_record(key: bytes | None, value: bytes | None) -> Row:
    return {"key": _text(key), "value": _text(value)}


def _group_record(key: bytes | None, value: bytes | None) -> Row:
    from ottla.wire import offsets_records as schema

    about = schema.decode_key(key or b"")
    if about is None:
        return _plain_record(key, value)
    if value is None:
        return {"key": about._asdict(), "value": None}
    if isinstance(about, schema.OffsetCommitKey):
        return {"key": about._asdict(), "value": _struct(schema.decode_offset_commit_value(value))}
    return {"key": about._asdict(), "value": _struct(schema.decode_group_metadata_value(value))}


def _transaction_record(key: bytes | None, value: bytes | None) -> Row:
    from ottla.wire import transaction_records as schema

    transactional_id = schema.decode_key(key or b"")
    if transactional_id is None:
        return _plain_record(key, value)
    return {
        "transactional_id": transactional_id,
        "value": None if value is None else _struct(schema.decode_value(value)),
    }


def _metadata_record(key: bytes | None, value: bytes | None) -> Row:
    from ottla.base.types import topic_id_text
    from ottla.broker.metadata.records import UserScramCredentialRecord, decode_record

    try:
        record = decode_record(value or b"")
    except CorruptDataError:  # a type that Apache Kafka writes and Ottla does not
        return _plain_record(key, value)
    if isinstance(record, UserScramCredentialRecord):  # whoever sees the keys can try passwords against them
        hidden = dict.fromkeys(("salt", "stored_key", "server_key"), "[hidden]")
        return {"type": type(record).__name__, "value": {**record._asdict(), **hidden}}
    return {"type": type(record).__name__, "value": _struct(record, topic_id_text)}


def _struct(value: object, text: Callable[[bytes], str | None] | None = None) -> object:
    """A decoded struct as plain data, its bytes through `text`."""
    fields = getattr(value, "_asdict", None)
    if fields is not None:
        return {name: _struct(each, text) for name, each in fields().items()}
    if isinstance(value, tuple):
        return [_struct(each, text) for each in value]
    return (text or _text)(value) if isinstance(value, bytes) else value


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _base_offset(path: Path) -> int:
    try:
        return int(path.stem)
    except ValueError:
        raise CommandError(f"{path}: the name of a log file is its base offset, twenty digits") from None


class _Segment:
    """The batches beside an index, with which the index's entries must agree."""

    def __init__(self, index: Path) -> None:
        from ottla.wire.batch import iter_headers

        batches = list(iter_headers(index.with_suffix(".log").read_bytes()))
        self._first_at = {position: header.base_offset for position, header in batches}
        self._first = [header.base_offset for _position, header in batches]
        self._newest_ms = list(accumulate((header.max_timestamp_ms for _position, header in batches), max))
        self._last_offset = batches[-1][1].last_offset if batches else -1

    @classmethod
    def beside(cls, index: Path) -> _Segment | None:
        """None when the index is there alone."""
        return cls(index) if index.with_suffix(".log").exists() else None

    def check_offset(self, index: Path, offset: int, position: int) -> None:
        """CorruptDataError unless a search for `offset` may begin at `position`."""
        first = self._first_at.get(position)
        if first is None:
            raise CorruptDataError(f"{index}: no batch starts at position {position}, where the index points")
        self._require_there(index, offset)
        if offset < first:
            raise CorruptDataError(f"{index}: offset {offset} lies before position {position}, where the index points")

    def check_timestamp(self, index: Path, timestamp_ms: int, offset: int) -> None:
        """CorruptDataError unless `timestamp_ms` is the newest up to the batch of `offset`."""
        self._require_there(index, offset)
        newest_ms = self._newest_ms[bisect_right(self._first, offset) - 1]
        if timestamp_ms != newest_ms:
            raise CorruptDataError(
                f"{index}: the newest timestamp up to offset {offset} is {newest_ms}, not {timestamp_ms}"
            )

    def _require_there(self, index: Path, offset: int) -> None:
        if not self._first or not self._first[0] <= offset <= self._last_offset:
            raise CorruptDataError(f"{index}: offset {offset} is not in the segment")


def _offset_index(content: bytes, path: Path) -> Iterator[Row]:
    base, segment = _base_offset(path), _Segment.beside(path)
    before = (-1, -1)
    for relative, position in _entries(_OFFSET_ENTRY, content, path):
        offset = base + relative
        if segment is not None:
            segment.check_offset(path, offset, position)
        if offset <= before[0] or position <= before[1]:
            raise CorruptDataError(
                f"{path}: {offset} at position {position} does not follow {before[0]} at {before[1]}"
            )
        before = (offset, position)
        yield {"offset": offset, "position": position}


def _time_index(content: bytes, path: Path) -> Iterator[Row]:
    base, segment = _base_offset(path), _Segment.beside(path)
    before = (-1, -1)
    for timestamp_ms, relative in _entries(_TIME_ENTRY, content, path):
        offset = base + relative
        if segment is not None:
            segment.check_timestamp(path, timestamp_ms, offset)
        if timestamp_ms <= before[0] or offset < before[1]:
            raise CorruptDataError(
                f"{path}: timestamp {timestamp_ms} of offset {offset} does not follow {before[0]} of {before[1]}"
            )
        before = (timestamp_ms, offset)
        yield {"timestamp_ms": timestamp_ms, "offset": offset}


def _entries(entry: Struct, content: bytes, path: Path) -> Iterator[tuple[int, ...]]:
    """The entries of an index, without the zeros that Apache Kafka leaves at the end of one it has not closed."""
    used = -(-len(content.rstrip(b"\0")) // entry.size) * entry.size
    if used > len(content):
        raise CorruptDataError(f"{path}: {len(content) % entry.size} bytes at the end are no whole entry")
    return entry.iter_unpack(content[:used])


def _txn_index(content: bytes, _path: Path) -> Iterator[Row]:
    for version, producer_id, first, last, last_stable in _whole(_TXN_ENTRY, content):
        yield {
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": last_stable,
        }


def _snapshot(content: bytes, path: Path) -> Iterator[Row]:
    from ottla.log.snapshot import decode_snapshot

    for entry in decode_snapshot(content, _base_offset(path)).producers.values():
        last = entry.batches[-1] if entry.batches else None
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": last.last_offset if last else -1,
            "last_timestamp_ms": entry.last_timestamp_ms,
            "coordinator_epoch": entry.coordinator_epoch,
            "open_transaction_first_offset": entry.txn_first_offset,
            "known_batches": ",".join(f"{each.first_sequence}-{each.last_sequence}" for each in entry.batches),
        }


def _whole(entry: Struct, content: bytes) -> Iterator[tuple[int, ...]]:
    return entry.iter_unpack(content[: len(content) - len(content) % entry.size])


_DECODERS: Mapping[str, RecordDecoder] = {
    "__consumer_offsets": _group_record,
    "__transaction_state": _transaction_record,
    "__cluster_metadata": _metadata_record,
}

_READERS: Mapping[str, Callable[[bytes, Path], Iterator[Row]]] = {
    ".log": lambda content, _path: _segment(content, None),
    ".index": _offset_index,
    ".timeindex": _time_index,
    ".txnindex": _txn_index,
    ".snapshot": _snapshot,
}


def _line(row: Row) -> str:
    line = "  ".join(f"{name}: {value}" for name, value in row.items())
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
