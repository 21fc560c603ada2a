"""Calls that end a transaction, and what is left of one whose caller was cancelled just as it succeeded.

Such a caller has not heard of the end. It makes the same call again, as after a time-out, and has to be told that it
has succeeded: an error would read as if nothing had been committed. This holds for one repetition, and only until the
next transaction begins.
"""

from dataclasses import dataclass
from typing import Any

from ottla.client.core.producer.transaction_state import TxnInput
from ottla.client.errors import IllegalStateError

#: What has become of the transaction after these calls.
OUTCOMES = {TxnInput.COMMIT: "committed", TxnInput.ABORT: "aborted"}
#: A prepared transaction stays prepared: the call can be made again as often as one likes.
_ONCE = OUTCOMES.keys() | {TxnInput.DETACH}


@dataclass(slots=True, eq=False)
class Ending:
    """A call that commits, aborts, prepares or detaches the transaction. It goes on when every batch is settled."""

    user: Any
    call: TxnInput
    #: It has gone on: no batch is waited for any more.
    asked: bool = False
    #: What it returns, once it has succeeded.
    value: Any = None


class Unheard:
    """The ending that has succeeded last, if its caller does not know that."""

    def __init__(self) -> None:
        self._last: Ending | None = None
        self._unheard: Ending | None = None

    def succeeded(self, ending: Ending) -> None:
        """`ending` is over. Whether its caller hears of it is not known yet."""
        self._last = ending if ending.call in _ONCE else None
        self._unheard = None

    def abandoned(self, user: Any) -> None:
        """The caller was cancelled before it heard."""
        if self._last is not None and self._last.user is user:
            self._unheard = self._last

    def take(self, call: TxnInput) -> Ending | None:
        """The ending that `call` repeats, if it does. Raises IllegalStateError if `call` wants the opposite of it."""
        done = self._unheard
        if done is None:
            return None
        if done.call is call:
            self._unheard = None
            return done
        if done.call in OUTCOMES and call in OUTCOMES:
            raise IllegalStateError(
                f"{call.value} is not allowed now: the transaction was {OUTCOMES[done.call]}, because "
                f"{done.call.value} had succeeded when its caller was cancelled"
            )
        return None

    def clear(self) -> None:
        """A new transaction has begun."""
        self._last = self._unheard = None
