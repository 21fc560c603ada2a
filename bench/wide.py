"""The longest turn of the broker's loop for one request of each API that may name very much: `python -m bench.wide`.

Starts a broker under `bench.turns`, makes a topic of so many partitions (`python -m bench.wide 10000`), as many groups
and transactional ids, sends each request once, and prints the milliseconds of CPU of its longest turn. CPU, so that it
can be run beside other work.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from threading import Thread
from typing import Any, Final

from bench import wide_names
from bench.wire import NOW_MS, VERSIONS, Wire, made_topic, settled
from ottla.testing.ports import free_port
from ottla.wire.apis import ApiKey
from ottla.wire.batch import set_producer
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.records import Record, encode_batch

_TOPIC, _GROUP, _ID = "wide", "wide-group", "wide-id"
_TIMEOUT_MS: Final = 60_000
#: Shorter turns are not printed by `bench.turns`.
_FROM_MS: Final = 3
_TURN = re.compile(r"turn of \d+ ms, (\d+) of CPU: (.*)")
#: What these APIs' newest versions that name topics are, beside those of the other figures.
_MORE_VERSIONS = {
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.TXN_OFFSET_COMMIT: 3,
}


def _batch(producer_id: int = -1, epoch: int = -1, sequence: int = -1, *, transactional: bool = False) -> bytes:
    batch = bytearray(encode_batch([Record(0, NOW_MS, None, b"x" * 100, ())]))
    if producer_id >= 0:
        set_producer(batch, producer_id, epoch, sequence, transactional=transactional)
    return bytes(batch)


def _produce(every: range, batch: bytes, transactional_id: str | None = None) -> ProduceRequest:
    data = tuple(PartitionProduceData(at, batch) for at in every)
    return ProduceRequest(transactional_id, -1, _TIMEOUT_MS, (TopicProduceData(name=_TOPIC, partition_data=data),))


def _fetch(every: range, offset: int, session: int = -1) -> FetchRequest:
    wanted = tuple(FetchPartition(at, fetch_offset=offset, partition_max_bytes=10_000) for at in every)
    topics = (FetchTopic(topic=_TOPIC, partitions=wanted),)
    return FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=50_000_000, session_epoch=session, topics=topics)


def _requests(every: range, producer: tuple[int, int], transaction: tuple[int, int]) -> Iterator[wide_names.What]:
    """One after the other: what one writes the next may read."""
    yield "Produce", ApiKey.PRODUCE, _produce(every, _batch())
    yield "Produce, idempotent", ApiKey.PRODUCE, _produce(every, _batch(*producer, 0))
    yield "Fetch", ApiKey.FETCH, _fetch(every, 0)
    yield "Fetch, waiting", ApiKey.FETCH, _fetch(every, 2)
    yield "Fetch, a session begins", ApiKey.FETCH, _fetch(every, 2, session=0)
    listed = tuple(ListOffsetsPartition(at, timestamp=-1) for at in every)
    yield "ListOffsets", ApiKey.LIST_OFFSETS, ListOffsetsRequest(-1, topics=(ListOffsetsTopic(_TOPIC, listed),))
    yield "Metadata", ApiKey.METADATA, MetadataRequest((MetadataRequestTopic(name=_TOPIC),))
    committed = tuple(OffsetCommitRequestPartition(at, 1) for at in every)
    commit = OffsetCommitRequest(_GROUP, topics=(OffsetCommitRequestTopic(name=_TOPIC, partitions=committed),))
    yield "OffsetCommit", ApiKey.OFFSET_COMMIT, commit
    fetched = (OffsetFetchRequestTopics(name=_TOPIC, partition_indexes=tuple(every)),)
    named = (OffsetFetchRequestGroup(_GROUP, topics=fetched),)
    yield "OffsetFetch", ApiKey.OFFSET_FETCH, OffsetFetchRequest(named)
    yield "OffsetFetch, all", ApiKey.OFFSET_FETCH, OffsetFetchRequest((OffsetFetchRequestGroup(_GROUP, topics=None),))
    deleted = tuple(OffsetDeleteRequestPartition(at) for at in every)
    yield (
        "OffsetDelete",
        ApiKey.OFFSET_DELETE,
        OffsetDeleteRequest(_GROUP, (OffsetDeleteRequestTopic(_TOPIC, deleted),)),
    )
    epochs = tuple(OffsetForLeaderPartition(at, -1, 0) for at in every)
    asked = OffsetForLeaderEpochRequest(-1, (OffsetForLeaderTopic(_TOPIC, epochs),))
    yield "OffsetForLeaderEpoch", ApiKey.OFFSET_FOR_LEADER_EPOCH, asked
    yield (
        "DescribeProducers",
        ApiKey.DESCRIBE_PRODUCERS,
        DescribeProducersRequest((TopicRequest(_TOPIC, tuple(every)),)),
    )
    added = AddPartitionsToTxnRequest((), _ID, *transaction, (AddPartitionsToTxnTopic(_TOPIC, tuple(every)),))
    yield "AddPartitionsToTxn", ApiKey.ADD_PARTITIONS_TO_TXN, added
    in_transaction = _produce(every, _batch(*transaction, 0, transactional=True), _ID)
    yield "Produce, in a transaction", ApiKey.PRODUCE, in_transaction
    yield "AddOffsetsToTxn", ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest(_ID, *transaction, _GROUP)
    offsets = tuple(TxnOffsetCommitRequestPartition(at, 1) for at in every)
    in_it = TxnOffsetCommitRequest(_ID, _GROUP, *transaction, topics=(TxnOffsetCommitRequestTopic(_TOPIC, offsets),))
    yield "TxnOffsetCommit", ApiKey.TXN_OFFSET_COMMIT, in_it
    marked = (WritableTxnMarkerTopic(_TOPIC, tuple(every)),)
    too_high = WritableTxnMarker(transaction[0], transaction[1] + 1, False, marked)
    yield "WriteTxnMarkers, refused", ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest((too_high,))
    yield "EndTxn", ApiKey.END_TXN, EndTxnRequest(_ID, *transaction, committed=True)
    yield "OffsetCommit, again", ApiKey.OFFSET_COMMIT, commit
    yield "DeleteGroups, one of all offsets", ApiKey.DELETE_GROUPS, DeleteGroupsRequest((_GROUP,))
    starts = tuple(DeleteRecordsPartition(at, 1) for at in every)
    yield (
        "DeleteRecords",
        ApiKey.DELETE_RECORDS,
        DeleteRecordsRequest((DeleteRecordsTopic(_TOPIC, starts),), _TIMEOUT_MS),
    )
    gone = DeleteTopicsRequest((DeleteTopicState(_TOPIC),), timeout_ms=_TIMEOUT_MS)
    yield "DeleteTopics", ApiKey.DELETE_TOPICS, gone


class _Turns:
    """What the broker's error output says of its turns."""

    def __init__(self, process: Popen[str]) -> None:
        self._found: list[tuple[int, str]] = []
        self._lines = process.stdout
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._lines or ():
            if match := _TURN.search(line):
                self._found.append((int(match[1]), match[2]))

    def longest(self) -> tuple[int, str]:
        """Since it was asked last: milliseconds, and whose turn it was."""
        found, self._found = self._found, []
        return max(found, default=(0, ""))


async def _coordinator(wire: Wire, key: str, kind: int) -> None:
    request = FindCoordinatorRequest("", kind, (key,))
    await settled(wire, ApiKey.FIND_COORDINATOR, request, lambda answer: answer.coordinators[0].error_code)


async def _producer(wire: Wire, transactional_id: str | None) -> tuple[int, int]:
    if transactional_id is not None:
        await _coordinator(wire, transactional_id, 1)
    request = InitProducerIdRequest(transactional_id, _TIMEOUT_MS)
    answer = await settled(wire, ApiKey.INIT_PRODUCER_ID, request, lambda answer: answer.error_code)
    return answer.producer_id, answer.producer_epoch


async def _ask_all(bootstrap: str, turns: _Turns, partitions: int) -> None:
    async with Wire(bootstrap) as wire:
        await made_topic(wire, _TOPIC, partitions)
        await asyncio.sleep(2)
        await _coordinator(wire, _GROUP, 0)
        producer, transaction = await _producer(wire, None), await _producer(wire, _ID)
        turns.longest()
        await _ask_each(wire, turns, _requests(range(partitions), producer, transaction))
        await made_topic(wire, _TOPIC, 1)
        names = [f"{number}-of-many" for number in range(partitions)]
        await wide_names.prepare(bootstrap, _TOPIC, names)
        await asyncio.sleep(2)
        turns.longest()
        await _ask_each(wire, turns, wide_names.requests(names))


async def _ask_each(wire: Wire, turns: _Turns, requests: Iterable[wide_names.What]) -> None:
    for name, key, request in requests:
        answer = await wire.ask(key, request)
        await asyncio.sleep(1)  # what goes on behind the answer, such as markers
        taken_ms, whose = turns.longest()
        print(f"{name:35} {taken_ms:5} ms   {whose:60} {_errors(answer)}", flush=True)


def _errors(answer: Any) -> str:
    """The error codes anywhere in an answer, to see that it did what was asked."""
    found: set[int] = set()

    def look(value: Any) -> None:
        if isinstance(value, tuple):
            for name in getattr(value, "_fields", ()):
                if name.endswith("error_code"):
                    found.add(int(getattr(value, name)))
            for each in value:
                look(each)

    look(answer)
    return f"errors {sorted(found - {0})}" if found - {0} else ""


def main(partitions: int) -> None:
    """Start the broker, ask it, stop it."""
    VERSIONS.update(_MORE_VERSIONS | wide_names.VERSIONS)
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "bench.turns", str(_FROM_MS), "serve", "--port", str(port)]
        command += ["--data-dir", str(Path(directory) / "data")]
        command += [word for key, value in wide_names.SETTINGS.items() for word in ("-o", f"{key}={value}")]
        with Popen(command, stdout=PIPE, stderr=STDOUT, text=True) as process:
            turns = _Turns(process)
            try:
                asyncio.run(_whole(f"localhost:{port}", turns, partitions))
            finally:
                process.terminate()
                process.wait()


async def _whole(bootstrap: str, turns: _Turns, partitions: int) -> None:
    for _ in range(100):
        try:
            async with Wire(bootstrap):
                break
        except OSError:
            await asyncio.sleep(0.1)
    await _ask_all(bootstrap, turns, partitions)


if __name__ == "__main__":
    try:
        asked = int(sys.argv[1]) if sys.argv[1:] else 10_000
    except ValueError:
        sys.exit("say how many partitions: python -m bench.wide 10000")
    main(asked)
