"""Idle transactional ids are forgotten: a tombstone after `transactional.id.expiration.ms` (P7, T10)."""

from __future__ import annotations

from ottla.base.limits import MAX_EXPIRED_IDS_PER_BATCH, MAX_TOMBSTONE_BYTES_PER_BATCH
from ottla.coordinator.decision import Decision, SetTimer
from ottla.coordinator.txn.states import Input, TransactionState, outcome
from ottla.coordinator.txn.store import EXPIRATION_TIMER, TransactionStore


def expire(store: TransactionStore, now_ms: int) -> Decision:
    """Write tombstones for ids that have been idle for too long, and look again later."""
    if not store.to_expire:
        store.to_expire.extend(txn.transactional_id for txn in store.all())
    idle: list[str] = []
    size_bytes = 0
    while store.to_expire and len(idle) < MAX_EXPIRED_IDS_PER_BATCH and size_bytes < MAX_TOMBSTONE_BYTES_PER_BATCH:
        transactional_id = store.to_expire.popleft()
        if _is_idle(store, transactional_id, now_ms - store.config.id_expiration_ms):
            idle.append(transactional_id)
            size_bytes += len(transactional_id.encode())
    delay_ms = 0 if store.to_expire else store.config.expiration_interval_ms
    return store.forget(idle, (SetTimer((EXPIRATION_TIMER,), delay_ms),))


def _is_idle(store: TransactionStore, transactional_id: str, since_ms: int) -> bool:
    txn = store.get(transactional_id)
    return (
        txn is not None
        and txn.last_update_ms <= since_ms
        and outcome(txn.state, Input.EXPIRE) == TransactionState.DEAD
        and not store.is_pending(transactional_id)
    )
