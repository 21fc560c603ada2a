"""The transactional producer's talk with its coordinator, in both protocols (KIP-98, KIP-360, KIP-447, KIP-890).

In the second protocol a partition joins the transaction by being produced to, offsets by being committed, and every
end raises the epoch. In the first, AddPartitionsToTxn and AddOffsetsToTxn come before, and the epoch is raised only
after an error, by asking for the identity again.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.intents import CoordinatorKind
from ottla.client.core.negotiation import CAPS_OF_FIRST_TRANSACTIONS
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.core.sequencing import NO_IDENTITY, ProducerIdentity, Sequencer
from ottla.client.core.transaction_state import TransactionState, TxnInput, TxnState
from ottla.client.errors import ClientError, CommitFailedError, IllegalStateError, KafkaError, ProducerFencedError
from ottla.client.net.cluster import Cluster
from ottla.client.net.coordinators import Coordinators
from ottla.client.net.retry import Deadline, repeat, short_backoff
from ottla.client.producer import transaction_requests as requests
from ottla.client.producer.config import ProducerConfig
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

log = logging.getLogger("ottla.producer")

#: Somebody else has this transactional id now.
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FATAL = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
#: The member that read these offsets does not own the partitions any more.
_GROUP_MOVED_ON = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
_MAY_FAIL = frozenset({TxnState.IN_TRANSACTION, TxnState.COMMITTING, TxnState.ABORTING, TxnState.ABORTABLE_ERROR})


class TransactionHandle(NamedTuple):
    """An open transaction: what somebody else needs to end it (`Admin.end_transaction`)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Transactions:
    """All that is transactional of one producer. Methods run on the loop, `check_send` in any thread."""

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        config: ProducerConfig,
        sequencer: Sequencer,
        pump: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._config = config
        self._sequencer = sequencer
        self._pump = pump
        self._id = config.transactional_id or ""
        self._automaton = TransactionState()
        self._implicit = True
        self._started = False
        self._new_epoch_needed = False
        self._added: set[TopicPartition] = set()
        self._to_add: set[TopicPartition] = set()
        self._adding: asyncio.Task[None] | None = None

    @property
    def state(self) -> TxnState:
        """Where the producer stands."""
        return self._automaton.state

    @property
    def caps(self) -> Mapping[ApiKey, int]:
        """The versions at which the protocol in use stops."""
        return {} if self._implicit else CAPS_OF_FIRST_TRANSACTIONS

    @property
    def in_error(self) -> bool:
        """Whether nothing of the transaction may be sent any more."""
        return self._automaton.state in (TxnState.ABORTABLE_ERROR, TxnState.FATAL_ERROR, TxnState.ABORTING)

    @property
    def cause(self) -> BaseException | None:
        """The error that ended it."""
        return self._automaton.cause

    # calls of the user

    async def initialize(self) -> None:
        """init_transactions(): fence earlier producers of this id and end what they left (SPEC T2, T3)."""
        self._automaton.handle(TxnInput.INIT)
        self._implicit = (await self._call(self._cluster.versions, "init_transactions()")).implicit_partitions
        await self._take_identity(NO_IDENTITY)
        self._automaton.handle(TxnInput.ENDED)

    def begin(self) -> None:
        """begin_transaction(): nothing is asked of the broker yet."""
        self._automaton.handle(TxnInput.BEGIN)
        self._started = False
        self._added.clear()
        self._to_add.clear()

    def check_send(self) -> None:
        """Raise unless records may be sent now."""
        if self._automaton.state is not TxnState.IN_TRANSACTION:
            self._automaton.handle(TxnInput.SEND)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """send_offsets_to_transaction(): the group's positions become part of the transaction (KIP-447)."""
        self._automaton.handle(TxnInput.SEND_OFFSETS)
        if not offsets:
            return
        identity = self._sequencer.identity
        self._started = True
        if not self._implicit:
            joining = requests.add_offsets(self._id, identity, group.group_id)
            await self._ask_coordinator(ApiKey.ADD_OFFSETS_TO_TXN, joining, lambda r: r.error_code)
        message = requests.commit_offsets(self._id, identity, group, offsets)
        await self._commit_offsets(group.group_id, message)

    async def end(self, *, commit: bool) -> None:
        """EndTxn, after everything sent was acknowledged (or dropped, for an abort)."""
        if self._started:
            identity = self._sequencer.identity
            message = requests.end_transaction(self._id, identity, commit=commit)
            answer = await self._ask_coordinator(ApiKey.END_TXN, message, lambda r: r.error_code)
            if answer.producer_id >= 0:
                self._sequencer.identified(ProducerIdentity(answer.producer_id, answer.producer_epoch))
                self._new_epoch_needed = False
        if self._new_epoch_needed:
            # KIP-360: sequences have a hole, so the coordinator is asked for the next epoch
            self._sequencer.forget_partitions()
            await self._take_identity(self._sequencer.identity)
        self._started = False
        self._automaton.handle(TxnInput.ENDED)
        self._pump()

    def ending(self, *, commit: bool) -> None:
        """commit_transaction() or abort_transaction() begins; raises if it may not."""
        self._automaton.handle(TxnInput.COMMIT if commit else TxnInput.ABORT)

    def detach(self) -> TransactionHandle:
        """Give the open transaction away. Everything was acknowledged before."""
        if not self._started:
            raise IllegalStateError("detach_transaction(): nothing was sent in this transaction, abort it instead")
        self._automaton.handle(TxnInput.DETACH)
        return TransactionHandle(self._id, *self._sequencer.identity)

    # what the sender asks and tells

    def may_send(self, tp: TopicPartition) -> bool:
        """Whether batches of the partition may go now; in the first protocol it is added to the transaction first."""
        if self._automaton.state not in (TxnState.IN_TRANSACTION, TxnState.COMMITTING):
            return False
        if self._implicit:
            self._started = True
            return True
        if tp in self._added:
            return True
        self._to_add.add(tp)
        if self._adding is None:
            self._adding = asyncio.create_task(self._add_partitions(), name="ottla-add-partitions")
        return False

    def batch_failed(self, error: Exception, *, had_sequence: bool) -> None:
        """A batch was given up on: the transaction cannot be committed any more."""
        self._new_epoch_needed |= had_sequence
        # INVALID_PRODUCER_EPOCH included: only the coordinator can say whether the producer was fenced (KIP-588)
        self._failed(error, fatal=isinstance(error, ProducerFencedError))

    def close(self) -> None:
        """Stop what runs in the background."""
        if self._adding is not None:
            self._adding.cancel()

    # inside

    async def _take_identity(self, current: ProducerIdentity) -> None:
        message = requests.init_producer_id(self._id, self._config.transaction_timeout_ms, current)
        answer = await self._ask_coordinator(ApiKey.INIT_PRODUCER_ID, message, lambda r: r.error_code)
        self._sequencer.identified(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        self._new_epoch_needed = False

    async def _add_partitions(self) -> None:
        try:
            while self._to_add:
                adding = frozenset(self._to_add)
                message = requests.add_partitions(self._id, self._sequencer.identity, adding)
                await self._ask_coordinator(ApiKey.ADD_PARTITIONS_TO_TXN, message, requests.worst_partition_error)
                self._started = True
                self._added |= adding
                self._to_add -= adding
        except ClientError as error:
            self._failed(error, fatal=False)
        finally:
            self._adding = None
            self._pump()

    async def _ask_coordinator(self, api: ApiKey, message: tuple[Any, ...], error_of: Callable[[Any], int]) -> Any:
        """The coordinator's answer without an error, retried within `max.block.ms`; errors change the state."""
        kind = CoordinatorKind.TRANSACTION

        async def attempt() -> Any:
            answer = await self._coordinators.request(kind, self._id, api, message, cap=self.caps.get(api))
            self._coordinators.check(kind, self._id, error_of(answer))
            return answer

        return await self._call(attempt, api.name)

    async def _commit_offsets(self, group_id: str, message: tuple[Any, ...]) -> None:
        kind = CoordinatorKind.GROUP
        cap = self.caps.get(ApiKey.TXN_OFFSET_COMMIT)

        async def attempt() -> None:
            answer = await self._coordinators.request(kind, group_id, ApiKey.TXN_OFFSET_COMMIT, message, cap=cap)
            for topic in answer.topics:
                for partition in topic.partitions:
                    self._coordinators.check(
                        kind, group_id, partition.error_code, f"{topic.name}-{partition.partition_index}"
                    )

        await self._call(attempt, "send_offsets_to_transaction()")

    async def _call(self, attempt: Callable[[], Any], what: str) -> Any:
        try:
            return await repeat(
                attempt,
                what=what,
                deadline=Deadline(self._config.max_block_ms),
                backoff=short_backoff(self._cluster.rng),
                failed=lambda error: self._cluster.request_update() if not isinstance(error, KafkaError) else None,
            )
        except KafkaError as error:
            if error.code in _FENCED:
                error = ProducerFencedError(
                    ErrorCode.PRODUCER_FENCED, f"another producer with transactional.id {self._id} has taken over"
                )
            elif error.code in _GROUP_MOVED_ON:
                self._failed(error, fatal=False)
                raise CommitFailedError(
                    f"the offsets are not in the transaction, the group has moved on ({error}): abort, and poll again"
                ) from error
            self._failed(error, fatal=isinstance(error, ProducerFencedError) or error.code in _FATAL)
            raise error

    def _failed(self, error: Exception, *, fatal: bool) -> None:
        """Note what `error` means for the transaction."""
        if fatal or self._automaton.state is TxnState.INITIALIZING:
            self._automaton.handle(TxnInput.FATAL, error)
        elif self._automaton.state in _MAY_FAIL:
            self._automaton.handle(TxnInput.ABORTABLE, error)
