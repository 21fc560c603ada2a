"""Admin calls about transactions: list them, end them, fence their producers (SPEC T14)."""

import reprlib
from collections.abc import Iterable
from functools import partial

from ottla.base.types import TopicPartition
from ottla.client.admin.arguments import check_pattern, check_producer, check_transactional_id
from ottla.client.admin.arguments import producer_ids as producer_ids_of
from ottla.client.admin.arguments import transactional_ids as checked_ids
from ottla.client.admin.base import AdminBase
from ottla.client.admin.types import (
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
    TransactionOutcome,
)
from ottla.client.core.intents import CoordinatorKind
from ottla.client.core.producer.handle import TransactionHandle
from ottla.client.core.producer.identity import NO_IDENTITY, ProducerIdentity
from ottla.client.core.producer.transaction_requests import end_transaction, init_producer_id
from ottla.client.core.several import several
from ottla.client.errors import KafkaError, NotHangingError, code_of, raise_for
from ottla.client.net.requests import only, together
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.messages.end_txn import EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_TRANSACTION = CoordinatorKind.TRANSACTION
#: How many producer ids one ListTransactions names at most. Ottla's brokers take requests of 30,000 elements.
_PRODUCERS_A_REQUEST = 10_000
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
#: How many partitions one DescribeProducers names at most, as in Kafka's tools: each may have many producers.
_PARTITIONS_A_REQUEST = 500
#: `transaction.timeout.ms` of who only fences: every broker allows it, and the next producer brings its own.
_LEAST_TIMEOUT_MS = 1

_OUTCOMES = {
    ErrorCode.NONE: TransactionOutcome.ENDED,
    ErrorCode.INVALID_TXN_STATE: TransactionOutcome.REFUSED,
    ErrorCode.PRODUCER_FENCED: TransactionOutcome.FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: TransactionOutcome.FENCED,
}
#: The coordinator has nothing under an id, or does not say what.
_UNTOLD = frozenset({ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})


class TransactionCalls(AdminBase):
    """Transactions and producers."""

    async def list_transactions(
        self, pattern: str | None = None, states: Iterable[str] = (), *, producer_ids: Iterable[int] = ()
    ) -> list[TransactionListing]:
        """Transactional ids of all coordinators, sorted; with `pattern` only those that it matches as a whole
        (KIP-664, KIP-1152).

        With `states` only those in one of these (`Ongoing`), with `producer_ids` only those that have one of them now.
        Raises ValueError for states that no broker knows, and KafkaError with INVALID_REGULAR_EXPRESSION.
        """
        check_pattern(pattern)
        wanted, ids = several(states, "states"), producer_ids_of(producer_ids)
        found: set[TransactionListing] = set()
        for at in range(0, max(len(ids), 1), _PRODUCERS_A_REQUEST):
            request = ListTransactionsRequest(tuple(wanted), tuple(ids[at : at + _PRODUCERS_A_REQUEST]), -1, pattern)
            found.update(await self._requests.repeat(partial(self._list, request), "list_transactions"))
        return sorted(found)

    async def _list(self, request: ListTransactionsRequest) -> list[TransactionListing]:
        found = []
        answers: list[ListTransactionsResponse] = await self._requests.ask_all_brokers(
            ApiKey.LIST_TRANSACTIONS, request
        )
        for answer in answers:
            if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
                pattern = reprlib.repr(request.transactional_id_pattern)
                raise KafkaError.of(
                    answer.error_code, f"the pattern {pattern} is no expression of RE2, or is too large"
                )
            raise_for(answer.error_code, "a broker cannot tell all of its transactions now; its log says why")
            if answer.unknown_state_filters:
                unknown = ", ".join(map(repr, answer.unknown_state_filters))
                raise ValueError(f"no broker knows the states {unknown}: {', '.join(_STATES)} are such")
            found += [
                TransactionListing(t.transactional_id, t.producer_id, t.transaction_state)
                for t in answer.transaction_states
            ]
        return found

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """The state of transactional ids. For an id that the coordinator does not know, or has forgotten, raises
        KafkaError with TRANSACTIONAL_ID_NOT_FOUND."""

        async def describe(transactional_id: str) -> TransactionDescription:
            request = DescribeTransactionsRequest((transactional_id,))
            answer: DescribeTransactionsResponse = await self._requests.ask_coordinator(
                _TRANSACTION, transactional_id, ApiKey.DESCRIBE_TRANSACTIONS, request
            )
            state = only(answer.transaction_states, f"transactional.id {transactional_id}")
            self._requests.coordinators.check(_TRANSACTION, transactional_id, state.error_code, transactional_id)
            return TransactionDescription(
                transactional_id,
                state.transaction_state,
                state.producer_id,
                state.producer_epoch,
                state.transaction_timeout_ms,
                state.transaction_start_time_ms,
                frozenset(TopicPartition(t.topic, p) for t in state.topics for p in t.partitions),
            )

        ids = checked_ids(transactional_ids)
        calls = (self._requests.repeat(partial(describe, i), f"describe_transactions({i})") for i in ids)
        return dict(zip(ids, await together(calls), strict=True))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, leave_out_gone: bool = False
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The producers that each partition's leader knows, and where their open transactions begin.

        With `leave_out_gone` partitions that the cluster does not know are left out; otherwise this waits for them.
        """
        wanted = dict.fromkeys(partitions)
        found: dict[TopicPartition, list[ProducerDescription]] = {}

        async def attempt() -> None:
            by_leader: dict[int, list[TopicPartition]] = {}
            with self._cluster.tracking({tp.topic for tp in wanted}) as is_new:
                if is_new:
                    await self._cluster.refreshed()
                for tp in wanted:
                    if tp not in found and not (leave_out_gone and not self._cluster.snapshot.has(tp)):
                        by_leader.setdefault(await self._requests.leader(tp), []).append(tp)
            await together(
                self._ask_producers(leader, asked[at : at + _PARTITIONS_A_REQUEST], found)
                for leader, asked in by_leader.items()
                for at in range(0, len(asked), _PARTITIONS_A_REQUEST)
            )

        await self._requests.repeat(attempt, "describe_producers")
        return {tp: found[tp] for tp in wanted if tp in found}

    async def _ask_producers(
        self, leader: int, asked: list[TopicPartition], found: dict[TopicPartition, list[ProducerDescription]]
    ) -> None:
        by_topic: dict[str, list[int]] = {}
        for tp in asked:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        request = DescribeProducersRequest(tuple(TopicRequest(name, tuple(each)) for name, each in by_topic.items()))
        answer: DescribeProducersResponse = await self._cluster.request(leader, ApiKey.DESCRIBE_PRODUCERS, request)
        answered = {
            TopicPartition(topic.name, p.partition_index): p for topic in answer.topics for p in topic.partitions
        }
        for tp in asked:
            partition = only([answered[tp]] if tp in answered else [], str(tp))
            raise_for(partition.error_code, partition.error_message or str(tp))
            found[tp] = [ProducerDescription(*producer) for producer in partition.active_producers]

    async def end_transaction(
        self, handle: TransactionHandle, *, commit: bool, timeout_ms: int | None = None
    ) -> TransactionOutcome:
        """Commit or abort a transaction that another producer left open (`detach_transaction`).

        It may be repeated: with the same handle and the same `commit` it returns ENDED again, as long as no newer
        transaction of this id has begun. Raises RequestTimeoutError if the outcome is unknown: then call it again.
        Who may not describe the id is told FORGOTTEN where it was FENCED at the last epoch of a producer id. Raises
        TypeError for what is no handle, ValueError for one that nobody can have.
        """
        if not isinstance(handle, TransactionHandle):
            raise TypeError(
                f"handle must be a TransactionHandle, not {handle!r}: TransactionHandle.parse makes one of a str"
            )
        check_transactional_id(handle.transactional_id)
        check_producer(handle.producer_id, handle.producer_epoch)
        identity = ProducerIdentity(handle.producer_id, handle.producer_epoch)
        request = end_transaction(handle.transactional_id, identity, commit=commit)

        async def attempt() -> TransactionOutcome:
            answer: EndTxnResponse = await self._requests.ask_coordinator(
                _TRANSACTION, handle.transactional_id, ApiKey.END_TXN, request
            )
            if answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                return await self._without_mapping(handle)
            outcome = _OUTCOMES.get(code_of(answer.error_code))
            if outcome is None:
                self._requests.coordinators.check(_TRANSACTION, handle.transactional_id, answer.error_code)
                raise KafkaError.of(answer.error_code)
            return outcome

        what = f"the end of transaction {handle.transactional_id}"
        return await self._requests.repeat(attempt, what, timeout_ms, soon=True)

    async def _without_mapping(self, handle: TransactionHandle) -> TransactionOutcome:
        """The coordinator does not have this producer id under this id: it has another one there, or nothing."""
        transactional_id = handle.transactional_id
        request = DescribeTransactionsRequest((transactional_id,))
        answer: DescribeTransactionsResponse = await self._requests.ask_coordinator(
            _TRANSACTION, transactional_id, ApiKey.DESCRIBE_TRANSACTIONS, request
        )
        found = only(answer.transaction_states, f"transactional.id {transactional_id}")
        if found.error_code in _UNTOLD:
            return TransactionOutcome.FORGOTTEN
        self._requests.coordinators.check(_TRANSACTION, transactional_id, found.error_code, transactional_id)
        return TransactionOutcome.FORGOTTEN if found.producer_id == handle.producer_id else TransactionOutcome.FENCED

    async def abort_transaction(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """Write an abort marker into one partition (KIP-664), whatever its coordinator knows.

        `end_hanging_transaction` asks first whether the transaction hangs. Raises NotHangingError if a broker of ours
        with an authorizer keeps it for the coordinator, TypeError and ValueError for numbers that no producer has, and
        what the leader says: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED if the partition has seen higher
        epochs than these, or, of a broker of ours, if its coordinator has lower ones.
        """
        check_producer(producer_id, producer_epoch, coordinator_epoch)
        await self._write_marker(partition, producer_id, producer_epoch, coordinator_epoch, commit=False)

    async def _write_marker(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool
    ) -> None:
        # A producer without a marker has coordinator epoch -1; 0 is the lowest that a coordinator has.
        topic = WritableTxnMarkerTopic(partition.topic, (partition.partition,))
        marker = WritableTxnMarker(producer_id, producer_epoch, commit, (topic,), max(0, coordinator_epoch))

        async def attempt() -> None:
            leader = await self._requests.leader(partition)
            answer: WriteTxnMarkersResponse = await self._cluster.request(
                leader, ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest((marker,))
            )
            answered = only(only(answer.markers, str(partition)).topics, str(partition))
            code = only(answered.partitions, str(partition)).error_code
            if code == ErrorCode.INVALID_TXN_STATE:
                raise NotHangingError(
                    f"the transaction of producer {producer_id} in {partition} is not hanging: its coordinator has it, "
                    "and ends it; nothing was written. Perhaps you may not DESCRIBE its transactional id"
                )
            raise_for(code, _why_no_marker(partition, marker, code))

        await self._requests.repeat(attempt, f"the {'commit' if commit else 'abort'} marker in {partition}")

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdentity]:
        """Raise the epoch of transactional ids and abort their open transactions. Their producers are fenced then.

        Returns the new producer id and epoch of each. Raises ValueError for ids that no request can carry.
        """

        async def fence(transactional_id: str) -> ProducerIdentity:
            request = init_producer_id(transactional_id, _LEAST_TIMEOUT_MS, NO_IDENTITY)
            answer: InitProducerIdResponse = await self._requests.ask_coordinator(
                _TRANSACTION, transactional_id, ApiKey.INIT_PRODUCER_ID, request
            )
            self._requests.coordinators.check(_TRANSACTION, transactional_id, answer.error_code, transactional_id)
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        ids = checked_ids(transactional_ids)
        calls = (self._requests.repeat(partial(fence, i), f"fence_producers({i})") for i in ids)
        return dict(zip(ids, await together(calls), strict=True))


def _why_no_marker(partition: TopicPartition, marker: WritableTxnMarker, code: int) -> str:
    refused = {
        ErrorCode.INVALID_PRODUCER_EPOCH: f"epoch {marker.producer_epoch}",
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: f"coordinator epoch {marker.coordinator_epoch}",
    }.get(code_of(code))
    if refused is None:
        return str(partition)
    return (
        f"{partition} takes no marker of producer {marker.producer_id} with {refused}: the partition has seen a higher "
        "one, or the producer's coordinator has a lower one"
    )
