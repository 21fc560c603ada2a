"""What the checkers of `ottla.testing.history` need of a world: its facts, and its logs in the end."""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final, NamedTuple, get_args

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.fetched import Decoding, FetchedPartition
from ottla.client.core.consumer.positions import PartitionState
from ottla.log.partition import PartitionLog
from ottla.log.results import Isolation
from ottla.testing.history import Anomaly, LogRecord
from ottla.testing.history import Event as Told
from ottla.testing.history.builder import FINAL_STATE
from ottla.testing.history.facts import Acknowledged, Drained, Fact, Log, Positions, Unknown
from ottla.wire.markers import parse_end_txn_marker
from ottla.wire.records import decode_batch
from sim.cluster.log import Entry
from sim.history import Event

__all__ = ["Anomaly", "FinalState", "LogRecord", "Told", "committed_records", "life_of", "records_of", "told"]

#: Everything else in a world's history is for people, or for `sim.known`.
_FACTS: Final = get_args(Fact)


class FinalState(NamedTuple):
    """What is read back when a world is over."""

    logs: Mapping[TopicPartition, list[LogRecord]]
    #: Partitions with an open transaction, and its first offset.
    open_transactions: Mapping[TopicPartition, int]
    #: The committed offsets of groups, as far as somebody coordinates them.
    positions: Mapping[str, Mapping[TopicPartition, int]]
    #: What each group has read from its beginning to its end.
    drained: tuple[Drained, ...] = ()
    #: Aborted records may have been cleaned away, so they were not read back.
    committed_only: bool = False


def told(events: Iterable[Event], final: FinalState, lost: Set[str], now_s: float) -> Iterator[Told]:
    """The facts of a world. Nothing is expected of records that are `lost`, although they were acknowledged: they
    went with
    the power, or with a damaged file."""
    for event in events:
        fact = event.data
        if isinstance(fact, Acknowledged) and fact.uid in lost:
            fact = Unknown(fact.uid, "lost with the power, or with a damaged file")
        if isinstance(fact, _FACTS):
            yield Told(event.at_s, event.who, fact)
    for tp, records in final.logs.items():
        first_open = final.open_transactions.get(tp)
        end = None if first_open is None else max(first_open, records[-1].offset if records else 0) + 1
        yield Told(now_s, FINAL_STATE, Log(tp, tuple(records), 0, end, first_open, final.committed_only))
    for group, offsets in final.positions.items():
        yield Told(now_s, FINAL_STATE, Positions(group, offsets))
    for drained in final.drained:
        yield Told(now_s, FINAL_STATE, drained)


def life_of(uid: str) -> str:
    """The life that has sent a record: `name.life` of `name.life.client-number`."""
    return ".".join(uid.split(".")[:2])


def committed_records(log: PartitionLog) -> list[LogRecord]:
    """What a reader of committed records finds in a log; cleaned, it need not have its markers any more."""
    state = PartitionState(log.tp)
    state.seek(log.log_start_offset)
    found: list[LogRecord] = []
    while True:
        read = log.read(state.position, 1 << 20, isolation=Isolation.READ_COMMITTED)
        data = b"".join(each.read() for each in read.slices)
        if not data:
            return found
        aborted = [(each.producer_id, each.first_offset) for each in read.aborted or ()]
        decoding = Decoding(check_crcs=True, read_committed=True, key=None, value=None)
        records = FetchedPartition(state, data, aborted, decoding).take_records(len(data))
        found += [LogRecord(each.offset, _uid(each.value), visible=True) for each in records]


def records_of(entries: list[Entry]) -> list[LogRecord]:
    """The data records of a log; `visible` follows from the end of their transactions."""
    found: list[LogRecord] = []
    open_at: dict[int, list[int]] = {}
    for entry in entries:
        header = entry.header
        if header.is_control:
            commit, _ = parse_end_txn_marker(entry.payload)
            for at in open_at.pop(header.producer_id, ()):
                found[at] = found[at]._replace(visible=commit)
            continue
        for record in decode_batch(entry.payload):
            uid = _uid(record.value)
            if header.is_transactional:
                open_at.setdefault(header.producer_id, []).append(len(found))
            found.append(LogRecord(record.offset, uid, visible=not header.is_transactional))
    return found


def _uid(value: bytes | None) -> str:
    return bytes(value or b"").rstrip(b".").decode()
