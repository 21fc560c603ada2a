"""Talking to a transaction coordinator, ours or Apache Kafka's, in one vocabulary.

A `Conversation` sends requests and waits out every retriable answer, so that what is compared does not depend on how
fast markers are written. Each request and its answer is one line of the transcript; producer ids are given small names
in the order in which they appear (`P0`, `P1`), so that two coordinators that do the same say the same.
"""

from __future__ import annotations

from typing import Any

from ottla.base.steps import result_of
from ottla.base.types import TopicPartition
from ottla.coordinator.decision import Decision
from ottla.coordinator.txn.config import TransactionConfig
from ottla.coordinator.txn.listing import Listing
from ottla.coordinator.txn.metadata import created, to_record
from ottla.coordinator.txn.states import TransactionVersion
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tests.coordinator.txn.runtime import ShardRuntime

WAITED_OUT = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
_MOST_TRIES = 400
#: A producer id that no broker has given out: `?` in a talk.
_UNKNOWN_ID = 999_999_999


class Conversation:
    """A talk about one transactional id; a subclass says how a request gets its answer."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.transcript: list[str] = []
        self._names: dict[int, str] = {}
        self._ids: dict[str, int] = {}

    def send(self, api: ApiKey, version: int, message: tuple[Any, ...]) -> Any:
        """The response to one request."""
        raise NotImplementedError

    def wait(self) -> None:
        """Let the coordinator get on with what it is doing, after a retriable answer."""
        raise NotImplementedError

    def _name(self, producer_id: int) -> str:
        if producer_id < 0:
            return "-"
        if producer_id not in self._names:
            self._names[producer_id] = name = f"P{len(self._names)}"
            self._ids[name] = producer_id
        return self._names[producer_id]

    def _id(self, name: str) -> int:
        return {"-": -1, "?": _UNKNOWN_ID}.get(name, -1) if name not in self._ids else self._ids[name]

    def _ask(self, api: ApiKey, version: int, message: tuple[Any, ...]) -> tuple[ErrorCode, Any]:
        for _ in range(_MOST_TRIES):
            response = self.send(api, version, message)
            error = _error_of(response)
            if error not in WAITED_OUT:
                return error, response
            self.wait()
        raise AssertionError(f"{message} is still answered {error.name}")

    def _say(self, line: str, error: ErrorCode, rest: str = "") -> None:
        self.transcript.append(f"{line} -> {error.name}{rest}")

    def init(self, producer: str = "-", epoch: int = -1, *, timeout_ms: int = 60_000, version: int = 5) -> None:
        """InitProducerId, with producer id and epoch given or not."""
        self._init("", InitProducerIdRequest(self.transactional_id, timeout_ms, self._id(producer), epoch), version)

    def init_two_phase(
        self,
        producer: str = "-",
        epoch: int = -1,
        *,
        timeout_ms: int = 60_000,
        two_phase: bool = True,
        keep: bool = False,
    ) -> None:
        """InitProducerId v6 (KIP-939), which may ask for no time-out, and to keep a prepared transaction."""
        asked = (" two-phase" if two_phase else "") + (" keep" if keep else "")
        self._init(
            asked,
            InitProducerIdRequest(self.transactional_id, timeout_ms, self._id(producer), epoch, two_phase, keep),
            6,
        )

    def _init(self, asked: str, request: InitProducerIdRequest, version: int) -> None:
        error, answer = self._ask(ApiKey.INIT_PRODUCER_ID, version, request)
        name = "?" if request.producer_id == _UNKNOWN_ID else self._name(request.producer_id)
        who = f"{name}/{request.producer_epoch}"
        rest = f" {self._name(answer.producer_id)}/{answer.producer_epoch}"
        if version >= 6:
            rest += f" ongoing {self._name(answer.ongoing_txn_producer_id)}/{answer.ongoing_txn_producer_epoch}"
        self._say(f"init {who} {request.transaction_timeout_ms} v{version}{asked}", error, rest)

    def use_up_epochs(self, until: int) -> None:
        """InitProducerId until the epoch is `until`; no line of the transcript."""
        epoch = -1
        while epoch < until:
            _, answer = self._ask(ApiKey.INIT_PRODUCER_ID, 5, InitProducerIdRequest(self.transactional_id, 60_000))
            epoch = answer.producer_epoch
            self._name(answer.producer_id)

    def add(self, producer: str, epoch: int, *partitions: int, version: int = 5, verify: bool = False) -> None:
        """AddPartitionsToTxn of partitions of topic `t`; the errors of all partitions, in order."""
        topics = (AddPartitionsToTxnTopic("t", partitions),) if partitions else ()
        producer_id = self._id(producer)
        if version >= 4:
            one = AddPartitionsToTxnTransaction(self.transactional_id, producer_id, epoch, verify, topics)
            request = AddPartitionsToTxnRequest((one,))
        else:
            request = AddPartitionsToTxnRequest((), self.transactional_id, producer_id, epoch, topics)
        _, answer = self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
        errors = {} if isinstance(answer, ErrorCode) else partition_errors(answer)
        verb = "verify" if verify else "add"
        self.transcript.append(f"{verb} {producer}/{epoch} {partitions} v{version} -> {errors}")

    def produce(self, producer: str, epoch: int, sequence: int, *, partition: int = 0, version: int = 12) -> None:
        """Produce one transactional record to a partition of `t`; from v12 on that adds the partition."""
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, b"talk", ())],
            producer_id=self._id(producer),
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        topic = TopicProduceData(name="t", partition_data=(PartitionProduceData(partition, batch),))
        request = ProduceRequest(self.transactional_id, -1, 10_000, (topic,))
        self._say(f"produce {producer}/{epoch} {sequence} v{version}", self._ask(ApiKey.PRODUCE, version, request)[0])

    def offsets(self, producer: str, epoch: int, *, version: int = 3) -> None:
        """AddOffsetsToTxn of the group `g`."""
        request = AddOffsetsToTxnRequest(self.transactional_id, self._id(producer), epoch, "g")
        self._say(f"offsets {producer}/{epoch} v{version}", self._ask(ApiKey.ADD_OFFSETS_TO_TXN, version, request)[0])

    def end(self, producer: str, epoch: int, *, commit: bool, version: int = 5) -> None:
        """EndTxn."""
        request = EndTxnRequest(self.transactional_id, self._id(producer), epoch, commit)
        error, answer = self._ask(ApiKey.END_TXN, version, request)
        rest = f" {self._name(answer.producer_id)}/{answer.producer_epoch}"
        self._say(f"{'commit' if commit else 'abort'} {producer}/{epoch} v{version}", error, rest)

    def describe(self) -> None:
        """DescribeTransactions, and whether ListTransactions finds the id by state and pattern."""
        request = DescribeTransactionsRequest((self.transactional_id,))
        for _ in range(_MOST_TRIES):
            error, answer = self._ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request)
            (one,) = answer.transaction_states
            if not one.transaction_state.startswith("Prepare"):
                break
            self.wait()
        topics = [(topic.topic, sorted(topic.partitions)) for topic in sorted(one.topics) if topic.topic == "t"]
        if error != ErrorCode.NONE:
            self._say("describe", error)
            return
        who = f"{self._name(one.producer_id)}/{one.producer_epoch}"
        self._say("describe", error, f" {one.transaction_state} {who} {one.transaction_timeout_ms} {topics}")
        by_state = ListTransactionsRequest(
            (one.transaction_state, "Nonsense"), (), -1, f".*{self.transactional_id[1:]}"
        )
        error, listed = self._ask(ApiKey.LIST_TRANSACTIONS, 2, by_state)
        states = [(self._name(listing.producer_id), listing.transaction_state) for listing in listed.transaction_states]
        self._say("list", error, f" {states} unknown {listed.unknown_state_filters}")


def partition_errors(answer: Any) -> dict[int, str]:
    """Every partition's error in an AddPartitionsToTxnResponse, by number."""
    results = [topic for one in answer.results_by_transaction for topic in one.topic_results]
    results += answer.results_by_topic_v3_and_below
    found = [partition for topic in results for partition in topic.results_by_partition]
    return {partition.partition_index: ErrorCode(partition.partition_error_code).name for partition in sorted(found)}


def _error_of(response: Any) -> ErrorCode:
    if isinstance(response, AddPartitionsToTxnResponse) and response.error_code == 0:
        names = set(partition_errors(response).values())
        return next((ErrorCode[name] for name in names if ErrorCode[name] in WAITED_OUT), ErrorCode.NONE)
    if isinstance(response, ProduceResponse):
        return ErrorCode(response.responses[0].partition_responses[0].error_code)
    if isinstance(response, DescribeTransactionsResponse):
        return ErrorCode(response.transaction_states[0].error_code)
    return ErrorCode(response.error_code)


class OurConversation(Conversation):
    """A talk with our shard; markers are written whenever the other side waits."""

    def __init__(self, transactional_id: str, config: TransactionConfig | None = None) -> None:
        super().__init__(transactional_id)
        self.runtime = ShardRuntime(config)

    def wait(self) -> None:
        self.runtime.write_markers()

    def use_up_epochs(self, until: int) -> None:
        """The log such a producer leaves behind, without its tens of thousands of records."""
        producer_id = next(self.runtime.producer_ids)
        fresh = created(self.transactional_id, producer_id, 60_000, self.runtime.now_ms)
        self.runtime.log.append(to_record(fresh._replace(producer_epoch=until, previous_producer_id=producer_id)))
        self.runtime.reload()
        self._name(producer_id)

    def send(self, api: ApiKey, version: int, message: Any) -> Any:
        """What the broker's handlers do with versions, in short."""
        shard, now_ms, token = self.runtime.shard, self.runtime.now_ms, self.runtime.token()
        match api:
            case ApiKey.ADD_PARTITIONS_TO_TXN if message.transactions:
                client = TransactionVersion.V2 if version >= 5 else TransactionVersion.V0
                one = self._decided(shard.add_partitions_to_txn(token, message.transactions[0], client, now_ms))
                return AddPartitionsToTxnResponse(results_by_transaction=(one,))
            case ApiKey.ADD_PARTITIONS_TO_TXN:
                asked = AddPartitionsToTxnTransaction(message[1], message[2], message[3], False, message[4])
                one = self._decided(shard.add_partitions_to_txn(token, asked, TransactionVersion.V0, now_ms))
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=one.topic_results)
            case ApiKey.INIT_PRODUCER_ID:
                return self._decided(shard.init_producer_id(token, message, now_ms))
            case ApiKey.ADD_OFFSETS_TO_TXN:
                partition = TopicPartition("__consumer_offsets", 0)
                return self._decided(shard.add_offsets_to_txn(token, message, partition, now_ms))
            case ApiKey.END_TXN:
                client = TransactionVersion.V2 if version >= 5 else TransactionVersion.V0
                return self._decided(shard.end_txn(token, message, client, now_ms))
            case ApiKey.DESCRIBE_TRANSACTIONS:
                return DescribeTransactionsResponse(
                    transaction_states=(result_of(shard.describe(message.transactional_ids[0])),)
                )
            case _:
                assert api == ApiKey.LIST_TRANSACTIONS
                listing = Listing(message, now_ms)
                list(listing.steps([shard.store]))
                return listing.response

    def _decided(self, decision: Decision) -> Any:
        return self.runtime.answer(decision)
