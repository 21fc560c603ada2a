"""The transaction automaton: one table, which everything else asks.

Theory of operation. A transactional id is in one `TransactionState`. What happens to it is an `Input`. For every pair
the table says what follows: another state (a record is written), or an answer (nothing is written, the state stays).
The answer `ErrorCode.NONE` means "it is so already": a request was repeated and succeeds again, or a timer came late.

Two states are never written to the log. PREPARE_EPOCH_FENCE lasts only within one decision: a producer is fenced by
raising its epoch, and its transaction is aborted with that new epoch. DEAD lasts from the decision that an id has
expired until its tombstone is durable. While a record is on its way to the log, and while markers are written, requests
that would change the state are answered CONCURRENT_TRANSACTIONS.

States and ids are Kafka's (`TransactionState`); the answers to EndTxn are the two tables of KIP-890 and Kafka 4.3's
`TransactionCoordinator.endTransaction`.
"""

from enum import Enum, IntEnum
from typing import Final, TypeAlias

from ottla.wire.errors import ErrorCode


class TransactionState(IntEnum):
    """Kafka's states with the ids they have in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """The name in ListTransactions and DescribeTransactions: `PrepareCommit`."""
        return self.name.title().replace("_", "")


STATE_BY_KAFKA_NAME: Final = {state.kafka_name: state for state in TransactionState}


class TransactionVersion(IntEnum):
    """The feature `transaction.version`: which protocol a client ends its transactions with."""

    V0 = 0
    #: Flexible records in `__transaction_state` (KIP-915); the same protocol as V0.
    V1 = 1
    #: KIP-890: the epoch goes up with every end, partitions are added by the produce itself.
    V2 = 2

    @property
    def bumps_epoch(self) -> bool:
        """Whether an end of a transaction raises the producer's epoch."""
        return self >= TransactionVersion.V2


class Input(Enum):
    """What can happen to a transactional id."""

    #: InitProducerId.
    INIT = "init"
    #: AddPartitionsToTxn, AddOffsetsToTxn, or a produce that adds its partition (KIP-890).
    ADD = "add partitions"
    #: EndTxn in KIP-890's protocol with the current epoch.
    COMMIT = "commit"
    ABORT = "abort"
    #: The same, sent again with the epoch it had before it took effect.
    COMMIT_REPEATED = "commit repeated"
    ABORT_REPEATED = "abort repeated"
    #: EndTxn in the protocol before KIP-890, where the epoch stays.
    COMMIT_V1 = "commit v1"
    ABORT_V1 = "abort v1"
    #: `transaction.timeout.ms` has passed since the transaction began.
    TIME_OUT = "time out"
    #: The marker is in every partition's log.
    MARKERS_WRITTEN = "markers written"
    #: `transactional.id.expiration.ms` has passed since the last change.
    EXPIRE = "expire"

    #: The automaton's table is asked several times a transaction, and Enum's own hash is a function in Python.
    __hash__ = object.__hash__


Outcome: TypeAlias = TransactionState | ErrorCode

_S: TypeAlias = TransactionState
_BUSY: Final = ErrorCode.CONCURRENT_TRANSACTIONS
_INVALID: Final = ErrorCode.INVALID_TXN_STATE
_FENCED: Final = ErrorCode.PRODUCER_FENCED
_SAME: Final = ErrorCode.NONE


def _passing(**leads: Outcome) -> dict[Input, Outcome]:
    """A state that is soon over: requests are told to come again, and other inputs change nothing."""
    row: dict[Input, Outcome] = dict.fromkeys(Input, _BUSY)
    row |= dict.fromkeys((Input.TIME_OUT, Input.MARKERS_WRITTEN, Input.EXPIRE), _SAME)
    return row | {Input[name]: leads_to for name, leads_to in leads.items()}


def _idle(**ends: Outcome) -> dict[Input, Outcome]:
    """A state in which no transaction is open."""
    row: dict[Input, Outcome] = {
        Input.INIT: _S.EMPTY,
        Input.ADD: _S.ONGOING,
        Input.COMMIT: _INVALID,
        # KIP-890: an abort without a transaction raises the epoch, so that a producer can fence its own late produces.
        Input.ABORT: _S.PREPARE_ABORT,
        Input.TIME_OUT: _SAME,
        Input.MARKERS_WRITTEN: _SAME,
        Input.EXPIRE: _S.DEAD,
    }
    return row | {Input[name]: leads_to for name, leads_to in ends.items()}


TRANSITIONS: Final[dict[TransactionState, dict[Input, Outcome]]] = {
    _S.EMPTY: _idle(COMMIT_REPEATED=_FENCED, ABORT_REPEATED=_FENCED, COMMIT_V1=_INVALID, ABORT_V1=_INVALID),
    _S.ONGOING: {
        Input.INIT: _S.PREPARE_EPOCH_FENCE,
        Input.ADD: _S.ONGOING,
        Input.COMMIT: _S.PREPARE_COMMIT,
        Input.ABORT: _S.PREPARE_ABORT,
        Input.COMMIT_REPEATED: _FENCED,
        Input.ABORT_REPEATED: _FENCED,
        Input.COMMIT_V1: _S.PREPARE_COMMIT,
        Input.ABORT_V1: _S.PREPARE_ABORT,
        Input.TIME_OUT: _S.PREPARE_EPOCH_FENCE,
        Input.MARKERS_WRITTEN: _SAME,
        Input.EXPIRE: _SAME,
    },
    _S.PREPARE_COMMIT: _passing(MARKERS_WRITTEN=_S.COMPLETE_COMMIT),
    _S.PREPARE_ABORT: _passing(MARKERS_WRITTEN=_S.COMPLETE_ABORT),
    _S.COMPLETE_COMMIT: _idle(COMMIT_REPEATED=_SAME, ABORT_REPEATED=_INVALID, COMMIT_V1=_SAME, ABORT_V1=_INVALID),
    _S.COMPLETE_ABORT: _idle(COMMIT_REPEATED=_INVALID, ABORT_REPEATED=_SAME, COMMIT_V1=_INVALID, ABORT_V1=_SAME),
    _S.DEAD: _passing(),
    _S.PREPARE_EPOCH_FENCE: _passing(ABORT=_S.PREPARE_ABORT),
}

#: The states a record may hold; a log with another one is corrupt.
LOGGED_STATES: Final = frozenset(_S) - {_S.DEAD, _S.PREPARE_EPOCH_FENCE}

#: Markers are being written, or are to be written after a restart.
PREPARED_STATES: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})


def outcome(state: TransactionState, given: Input) -> Outcome:
    """What `given` leads to in `state`."""
    return TRANSITIONS[state][given]


def diagram() -> str:
    """The automaton as a Mermaid state diagram, drawn from the table; inputs with one target share an arrow."""
    lines = ["stateDiagram-v2", "    [*] --> Empty : init"]
    for state, row in TRANSITIONS.items():
        arrows: dict[TransactionState, list[str]] = {}
        for given, target in row.items():
            if isinstance(target, TransactionState):
                arrows.setdefault(target, []).append(given.value)
        for target, labels in arrows.items():
            lines.append(f"    {state.kafka_name} --> {target.kafka_name} : {', '.join(labels)}")
    lines.append("    Dead --> [*] : tombstone written")
    return "\n".join(lines)
