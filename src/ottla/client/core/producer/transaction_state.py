"""The transactional producer's automaton: which call or event is allowed in which state (SPEC T1).

`TRANSITIONS` is the whole automaton. If a state does not list an input, the state stays as it was, and the call raises
IllegalStateError with a sentence from `ADVICE`. In ABORTABLE_ERROR and FATAL_ERROR it raises the error that led there.
"""

from collections.abc import Mapping
from enum import Enum

from ottla.client.errors import AbortableTransactionError, FatalProducerError, IllegalStateError


class TxnState(Enum):
    """Where a transactional producer stands."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    #: Something failed; the user can only abort the transaction.
    ABORTABLE_ERROR = "abortable error"
    #: The producer was fenced, or another error came that it cannot go on from; the user can only close it.
    FATAL_ERROR = "fatal error"
    #: Everything is written, and only the decision is missing; it lasts until the user makes it (KIP-939).
    PREPARED = "prepared"
    #: Somebody else has the handle of the open transaction, and will end it.
    DETACHED = "detached"


class TxnInput(Enum):
    """What happens to a transactional producer: the user's calls, and what follows from the brokers' answers."""

    INIT = "init_transactions()"
    BEGIN = "begin_transaction()"
    SEND = "send()"
    SEND_OFFSETS = "send_offsets_to_transaction()"
    COMMIT = "commit_transaction()"
    ABORT = "abort_transaction()"
    PREPARE = "prepare_transaction()"
    DETACH = "detach_transaction()"
    ENDED = "the transaction has ended"
    ABORTABLE = "an abortable error"
    FATAL = "a fatal error"


_S, _I = TxnState, TxnInput

TRANSITIONS: Mapping[TxnState, Mapping[TxnInput, TxnState]] = {
    _S.UNINITIALIZED: {_I.INIT: _S.INITIALIZING, _I.FATAL: _S.FATAL_ERROR},
    _S.INITIALIZING: {_I.INIT: _S.INITIALIZING, _I.ENDED: _S.READY, _I.FATAL: _S.FATAL_ERROR},
    _S.READY: {_I.BEGIN: _S.IN_TRANSACTION, _I.FATAL: _S.FATAL_ERROR},
    _S.IN_TRANSACTION: {
        _I.SEND: _S.IN_TRANSACTION,
        _I.SEND_OFFSETS: _S.IN_TRANSACTION,
        _I.COMMIT: _S.COMMITTING,
        _I.ABORT: _S.ABORTING,
        _I.PREPARE: _S.PREPARED,
        _I.DETACH: _S.DETACHED,
        _I.ABORTABLE: _S.ABORTABLE_ERROR,
        _I.FATAL: _S.FATAL_ERROR,
    },
    _S.PREPARED: {
        _I.PREPARE: _S.PREPARED,
        _I.COMMIT: _S.COMMITTING,
        _I.ABORT: _S.ABORTING,
        _I.FATAL: _S.FATAL_ERROR,
    },
    # after a timeout the user may make the same call again, but not the opposite one
    _S.COMMITTING: {
        _I.COMMIT: _S.COMMITTING,
        _I.ENDED: _S.READY,
        _I.ABORTABLE: _S.ABORTABLE_ERROR,
        _I.FATAL: _S.FATAL_ERROR,
    },
    _S.ABORTING: {
        _I.ABORT: _S.ABORTING,
        _I.ENDED: _S.READY,
        _I.ABORTABLE: _S.ABORTING,
        _I.FATAL: _S.FATAL_ERROR,
    },
    _S.ABORTABLE_ERROR: {_I.ABORT: _S.ABORTING, _I.ABORTABLE: _S.ABORTABLE_ERROR, _I.FATAL: _S.FATAL_ERROR},
    _S.FATAL_ERROR: {_I.FATAL: _S.FATAL_ERROR, _I.ABORTABLE: _S.FATAL_ERROR},
    _S.DETACHED: {_I.ABORTABLE: _S.DETACHED, _I.FATAL: _S.DETACHED},
}


def diagram() -> str:
    """`TRANSITIONS` as a Mermaid diagram, for docs/automata.md, without inputs that leave the state as it is."""
    lines = ["stateDiagram-v2", f"    [*] --> {TxnState.UNINITIALIZED.name}"]
    for source, moves in TRANSITIONS.items():
        targets: dict[TxnState, list[str]] = {}
        for happened, target in moves.items():
            if target is not source:
                targets.setdefault(target, []).append(happened.value.removesuffix("()"))
        lines += [f"    {source.name} --> {target.name} : {', '.join(names)}" for target, names in targets.items()]
    return "\n".join(lines)


#: What to do instead, by state.
ADVICE: Mapping[TxnState, str] = {
    _S.UNINITIALIZED: "call init_transactions() first",
    _S.INITIALIZING: "init_transactions() has not finished: call it again and wait for it",
    _S.READY: "there is no open transaction: call begin_transaction() first",
    _S.IN_TRANSACTION: "a transaction is open: commit_transaction() or abort_transaction() first",
    _S.PREPARED: "the transaction is prepared: commit_transaction() or abort_transaction() first",
    _S.COMMITTING: "the transaction is being committed: call commit_transaction() again if it timed out",
    _S.ABORTING: "the transaction is being aborted: call abort_transaction() again if it timed out",
    _S.ABORTABLE_ERROR: "the transaction failed: call abort_transaction()",
    _S.FATAL_ERROR: "close this producer and make a new one",
    _S.DETACHED: "the transaction was detached: this producer is closed",
}
_ADVICE_READY_INIT = "the transactions of this producer are initialized already: call begin_transaction()"


class TransactionState:
    """The state, and the error that led to an error state."""

    def __init__(self) -> None:
        self.state = TxnState.UNINITIALIZED
        self.cause: BaseException | None = None

    def handle(self, happened: TxnInput, cause: BaseException | None = None) -> None:
        """Change the state. If the input is not allowed, keep the state and raise IllegalStateError,
        AbortableTransactionError or FatalProducerError."""
        target = TRANSITIONS[self.state].get(happened)
        if target is None:
            self._refuse(happened)
            return
        if cause is not None and target is not self.state and target in (_S.ABORTABLE_ERROR, _S.FATAL_ERROR):
            self.cause = cause
        if target is TxnState.READY:
            self.cause = None
        self.state = target

    def _refuse(self, happened: TxnInput) -> None:
        if self.state is TxnState.FATAL_ERROR:
            raise FatalProducerError(
                f"the producer cannot be used any more, close it and make a new one: {self.cause}"
            ) from self.cause
        if self.state is TxnState.ABORTABLE_ERROR:
            raise AbortableTransactionError(
                f"the transaction failed, call abort_transaction(): {self.cause}"
            ) from self.cause
        advice = ADVICE[self.state]
        if happened is TxnInput.INIT and self.state in (TxnState.READY, TxnState.IN_TRANSACTION):
            advice = _ADVICE_READY_INIT
        raise IllegalStateError(f"{happened.value} is not allowed now: {advice}")
