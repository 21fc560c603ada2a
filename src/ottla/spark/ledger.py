"""The ledger of exactly-once sinks: what its records say, and how they are read.

A sink with the id S writes a Spark micro-batch in *slots*, one per Spark partition. Each slot is a Kafka transaction
of its own; beside the user's records it holds a **slot marker** in the ledger topic. When all slots are flushed, the
driver writes a **decision**, in a transaction of its own id, that names every slot's transaction; from then on the
batch counts as committed. It then ends the slots' transactions and writes **done**.

A marker is in the same transaction as the records it stands for: when the marker is committed, so are the records. So
the ledger is the proof of what was written, even after the broker has forgotten transactional and producer ids.

A reader of the ledger reads up to the high watermark and not only up to the last stable offset. It must find a decision
although slots' transactions that began earlier are still open. So `Ledger` applies control records itself.

Batches use the same keys again, and only the last record of a key is needed. So the topic may be compacted, and Ottla
creates it so. When another query has decided, only one small record of a complete query stays: its last decision,
without the slots. `Ledger.leftovers` says how the other records go. This module is pure.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.spark.errors import LedgerFormatError
from ottla.spark.ids import PREFIX
from ottla.spark.packed import packed, unpacked

#: The version of the JSON forms below, written into every value; the second one is that of packed slots.
FORMAT_VERSION, _PACKED_VERSION = 1, 2
#: The slots of a decision that take more are packed. They are one record, and a topic takes a megabyte unless it is set
#: otherwise. Those of a smaller one are as versions before can read them.
_PLAIN_BYTES: Final = 262_144
#: So many slots fit into a decision, whatever is in them.
MOST_SLOTS: Final = 40_000
#: The form of the writer's transactional ids (`ottla.spark.ids`), written into every value. The former form, without a
#: prefix, was number 1 and was not written.
ID_FORM = 2


class Handle(NamedTuple):
    """The right to end an open Kafka transaction, or to begin the next one.

    Any process that knows these three values has that right, over any connection.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int


class BatchKey(NamedTuple):
    """A micro-batch: the query's id (stable over restarts from one checkpoint) and the batch's number."""

    query: str
    batch: int


class SlotMarker(NamedTuple):
    """What one slot wrote for one batch: its number of rows and their digest (hexadecimal)."""

    key: BatchKey
    slot: int
    rows: int
    digest: str


class SlotDecision(NamedTuple):
    """One slot in a decision. `handle` is None for a slot without rows, and for one whose rows are committed already or
    with the decision. Where the slots are many, the ledger has no digests here: those of the markers count."""

    slot: int
    rows: int
    digest: str
    handle: Handle | None


class Plan(NamedTuple):
    """What a batch was planned to read and where it writes.

    A replay has the same plan, even if it computes other rows; a new batch with the same number has another.
    """

    #: Digest (hexadecimal) of the checkpoint's offsets/N; None if the sink could not read it.
    offsets: str | None = None
    #: The option `topic`.
    topic: str | None = None


#: The query of all batch writes without the option queryId; the sink numbers them itself. They share one name so that
#: their keys repeat. No query of Spark's, and no queryId, begins like that.
UNNAMED: Final = f"{PREFIX}unnamed"

#: The plan of a batch of which nothing is known.
NO_PLAN: Final = Plan()


class Decision(NamedTuple):
    """The commit point of a batch. `driver` is the handle of the claim under which the decision was made.

    A decision without slots is what a later claim has left of the decision of a complete batch.
    """

    key: BatchKey
    driver: Handle
    slots: tuple[SlotDecision, ...]
    plan: Plan = NO_PLAN


class Done(NamedTuple):
    """Every slot of the batch is committed.

    `driver` is that of the decision. A driver that was stopped may write its done very late, when the batch was given
    up (`ottla pipeline resolve`) and decided anew; then it says nothing. Records of before have no driver, and count.
    """

    key: BatchKey
    driver: Handle | None = None


class Forgotten(NamedTuple):
    """A tombstone: for compaction, no record of `query` of this kind (and slot) was ever there."""

    query: str
    kind: str
    slot: int | None = None


class ReadMark(NamedTuple):
    """Somebody reads the ledger: whoever finds this record has found all that was there before it.

    Otherwise it says nothing, and it is a tombstone: compaction removes it.
    """


LedgerRecord = SlotMarker | Decision | Done | Forgotten | ReadMark
#: The kind of a `ReadMark` in its key. Its query is "", for readers of before, who take it for a `Forgotten`.
_READ_MARK = "read"


class Leftover(NamedTuple):
    """Records of a complete query that nobody needs any more. It is short, because a claim carries it to every task."""

    #: The query's last decision, without its slots. It stays.
    decision: Decision
    #: Whether the ledger has that decision with its slots.
    has_slots: bool
    #: Whether the ledger has a done of the query.
    has_done: bool
    #: The slots of which the ledger has a marker.
    markers: tuple[int, ...]

    @property
    def query(self) -> str:
        """The query's id."""
        return self.decision.key.query

    def records(self) -> list[LedgerRecord]:
        """The records that put the decision in the place of all others; none if it is alone already.

        They are in an order in which each beginning of the list does no harm.
        """
        records: list[LedgerRecord] = [self.decision] if self.has_slots else []
        if self.has_done:
            records.append(Forgotten(self.query, "done"))
        return records + [Forgotten(self.query, "slot", slot) for slot in self.markers]


class Entry(NamedTuple):
    """What one record of the ledger topic says."""

    sink: str
    record: LedgerRecord
    #: Whether the writer's transactional ids have the former form.
    former_ids: bool = False


class LedgerBatch(NamedTuple):
    """One record batch of the ledger topic. `commit` is None for data; for a control record it says which end it is."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    commit: bool | None
    records: tuple[tuple[bytes | None, bytes | None], ...]


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def encode(sink: str, record: LedgerRecord) -> tuple[bytes, bytes | None]:
    """The key and value of `record` in the ledger topic, for the sink with id `sink`."""
    if isinstance(record, ReadMark):
        return _json({"sink": sink, "query": "", "kind": _READ_MARK}), None
    if isinstance(record, Forgotten):
        slot_of = {} if record.slot is None else {"slot": record.slot}
        return _json({"sink": sink, "query": record.query, "kind": record.kind, **slot_of}), None
    key: dict[str, object] = {"sink": sink, "query": record.key.query}
    value: dict[str, object] = {"v": FORMAT_VERSION, "ids": ID_FORM, "batch": record.key.batch}
    match record:
        case SlotMarker(_, slot, rows, digest):
            key |= {"kind": "slot", "slot": slot}
            value |= {"rows": rows, "digest": digest}
        case Decision(_, driver, slots, plan):
            key |= {"kind": "decision"}
            value |= {"driver": driver, "slots": slots, "plan": plan}
            if len(_json(slots)) > _PLAIN_BYTES:
                value |= {"v": _PACKED_VERSION, "slots": packed([slot._replace(digest="") for slot in slots])}
        case Done(_, driver):
            key |= {"kind": "done"}
            value |= {} if driver is None else {"driver": driver}
    return _json(key), _json(value)


def decode(key: bytes | None, value: bytes | None) -> Entry:
    """What one record of the ledger topic says. Raises LedgerFormatError."""
    try:
        name = json.loads(key or b"null")
        sink: str = name["sink"]
        if value is None and name["kind"] == _READ_MARK:
            return Entry(sink, ReadMark())
        if value is None:
            return Entry(sink, Forgotten(name["query"], name["kind"], name.get("slot")))
        body = json.loads(value)
        if body["v"] not in (FORMAT_VERSION, _PACKED_VERSION if name["kind"] == "decision" else FORMAT_VERSION):
            raise LedgerFormatError(f"ledger record {name} has format {body['v']}: a newer Ottla has written it")
        return Entry(sink, _record(name, body), "ids" not in body)
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerFormatError(f"not a record of an Ottla ledger: key {key!r}") from error


def _record(name: dict[str, Any], body: dict[str, Any]) -> LedgerRecord:
    batch = BatchKey(name["query"], body["batch"])
    match name["kind"]:
        case "slot":
            return SlotMarker(batch, name["slot"], body["rows"], body["digest"])
        case "decision":
            is_packed = body["v"] == _PACKED_VERSION
            slots = tuple(map(_slot, unpacked(body["slots"]) if is_packed else body["slots"]))
            return Decision(batch, Handle(*body["driver"]), slots, Plan(*body.get("plan", ())))
        case "done":
            return Done(batch, Handle(*body["driver"]) if "driver" in body else None)
        case kind:
            raise LedgerFormatError(f"ledger record of an unknown kind {kind!r}")


def _slot(fields: list[object]) -> SlotDecision:
    slot, rows, digest, handle = fields
    return SlotDecision(slot, rows, digest, Handle(*handle) if isinstance(handle, list) else None)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class QueryPast:
    """What the ledger proves about one query; by it a task knows whether to write, verify or skip its slot."""

    #: The last batch whose slots are all committed; -1 if none.
    complete: int = -1
    #: The newest batch that is decided, or has a committed slot; -1 if none.
    latest: int = -1
    #: The committed slots of batch `latest` while it is not complete.
    committed: tuple[SlotMarker, ...] = ()
    #: What batch `latest` was planned to do.
    plan: Plan = NO_PLAN


@dataclass(slots=True)
class _QueryLedger:
    decision: Decision | None = None
    last_done: Done | None = None
    markers: dict[int, SlotMarker] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """The last batch that is done; -1 if none. A done stands beside a decision of its query, or it is too late."""
        done, decision = self.last_done, self.decision
        if done is None or decision is None:
            return -1
        if done.key == decision.key and done.driver not in (None, decision.driver):
            return -1
        return done.key.batch

    def is_complete(self, decision: Decision) -> bool:
        if self.done >= decision.key.batch:
            return True
        return all(
            slot.handle is None or ((marker := self.markers.get(slot.slot)) is not None and marker.key == decision.key)
            for slot in decision.slots
        )

    def forget(self, kind: str, slot: int | None) -> None:
        match kind:
            case "slot" if slot is not None:
                self.markers.pop(slot, None)
            case "decision":
                self.decision = None
            case "done":
                self.last_done = None

    def leftover(self) -> Leftover | None:
        """What nobody needs any more, if the query is complete and its decision alone can prove that."""
        past, decision = self.past(), self.decision
        if decision is None or not decision.key.batch == past.complete == past.latest:
            return None
        return Leftover(
            decision._replace(slots=()), bool(decision.slots), self.last_done is not None, tuple(sorted(self.markers))
        )

    def past(self) -> QueryPast:
        complete, latest, plan = self.done, max((m.key.batch for m in self.markers.values()), default=-1), NO_PLAN
        if self.decision is not None:
            batch = self.decision.key.batch
            if self.is_complete(self.decision):
                complete = max(complete, batch)
            if batch >= latest:
                latest, plan = batch, self.decision.plan
        partial = tuple(m for _, m in sorted(self.markers.items()) if m.key.batch == latest and latest > complete)
        return QueryPast(complete, max(latest, complete), partial, plan)


class Ledger:
    """The ledger as one sink sees it: the sum of the topic's batches up to `next_offset`.

    Only `apply` changes it. Records of a transaction count once its commit marker has been applied.
    """

    def __init__(self, sink: str) -> None:
        self.sink = sink
        self.next_offset = 0
        #: Whether a sink with transactional ids of the former form may have something open: it has written here since
        #: the last decision under ids of today's form. Records of open and aborted transactions tell so, too.
        self.has_former_ids = False
        #: The query of the last committed decision.
        self._last: str | None = None
        self._queries: dict[str, _QueryLedger] = {}
        #: For each query the sinks that have decided batches of it, this one too, and the last such batch of each.
        self._sinks: dict[str, dict[str, int]] = {}
        #: What is in a transaction that has not ended yet: producer id → epoch and records.
        self._pending: dict[int, tuple[int, list[Entry]]] = {}

    def anew(self) -> "Ledger":
        """One of the same sink that has read nothing."""
        return Ledger(self.sink)

    def apply(self, batches: Iterable[LedgerBatch]) -> None:
        """Take in batches of the topic, in order. Batches below `next_offset` are known already and are skipped."""
        for batch in batches:
            if batch.last_offset >= self.next_offset:
                self._apply(batch)
                self.next_offset = batch.last_offset + 1

    def _apply(self, batch: LedgerBatch) -> None:
        if batch.commit is not None:
            # A control record ends what its producer has open, whatever the record's epoch. With KIP-890 that epoch is
            # already the one of the next transaction.
            _, ended = self._pending.pop(batch.producer_id, (0, []))
            if batch.commit:
                self._commit(ended)
            return
        entries = (decode(k, v) for k, v in batch.records)
        mine = [entry for entry in entries if entry.sink == self.sink or _is_of_a_decision(entry.record)]
        self.has_former_ids |= any(entry.former_ids for entry in mine if entry.sink == self.sink)
        if not batch.transactional:
            self._commit(mine)
        elif mine:
            epoch, before = self._pending.get(batch.producer_id, (batch.producer_epoch, []))
            if epoch != batch.producer_epoch:
                # Each transaction of a sink has an epoch of its own, so the one before is over. Compaction has removed
                # its end since this ledger was last read, and does so only when no record of it counts any more.
                before = []
            self._pending[batch.producer_id] = batch.producer_epoch, before + mine

    def _commit(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if isinstance(entry.record, ReadMark):
                continue
            name = entry.record.query if isinstance(entry.record, Forgotten) else entry.record.key.query
            if _is_of_a_decision(entry.record):
                sinks = self._sinks.setdefault(name, {})
                sinks.pop(entry.sink, None)
                if isinstance(entry.record, Decision):
                    sinks[entry.sink] = entry.record.key.batch
            if entry.sink != self.sink:
                continue
            query = self._queries.setdefault(name, _QueryLedger())
            match entry.record:
                case SlotMarker() as marker:
                    query.markers[marker.slot] = marker
                case Decision() as decision:
                    query.decision = decision
                    if decision.slots:
                        self._last, self.has_former_ids = name, entry.former_ids
                case Done(key) as done:
                    if query.last_done is None or key.batch >= query.last_done.key.batch:
                        query.last_done = done
                case Forgotten(_, kind, slot):
                    query.forget(kind, slot)

    @property
    def last_query(self) -> str | None:
        """The query of the last committed decision."""
        return self._last

    def sinks_of(self, query: str) -> dict[str, int]:
        """The sinks of this ledger that have decided batches of `query`, and the last such batch of each."""
        return dict(self._sinks.get(query, {}))

    def has_decided(self, sink: str) -> bool:
        """Whether the ledger has a decision of `sink`, which may be another than this one."""
        return any(sink in sinks for sinks in self._sinks.values())

    def undone(self) -> list[Decision]:
        """Committed decisions without a Done record: their slots' transactions may still be open."""
        decisions = [query.decision for query in self._queries.values() if query.decision is not None]
        return [d for d in decisions if d.slots and d.key.batch > self._queries[d.key.query].done]

    def leftovers(self, enough: int) -> tuple[Leftover, ...]:
        """Records that can go, and change nothing of what the ledger tells.

        They belong to complete queries, all but the one that decided last. The decision of each stays, without its
        slots: a replay is known by it for good. The other records get tombstones. The query that makes them `enough`
        is the last one.

        Only the holder of a claim may write them, in its decision's transaction, and none of the query that decides:
        the older decision would take the place of the new one. The claim has ended whatever these queries had open, so
        no marker can come after its tombstone and still count. A decision's key is written in such transactions alone,
        so no earlier driver can put an older decision in its place. With a done it could, as that is written in no
        transaction: therefore the done goes, and the decision stays.
        """
        found: list[Leftover] = []
        for name, query in self._queries.items():
            left = query.leftover() if name != self._last else None
            if left is not None and (records := len(left.records())):
                found.append(left)
                enough -= records
            if enough <= 0:
                break
        return tuple(found)

    def decision(self, query: str) -> Decision | None:
        """The last committed decision of `query`."""
        found = self._queries.get(query)
        return found.decision if found else None

    def decisions(self) -> dict[str, Decision]:
        """The last committed decision of each query."""
        return {name: query.decision for name, query in self._queries.items() if query.decision is not None}

    def kept(self, query: str) -> tuple[LedgerRecord, ...]:
        """Every record of `query` that counts."""
        found = self._queries.get(query, _QueryLedger())
        records: list[LedgerRecord] = [marker for _, marker in sorted(found.markers.items())]
        records += [each for each in (found.decision, found.last_done) if each is not None]
        return tuple(records)

    def past(self) -> dict[str, QueryPast]:
        """What the ledger proves about every query that has written through this sink."""
        return {name: query.past() for name, query in self._queries.items()}


def _is_of_a_decision(record: LedgerRecord) -> bool:
    return isinstance(record, Decision) or (isinstance(record, Forgotten) and record.kind == "decision")


def _writers(batch: LedgerBatch) -> set[str]:
    """The sinks that have written in `batch`; who has only read is none."""
    entries = (decode(key, value) for key, value in batch.records)
    return {entry.sink for entry in entries if not isinstance(entry.record, ReadMark)}


class Ledgers:
    """The ledger topic as all of its sinks see it, for those who look at it."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.of: dict[str, Ledger] = {}

    def anew(self) -> "Ledgers":
        """One that has read nothing."""
        return Ledgers()

    def apply(self, batches: Iterable[LedgerBatch]) -> None:
        """Take in batches of the topic, in order. Raises LedgerFormatError."""
        for batch in batches:
            if batch.last_offset >= self.next_offset:
                # A control record may end a transaction of any sink; whoever has nothing pending passes over it.
                sinks = _writers(batch) if batch.commit is None else self.of
                for sink in sinks:
                    self.of.setdefault(sink, Ledger(sink)).apply([batch])
                self.next_offset = batch.last_offset + 1
