"""The transactional calls of the producer (SPEC T1)."""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata, checked_group, checked_offsets
from ottla.client.core.producer.core import ProducerCore
from ottla.client.core.producer.handle import TransactionHandle
from ottla.client.core.producer.transaction_state import TxnInput, TxnState
from ottla.client.errors import ClientError, IllegalStateError
from ottla.client.shell.driver import Driver

log = logging.getLogger("ottla.producer")

_OPEN = frozenset({TxnState.IN_TRANSACTION, TxnState.ABORTABLE_ERROR, TxnState.ABORTING})
#: States in which `close` aborts. The abort waits for a commit that is under way, and is refused if that succeeds.
_UNFINISHED = _OPEN | {TxnState.COMMITTING}


class Transactional(ABC):
    """The part of `AsyncProducer` that begins and ends transactions."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        #: Held around every call of the core, by the user's threads and by the loop.
        self._lock = threading.Lock()
        #: None until `start`.
        self._driver: Driver | None = None
        #: What `detach_transaction` returns, and the close that belongs to it. It may be cancelled after that.
        self._detached: TransactionHandle | None = None
        self._stopping: asyncio.Task[None] | None = None

    @abstractmethod
    async def start(self) -> None:
        """Begin to connect to the cluster."""

    @property
    @abstractmethod
    def _has_ended(self) -> bool: ...

    @abstractmethod
    async def _stop(self, reason: Exception) -> None: ...

    async def init_transactions(self) -> None:
        """Fence earlier producers of this `transactional.id`, end their open transaction, and get an epoch.

        Call it once, first. Raises IllegalStateError, RequestTimeoutError (call it again), FatalProducerError.
        """
        await self._transact("init_transactions()", self._core.init_transactions)

    async def begin_transaction(self) -> None:
        """Open a transaction: records sent from now on belong to it. Raises IllegalStateError, FatalProducerError."""
        await self._transact("begin_transaction()", self._core.begin_transaction)

    def begin_at_once(self) -> bool:
        """`begin_transaction` in any thread, which has nothing to wait for. False: it is not allowed now, and nothing
        was done; `begin_transaction` says why."""
        transactions = self._core.transactions
        if transactions is None or self._driver is None or self._has_ended:
            return False
        with self._lock:
            if transactions.state is not TxnState.READY:
                return False
            transactions.begin()
        return True

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a consumer's offsets with the transaction. Raises CommitFailedError if the group has rebalanced."""
        checked, group = checked_offsets(offsets) or {}, checked_group(group_metadata)
        await self._transact("send_offsets_to_transaction()", self._core.send_offsets, checked, group)

    async def commit_transaction(self) -> None:
        """Flush and commit. Until it returns the outcome is unknown: call it again after RequestTimeoutError, and after
        a cancellation.

        Raises AbortableTransactionError (abort it), FatalProducerError (close the producer), IllegalStateError.
        """
        await self._transact("commit_transaction()", self._core.end_transaction, TxnInput.COMMIT)

    async def abort_transaction(self) -> None:
        """Give up on records that were not sent, and abort. After RequestTimeoutError or a cancellation call it again.

        Raises FatalProducerError, IllegalStateError.
        """
        await self._transact("abort_transaction()", self._core.end_transaction, TxnInput.ABORT)

    async def prepare_transaction(self) -> TransactionHandle:
        """Flush; then only `commit_transaction` and `abort_transaction` are allowed (KIP-939). Returns what names it.

        Write the handle where the decision is made, in the same transaction of that system. After a crash it tells
        what to commit: `Admin.end_transaction`, before `init_transactions`, which aborts what is open. Neither `close`
        nor an error in a `transaction()` block ends a prepared transaction.

        Raises IllegalStateError if nothing was sent, or without transaction.two.phase.commit.enable;
        AbortableTransactionError, FatalProducerError.
        """
        handle: TransactionHandle = await self._transact(
            "prepare_transaction()", self._core.end_transaction, TxnInput.PREPARE
        )
        return handle

    async def detach_transaction(self) -> TransactionHandle:
        """Flush, leave the transaction open, and close. With the handle anybody can end it (`Admin.end_transaction`).

        After a cancellation call it again: it may have closed already, and has the handle then. Raises
        IllegalStateError if nothing was sent, AbortableTransactionError, FatalProducerError.
        """
        if self._detached is None:
            self._detached = await self._transact("detach_transaction()", self._core.end_transaction, TxnInput.DETACH)
        if self._stopping is None:
            reason = IllegalStateError("the transaction was detached: this producer is closed")
            self._stopping = asyncio.ensure_future(self._stop(reason))
        await asyncio.shield(self._stopping)
        return self._detached

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction around a block. It is committed at the end. It is aborted if the block or the commit raises.

        A prepared transaction is not aborted: only the user knows what the other system has decided.
        """
        await self.begin_transaction()
        try:
            yield
        except BaseException:
            await self.abort_quietly()
            raise
        try:
            await self.commit_transaction()
        except ClientError:
            await self.abort_quietly()
            raise

    async def abort_quietly(self) -> None:
        """Abort the transaction if one is open. A failure is only logged: the caller has a more important error."""
        if self._is_in(_OPEN):
            try:
                await self.abort_transaction()
            except ClientError as error:
                two_phase = self._core.config.transaction_two_phase_commit_enable
                when = "this transactional.id is used again" if two_phase else "it times out"
                log.warning("the transaction was not aborted, the coordinator will do so when %s: %s", when, error)

    def outlive_its_id(self) -> None:
        """Take another identity when this `transactional.id` has expired (`Transactions.outlives_its_id`): only for
        those whose every transaction has a group's offsets, sent with the member's generation."""
        if self._core.transactions is not None:
            self._core.transactions.outlives_its_id = True

    # inside

    def _is_in(self, states: frozenset[TxnState]) -> bool:
        return self._core.transactions is not None and self._core.transactions.state in states

    async def _abort_what_is_open(self) -> None:
        """Before the producer closes; not a prepared transaction."""
        if self._driver is not None and self._is_in(_UNFINISHED):
            with suppress(ClientError):  # refused if a commit that was under way has succeeded
                await self._driver.call(self._core.end_transaction, TxnInput.ABORT)

    async def _transact(self, call: str, event: Callable[..., None], *arguments: object) -> Any:
        await self.start()
        assert self._driver is not None
        if self._core.transactions is None:
            raise IllegalStateError(f"{call} needs a transactional.id in the configuration of the producer")
        return await self._driver.call(event, *arguments)
