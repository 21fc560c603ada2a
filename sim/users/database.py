"""Another system of the users, which decides together with Kafka (KIP-939). It survives whatever happens to them."""

from collections import defaultdict
from typing import NamedTuple

from ottla.client.core.producer.handle import TransactionHandle


class Decision(NamedTuple):
    """The last transaction that a program has decided to commit."""

    txn: str
    handle: TransactionHandle
    #: Whether an InitProducerId of another life, or one that got no answer, was on its way. It aborts what is decided.
    contested: bool


class Database:
    """By program: which of its lives may decide, and its last decision.

    What it cannot do: keep a request of a life that may not decide any more from reaching the broker. In Kafka
    InitProducerId aborts a prepared transaction, until `keepPreparedTxn` is there.
    """

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._last: dict[str, Decision] = {}
        #: By program: lives that have begun and are not initialized, and InitProducerIds that got no answer.
        self._on_their_way: defaultdict[str, set[str]] = defaultdict(set)
        #: Transactions that somebody was told to be committed in Kafka.
        self.committed: set[str] = set()

    def take(self, program: str, life: str) -> Decision | None:
        """From now on only this life may decide. What was decided last."""
        self._owners[program] = life
        self._on_their_way[program].add(life)
        return self._last.get(program)

    def stray(self, program: str, life: str) -> None:
        """An InitProducerId of this life got no answer."""
        self._on_their_way[program].add(f"{life}, no answer")

    def initialized(self, program: str, life: str) -> None:
        """This life has got its epoch."""
        self._on_their_way[program].discard(life)

    def decide(self, program: str, life: str, txn: str, handle: TransactionHandle) -> bool:
        """Whether this life may decide; then it has."""
        if self._owners.get(program) != life:
            return False
        self._last[program] = Decision(txn, handle, bool(self._on_their_way[program]))
        return True
