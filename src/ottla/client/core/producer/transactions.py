"""The transactional producer's talk with its coordinator, in both protocols (KIP-98, KIP-360, KIP-447, KIP-890).

In the second protocol a partition joins the transaction by being produced to, offsets by being committed, and every
end raises the epoch. In the first, AddPartitionsToTxn and AddOffsetsToTxn come before, and the epoch is raised only
after an error, by asking for the identity again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.core.intents import AnyBroker, Coordinator, CoordinatorKind, Finish, Message
from ottla.client.core.negotiation import CAPS_OF_FIRST_TRANSACTIONS, BrokerVersions
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.core.producer import transaction_requests as requests
from ottla.client.core.producer.calls import Call, Calls
from ottla.client.core.producer.identity import NO_IDENTITY, ProducerIdentity
from ottla.client.core.producer.sequencing import Sequencer
from ottla.client.core.producer.transaction_state import TransactionState, TxnInput, TxnState
from ottla.client.errors import (
    AbortableTransactionError,
    ClientError,
    CommitFailedError,
    FatalProducerError,
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

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
#: Who asks, where everybody does who waits for init_transactions().
_INITIALIZERS = object()
_MAY_FAIL = frozenset({TxnState.IN_TRANSACTION, TxnState.COMMITTING, TxnState.ABORTING, TxnState.ABORTABLE_ERROR})


class TransactionHandle(NamedTuple):
    """An open transaction: what somebody else needs to end it (`Admin.end_transaction`)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class _Ending:
    """A commit, an abort, or (None) a detachment that was begun: it goes on when every batch is settled."""

    user: Any
    commit: bool | None
    asked: bool = False


class Transactions:
    """All that is transactional of one producer. A `user` is the call of the user's that waits; it gets a `Finish`."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        max_block_ms: float,
        sequencer: Sequencer,
        calls: Calls,
        intend: Callable[[object], None],
    ) -> None:
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._max_block_ms = max_block_ms
        self._sequencer = sequencer
        self._calls = calls
        self._intend = intend
        self._automaton = TransactionState()
        self._implicit = True
        self._started = False
        self._new_epoch_needed = False
        self._added: set[TopicPartition] = set()
        self._to_add: set[TopicPartition] = set()
        self._adding: frozenset[TopicPartition] = frozenset()
        #: Calls of init_transactions() that wait: one initialization is for all of them.
        self._initializers: list[Any] = []
        self._ending: _Ending | None = None
        self._next_endings: list[_Ending] = []

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

    def initialize(self, user: Any, now_s: float) -> None:
        """init_transactions(): fence earlier producers of this id and end what they left (SPEC T2, T3)."""
        self._automaton.handle(TxnInput.INIT)
        self._initializers.append(user)
        if len(self._initializers) > 1:
            return

        def known(versions: BrokerVersions, now_s: float) -> None:
            self._implicit = versions.implicit_partitions
            self._take_identity(NO_IDENTITY, _INITIALIZERS, lambda now_s: self._initialized(), now_s)

        self._calls.add(
            Call(
                "init_transactions()",
                AnyBroker(),
                None,
                tuple,
                lambda versions: (ErrorCode.NONE, ""),
                known,
                lambda error, now_s: self._refused(error, _INITIALIZERS),
                self._max_block_ms,
                user=_INITIALIZERS,
            ),
            now_s,
        )

    def begin(self) -> None:
        """begin_transaction(): nothing is asked of the broker yet."""
        self._automaton.handle(TxnInput.BEGIN)
        self._started = False
        self._added.clear()
        self._to_add.clear()

    def check_send(self) -> None:
        """Raise unless records may be sent now. Any thread may ask."""
        if self._automaton.state is not TxnState.IN_TRANSACTION:
            self._automaton.handle(TxnInput.SEND)

    def send_offsets(
        self,
        user: Any,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        now_s: float,
    ) -> None:
        """send_offsets_to_transaction(): the group's positions become part of the transaction (KIP-447)."""
        self._automaton.handle(TxnInput.SEND_OFFSETS)
        if not offsets:
            self._intend(Finish(user))
            return
        identity = self._sequencer.identity
        self._started = True

        def commit(answer: Any, now_s: float) -> None:
            self._ask(
                Coordinator(CoordinatorKind.GROUP, group.group_id),
                ApiKey.TXN_OFFSET_COMMIT,
                lambda: requests.commit_offsets(self._id, identity, group, offsets),
                requests.first_offset_error,
                lambda answer, now_s: self._intend(Finish(user)),
                user,
                now_s,
                "send_offsets_to_transaction()",
            )

        if self._implicit:
            commit(None, now_s)
        else:
            joining = requests.add_offsets(self._id, identity, group.group_id)
            self._ask_own(ApiKey.ADD_OFFSETS_TO_TXN, lambda: joining, _error_code, commit, user, now_s)

    def end(self, user: Any, *, commit: bool | None) -> None:
        """commit_transaction() or abort_transaction() begins, or (None) detach_transaction(); raises if it may not.

        Who comes while another one is under way is asked for when that is over, and hears what there is to hear then.
        """
        ending = _Ending(user, commit)
        if self._ending is not None:
            self._next_endings.append(ending)
            return
        if commit is None:
            self.check_send()
        else:
            self._automaton.handle(TxnInput.COMMIT if commit else TxnInput.ABORT)
        self._ending = ending

    def abandoned(self, user: Any, now_s: float) -> None:
        """Nobody waits for this call any more; it may be made again."""
        self._next_endings = [ending for ending in self._next_endings if ending.user is not user]
        if self._ending is not None and self._ending.user is user:
            self._ending = None
        self._calls.drop(user, now_s)
        if user in self._initializers:
            self._initializers.remove(user)
            if not self._initializers:
                self._calls.drop(_INITIALIZERS, now_s)
        self._begin_next_ending()

    # what the core asks and tells

    @property
    def end_waits(self) -> bool:
        """Whether the transaction is to be ended, or detached, as soon as every batch is settled."""
        return self._ending is not None and not self._ending.asked and self._calls.idle

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
        return False

    def add_partitions(self, now_s: float) -> None:
        """First protocol: ask for the partitions that `may_send` was asked about, all of them at once."""
        if not self._to_add or self._adding or self.in_error:
            return

        def make() -> Message:
            self._adding = frozenset(self._to_add)
            return requests.add_partitions(self._id, self._sequencer.identity, self._adding)

        def added(answer: Any, now_s: float) -> None:
            self._started = True
            self._added |= self._adding
            self._to_add -= self._adding
            self._adding = frozenset()

        def failed(error: ClientError, now_s: float) -> None:
            self._adding = frozenset()
            self._to_add.clear()
            self._refused(error, None)
            self._failed(error, fatal=False)

        to = Coordinator(CoordinatorKind.TRANSACTION, self._id)
        what = ApiKey.ADD_PARTITIONS_TO_TXN.name
        worst = requests.worst_partition_error
        call = Call(what, to, ApiKey.ADD_PARTITIONS_TO_TXN, make, worst, added, failed, self._max_block_ms)
        self._adding = frozenset(self._to_add)
        self._calls.add(call, now_s)

    def batch_failed(self, error: Exception, *, had_sequence: bool) -> None:
        """A batch was given up on: the transaction cannot be committed any more."""
        self._new_epoch_needed |= had_sequence
        # INVALID_PRODUCER_EPOCH included: only the coordinator can say whether the producer was fenced (KIP-588)
        self._failed(error, fatal=isinstance(error, ProducerFencedError))

    def all_settled(self, now_s: float) -> None:
        """No batch has an open fate: the end that waits for this (`end_waits`) goes on."""
        ending = self._ending
        assert ending is not None
        fatal = self.state is TxnState.FATAL_ERROR
        ending.asked = True
        if ending.commit is None:
            self._detach(ending)
        elif fatal or (ending.commit and self.in_error):
            kind = FatalProducerError if fatal else AbortableTransactionError
            error = kind(f"the transaction was not {'committed' if ending.commit else 'aborted'}: {self.cause}")
            error.__cause__ = self.cause
            self._over(ending, error)
        elif self._started:
            message = requests.end_transaction(self._id, self._sequencer.identity, commit=ending.commit)
            self._ask_own(ApiKey.END_TXN, lambda: message, _error_code, self._end_answered, ending.user, now_s)
        else:
            self._ended(ending, now_s)

    # inside

    def _initialized(self) -> None:
        self._automaton.handle(TxnInput.ENDED)
        self._tell_initializers(None)

    def _tell_initializers(self, error: Exception | None) -> None:
        users, self._initializers = self._initializers, []
        for user in users:
            self._intend(Finish(user, None, error))

    def _end_answered(self, answer: Any, now_s: float) -> None:
        ending = self._ending
        assert ending is not None
        self._started = False  # whatever comes now, this is not asked for again
        if answer.producer_id >= 0:
            self._identified(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        self._ended(ending, now_s)

    def _ended(self, ending: _Ending, now_s: float) -> None:
        if self._new_epoch_needed:
            # KIP-360: sequences have a hole, so the coordinator is asked for the next epoch
            self._take_identity(self._sequencer.identity, ending.user, lambda now_s: self._ready(ending), now_s)
        else:
            self._ready(ending)

    def _ready(self, ending: _Ending) -> None:
        self._started = False
        self._automaton.handle(TxnInput.ENDED)
        self._over(ending, None)

    def _over(self, ending: _Ending, error: Exception | None, value: Any = None) -> None:
        self._ending = None
        self._intend(Finish(ending.user, value, error))
        self._begin_next_ending()

    def _begin_next_ending(self) -> None:
        while self._next_endings and self._ending is None:
            following = self._next_endings.pop(0)
            try:
                self.end(following.user, commit=following.commit)
            except ClientError as refused:
                self._intend(Finish(following.user, None, refused))

    def _detach(self, ending: _Ending) -> None:
        try:
            if not self._started:
                raise IllegalStateError("detach_transaction(): nothing was sent in this transaction, abort it instead")
            self._automaton.handle(TxnInput.DETACH)
        except ClientError as error:
            self._over(ending, error)
        else:
            self._over(ending, None, TransactionHandle(self._id, *self._sequencer.identity))

    def _take_identity(self, current: ProducerIdentity, user: Any, then: Callable[[float], None], now_s: float) -> None:
        def taken(answer: Any, now_s: float) -> None:
            self._identified(ProducerIdentity(answer.producer_id, answer.producer_epoch))
            then(now_s)

        message = requests.init_producer_id(self._id, self._timeout_ms, current)
        self._ask_own(ApiKey.INIT_PRODUCER_ID, lambda: message, requests.identity_error, taken, user, now_s)

    def _identified(self, identity: ProducerIdentity) -> None:
        self._sequencer.identified(identity)
        self._new_epoch_needed = False

    def _ask_own(
        self,
        api: ApiKey,
        make: Callable[[], Message],
        error_of: Callable[[Any], tuple[int, str]],
        done: Callable[[Any, float], None],
        user: Any,
        now_s: float,
    ) -> None:
        """Ask the coordinator of this transactional id; errors change the state, and reach the user."""
        self._ask(Coordinator(CoordinatorKind.TRANSACTION, self._id), api, make, error_of, done, user, now_s, api.name)

    def _ask(
        self,
        to: Coordinator,
        api: ApiKey,
        make: Callable[[], Message],
        error_of: Callable[[Any], tuple[int, str]],
        done: Callable[[Any, float], None],
        user: Any,
        now_s: float,
        what: str,
    ) -> None:
        def failed(error: ClientError, now_s: float) -> None:
            self._refused(error, user)

        call = Call(what, to, api, make, error_of, done, failed, self._max_block_ms, self.caps.get(api), user)
        self._calls.add(call, now_s)

    def _refused(self, error: ClientError, user: Any) -> None:
        """A call has failed for good, or took too long: note what that means, and tell the user."""
        told: ClientError = error
        if isinstance(error, KafkaError):
            if error.code in _FENCED:
                told = ProducerFencedError(
                    ErrorCode.PRODUCER_FENCED, f"another producer with transactional.id {self._id} has taken over"
                )
                self._failed(told, fatal=True)
            elif error.code in _GROUP_MOVED_ON:
                told = CommitFailedError(
                    f"the offsets are not in the transaction, the group has moved on ({error}): abort, and poll again"
                )
                self._failed(error, fatal=False)
            else:
                self._failed(error, fatal=error.code in _FATAL)
            told.__cause__ = None if told is error else error
        if self._ending is not None and self._ending.user is user:
            self._over(self._ending, told)
        elif user is _INITIALIZERS:
            self._tell_initializers(told)
        elif user is not None:
            self._intend(Finish(user, None, told))

    def _failed(self, error: Exception, *, fatal: bool) -> None:
        """Note what `error` means for the transaction."""
        if fatal or self._automaton.state is TxnState.INITIALIZING:
            self._automaton.handle(TxnInput.FATAL, error)
        elif self._automaton.state in _MAY_FAIL:
            self._automaton.handle(TxnInput.ABORTABLE, error)


def _error_code(answer: Any) -> tuple[int, str]:
    return answer.error_code, ""
