"""What a transactional producer asks its coordinator, in both protocols (KIP-98, KIP-360, KIP-447, KIP-890).

In the second protocol Produce adds a partition to the transaction, TxnOffsetCommit adds offsets, and every end of a
transaction raises the epoch. In the first protocol AddPartitionsToTxn and AddOffsetsToTxn have to come before these,
and the epoch is raised only after an error, by another InitProducerId.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.core.intents import AnyBroker, Coordinator, CoordinatorKind, Finish, Message
from ottla.client.core.negotiation import CAPS_OF_FIRST_TRANSACTIONS, TWO_PHASE_VERSION, BrokerVersions
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.core.producer import transaction_requests as requests
from ottla.client.core.producer.calls import Call, Calls
from ottla.client.core.producer.endings import OUTCOMES, Ending, Unheard
from ottla.client.core.producer.handle import TransactionHandle
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
    UnsupportedVersionError,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

#: The `user` of the requests of init_transactions(): they are made once for all calls that wait for it.
_INITIALIZERS = object()
_MAY_FAIL = frozenset({TxnState.IN_TRANSACTION, TxnState.COMMITTING, TxnState.ABORTING, TxnState.ABORTABLE_ERROR})


class Transactions:
    """The transactions of one producer. A `user` is a call of the user that waits; a `Finish` ends it."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        max_block_ms: float,
        sequencer: Sequencer,
        calls: Calls,
        intend: Callable[[object], None],
        *,
        two_phase: bool = False,
    ) -> None:
        #: An abort may give another identity to a producer whose id has expired (KIP-360). Nobody knows any more then
        #: whether it was fenced before, and its successor may have done the same work (KAFKA-18019). So this is only
        #: for those whose group fences them: each transaction has the offsets of what they read.
        self.outlives_its_id = False
        self._two_phase = two_phase
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._max_block_ms = max_block_ms
        self._sequencer = sequencer
        self._calls = calls
        self._intend = intend
        self._automaton = TransactionState()
        #: Whether the cluster speaks the second protocol, in which Produce adds partitions.
        self._implicit = True
        #: Whether the coordinator may know of this transaction: then its end has to be asked for.
        self._started = False
        #: First protocol: the coordinator was asked to begin this transaction. If it has, nobody need know of it.
        self._begin_asked = False
        #: Others may have the handle of this transaction, and may have ended it.
        self._prepared = False
        #: Sequences may have a hole: InitProducerId has to follow the end of the transaction.
        self._new_epoch_needed = False
        #: First protocol: partitions that are in the transaction, that have to be added, and that are being added.
        self._added: set[TopicPartition] = set()
        self._to_add: set[TopicPartition] = set()
        self._adding: frozenset[TopicPartition] = frozenset()
        #: Calls of init_transactions() that wait: one initialization is for all of them.
        self._initializers: list[Any] = []
        #: Calls of send_offsets_to_transaction() whose offsets are not known to be in the transaction.
        self._offering: list[Any] = []
        self._ending: Ending | None = None
        #: Calls that came while `_ending` was under way.
        self._next_endings: list[Ending] = []
        self._unheard = Unheard()

    @property
    def state(self) -> TxnState:
        """The producer's state."""
        return self._automaton.state

    @property
    def caps(self) -> Mapping[ApiKey, int]:
        """The highest version of a request in the protocol that is in use, where there is such a limit."""
        return {} if self._implicit else CAPS_OF_FIRST_TRANSACTIONS

    @property
    def in_error(self) -> bool:
        """Whether no batch of the transaction may be sent any more."""
        return self._automaton.state in (TxnState.ABORTABLE_ERROR, TxnState.FATAL_ERROR, TxnState.ABORTING)

    @property
    def cause(self) -> BaseException | None:
        """The error that made the transaction fail."""
        return self._automaton.cause

    # calls of the user

    def initialize(self, user: Any, now_s: float) -> None:
        """init_transactions(): fence earlier producers of this id and end their open transaction (SPEC T2, T3)."""
        self._automaton.handle(TxnInput.INIT)
        self._initializers.append(user)
        if len(self._initializers) > 1:
            return

        def known(versions: BrokerVersions, now_s: float) -> None:
            self._implicit = versions.implicit_partitions
            if self._two_phase and not versions.two_phase_commit:
                self._refused(UnsupportedVersionError(requests.NO_TWO_PHASE), _INITIALIZERS)
                return
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
        """begin_transaction(): no request is needed yet. The state comes last: a Ctrl-C may end this anywhere."""
        if self.state is TxnState.READY:
            self._unheard.clear()
            self._started = self._begin_asked = self._prepared = False
            self._added, self._to_add = set(), set()
        self._automaton.handle(TxnInput.BEGIN)

    def check_send(self) -> None:
        """Raise an error if no records may be sent now. Any thread may ask."""
        self._check_open(TxnInput.SEND)

    def not_taken(self, error: ClientError) -> None:
        """A record of the user was refused: without it the transaction can only be aborted, as in Apache Kafka."""
        if self._automaton.state is TxnState.IN_TRANSACTION:
            self._automaton.handle(TxnInput.ABORTABLE, error)

    def _check_open(self, call: TxnInput) -> None:
        if self._automaton.state is not TxnState.IN_TRANSACTION:
            self._automaton.handle(call)

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
        self._offering.append(user)

        def committed(answer: Any, now_s: float) -> None:
            self._offering.remove(user)
            self._intend(Finish(user))

        def commit(answer: Any, now_s: float) -> None:
            self._started = True
            self._ask(
                ApiKey.TXN_OFFSET_COMMIT,
                requests.commit_offsets(self._id, identity, group, offsets),
                requests.first_offset_error,
                committed,
                user,
                now_s,
                to=Coordinator(CoordinatorKind.GROUP, group.group_id),
                what="send_offsets_to_transaction()",
            )

        if self._implicit:
            commit(None, now_s)
        else:
            self._begin_asked = True
            joining = requests.add_offsets(self._id, identity, group.group_id)
            self._ask(ApiKey.ADD_OFFSETS_TO_TXN, joining, _error_code, commit, user, now_s)

    def end(self, user: Any, call: TxnInput) -> None:
        """COMMIT, ABORT, PREPARE or DETACH. Raises if the state forbids it.

        A call that comes while another one is under way waits until that one is over. Then it begins, or is refused.
        """
        if call is TxnInput.PREPARE and not self._two_phase:
            raise IllegalStateError(requests.NOT_TWO_PHASE)
        ending = Ending(user, call)
        if self._ending is not None:
            self._next_endings.append(ending)
            return
        if (done := self._unheard.take(call)) is not None:
            self._intend(Finish(user, done.value))
            return
        if call in OUTCOMES:
            self._automaton.handle(call)
        elif self.state is not TxnState.PREPARED:
            self._check_open(call)
        self._ending = ending

    def abandoned(self, user: Any, now_s: float) -> None:
        """The user has stopped waiting for this call, and may make it again."""
        self._next_endings = [ending for ending in self._next_endings if ending.user is not user]
        if self._ending is not None and self._ending.user is user:
            self._ending = None
        self._unheard.abandoned(user)
        self._calls.drop(user, now_s)
        if user in self._offering:
            self._offering.remove(user)
            self._failed(AbortableTransactionError(requests.OFFSETS_IN_DOUBT), fatal=False)
        if user in self._initializers:
            self._initializers.remove(user)
            if not self._initializers:
                self._calls.drop(_INITIALIZERS, now_s)
        self._begin_next_ending()

    # what the core asks and reports

    @property
    def end_waits(self) -> bool:
        """Whether a call waits for every batch to be settled, to end or to detach the transaction."""
        return self._ending is not None and not self._ending.asked and self._calls.idle

    def may_send(self, tp: TopicPartition) -> bool:
        """Whether batches of the partition may go now. In the first protocol the partition has to be added before."""
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
        """First protocol: add the partitions that `may_send` has refused, all in one request."""
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
        self._begin_asked = True
        self._calls.add(call, now_s)

    def batch_failed(self, error: Exception, *, had_sequence: bool) -> Exception:
        """The producer has given up on a batch: the transaction can only be aborted. Returns what its senders hear."""
        self._new_epoch_needed |= had_sequence
        if isinstance(error, KafkaError) and self._is_expiry(error.code):
            told = KafkaError.of(error.code, f"{self._id}: {requests.EXPIRED}")
            self._failed(told, fatal=True)
            return told
        # INVALID_PRODUCER_EPOCH is not fatal here: only the coordinator knows whether the producer was fenced (KIP-588)
        self._failed(error, fatal=isinstance(error, ProducerFencedError))
        return error

    def all_settled(self, now_s: float) -> None:
        """Every batch is settled: go on with the call that waits for this (`end_waits`)."""
        ending = self._ending
        assert ending is not None
        fatal = self.state is TxnState.FATAL_ERROR
        ending.asked = True
        commit = ending.call is TxnInput.COMMIT
        if ending.call not in OUTCOMES:
            self._hand_over(ending)
        elif fatal or (commit and self.in_error):
            kind = FatalProducerError if fatal else AbortableTransactionError
            to_do = "close the producer" if fatal else "abort it"
            error = kind(f"the transaction was not {OUTCOMES[ending.call]}, {to_do}: {self.cause}")
            error.__cause__ = self.cause
            self._over(ending, error)
        elif self._started or self._may_have_begun:
            message = requests.end_transaction(self._id, self._sequencer.identity, commit=commit)
            error_of = partial(requests.end_error, nothing_there=self._nothing_to_abort(commit=commit))
            self._ask(ApiKey.END_TXN, message, error_of, self._end_answered, ending.user, now_s)
        else:
            self._ended(ending, now_s)

    # inside

    @property
    def _may_have_begun(self) -> bool:
        """First protocol: whether the coordinator may have this transaction open, though it has not said so.

        Then it has to be aborted before the next epoch is asked for: InitProducerId with the epoch of an open
        transaction fences who asks. Kafka 3.x has no way back from there.
        """
        return self._begin_asked and self._calls.has_stray

    def _nothing_to_abort(self, *, commit: bool) -> set[int]:
        """What EndTxn may be answered where nothing is there to abort, and nobody can have committed it either."""
        codes: set[int] = set()
        if not commit and not self._prepared:
            if not self._started:
                codes.add(ErrorCode.INVALID_TXN_STATE)
            if self.outlives_its_id:
                codes.add(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return codes

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
        # EndTxn has succeeded: if the call fails after this, EndTxn must not be asked again
        self._started = self._begin_asked = False
        self._new_epoch_needed |= answer.error_code in requests.FORGOTTEN
        if answer.producer_id >= 0:
            self._identified(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        self._ended(ending, now_s)

    def _ended(self, ending: Ending, now_s: float) -> None:
        if self._new_epoch_needed or (self._calls.has_stray and not self._implicit):
            # KIP-360: the sequences may have a hole, so ask the coordinator for the next epoch. And in the first
            # protocol the epoch stays from one transaction to the next: a request that comes late, above all EndTxn,
            # would change the next one. With another epoch it is refused.
            self._take_identity(self._sequencer.identity, ending.user, lambda now_s: self._ready(ending), now_s)
        else:
            self._ready(ending)

    def _ready(self, ending: Ending) -> None:
        self._started = self._begin_asked = False
        self._automaton.handle(TxnInput.ENDED)
        self._over(ending, None)

    def _over(self, ending: Ending, error: Exception | None, value: Any = None) -> None:
        self._ending = None
        if error is None:
            ending.value = value
            self._unheard.succeeded(ending)
        self._intend(Finish(ending.user, value, error))
        self._begin_next_ending()

    def _begin_next_ending(self) -> None:
        while self._next_endings and self._ending is None:
            following = self._next_endings.pop(0)
            try:
                self.end(following.user, following.call)
            except ClientError as refused:
                self._intend(Finish(following.user, None, refused))

    def _hand_over(self, ending: Ending) -> None:
        """Prepare or detach: the transaction stays open, and its handle goes to the user."""
        try:
            if self.state is not TxnState.PREPARED:
                self._check_open(ending.call)
            if not self._started:
                raise IllegalStateError(f"{ending.call.value}: nothing was sent in this transaction, abort it instead")
            self._automaton.handle(ending.call)
            self._prepared = True
        except ClientError as error:
            self._over(ending, error)
        else:
            self._over(ending, None, TransactionHandle(self._id, *self._sequencer.identity))

    def _take_identity(self, current: ProducerIdentity, user: Any, then: Callable[[float], None], now_s: float) -> None:
        def taken(answer: Any, now_s: float) -> None:
            self._identified(ProducerIdentity(answer.producer_id, answer.producer_epoch))
            then(now_s)

        message = requests.init_producer_id(self._id, self._timeout_ms, current, two_phase=self._two_phase)
        least = TWO_PHASE_VERSION if self._two_phase else None
        self._ask(ApiKey.INIT_PRODUCER_ID, message, requests.identity_error, taken, user, now_s, least=least)

    def _identified(self, identity: ProducerIdentity) -> None:
        self._sequencer.identified(identity)
        self._new_epoch_needed = self._calls.has_stray = False

    def _ask(
        self,
        api: ApiKey,
        message: Message,
        error_of: Callable[[Any], tuple[int, str]],
        done: Callable[[Any, float], None],
        user: Any,
        now_s: float,
        *,
        to: Coordinator | None = None,
        what: str | None = None,
        least: int | None = None,
    ) -> None:
        """Ask a coordinator: that of this transactional id, unless `to` says another. An error changes the state."""
        to = to or Coordinator(CoordinatorKind.TRANSACTION, self._id)

        def failed(error: ClientError, now_s: float) -> None:
            self._refused(error, user)

        call = Call(what or api.name, to, api, lambda: message, error_of, done, failed, self._max_block_ms, user=user)
        call.cap, call.least = self.caps.get(api), least
        self._calls.add(call, now_s)

    def _refused(self, error: ClientError, user: Any) -> None:
        """A request has failed for good, or took too long: change the state accordingly, and tell the user."""
        ending, told = self._ending, error
        is_ours = ending is not None and ending.user is user
        if isinstance(error, KafkaError):
            if ending is not None and is_ours and ending.call is TxnInput.COMMIT and not self._started:
                # EndTxn has succeeded, and the next epoch is refused: what is committed stays so
                self._failed(error, fatal=True)
                self._over(ending, None)
                return
            if error.code in requests.FENCED:
                told = ProducerFencedError(
                    ErrorCode.PRODUCER_FENCED,
                    f"another producer with transactional.id {self._id} has taken over: close this one",
                )
                self._failed(told, fatal=True)
            elif error.code in requests.GROUP_MOVED_ON:
                told = CommitFailedError(
                    f"the offsets are not in the transaction, because the group has rebalanced ({error}): abort the "
                    "transaction and poll again"
                )
                self._failed(error, fatal=False)
            elif (why := requests.why_not(error.code, self._timeout_ms, two_phase=self._two_phase)) is not None:
                told = KafkaError.of(error.code, f"{self._id}: {why}")
                self._failed(told, fatal=True)
            elif error.code in requests.UNKNOWN_OUTCOME and is_ours:
                # transaction.timeout.ms has passed, or a late EndTxn of an earlier transaction has ended this one
                told = FatalProducerError(
                    f"the coordinator does not know this transaction any more, so its outcome is unknown ({error}): "
                    "close the producer, and look at what was written"
                )
                self._failed(error, fatal=True)
            elif self._is_expiry(error.code):
                told = KafkaError.of(error.code, f"{self._id}: {requests.EXPIRED}")
                self._failed(told, fatal=True)
            else:
                self._new_epoch_needed |= error.code in requests.FORGOTTEN
                self._failed(error, fatal=error.code in requests.FATAL)
            told.__cause__ = None if told is error else error
        if user in self._offering:
            self._offering.remove(user)
            self._failed(told, fatal=False)  # also when it took too long: its offsets may be missing
        if ending is not None and is_ours:
            self._over(ending, told)
        elif user is _INITIALIZERS:
            self._tell_initializers(told)
        elif user is not None:
            self._intend(Finish(user, None, told))

    def _is_expiry(self, code: int) -> bool:
        """Whether the producer's id has expired, and this is the producer's end."""
        return code == ErrorCode.INVALID_PRODUCER_ID_MAPPING and not self.outlives_its_id

    def _failed(self, error: Exception, *, fatal: bool) -> None:
        """Change the state as `error` demands."""
        if fatal or self._automaton.state is TxnState.INITIALIZING:
            self._automaton.handle(TxnInput.FATAL, error)
        elif self._automaton.state in _MAY_FAIL:
            self._automaton.handle(TxnInput.ABORTABLE, error)


def _error_code(answer: Any) -> tuple[int, str]:
    return answer.error_code, ""
