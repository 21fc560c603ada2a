"""Idle transactional ids are forgotten: a tombstone after `transactional.id.expiration.ms` (P7, T10)."""

from __future__ import annotations

from ottla.base.limits import MAX_EXPIRED_IDS_PER_BATCH
from ottla.coordinator.decision import Decision, SetTimer
from ottla.coordinator.txn.states import Input, TransactionState, outcome
from ottla.coordinator.txn.store import EXPIRATION_TIMER, TransactionStore


def expire(store: TransactionStore, now_ms: int) -> Decision:
    """Write tombstones for ids that have been idle for too long, and look again later."""
    oldest_ms = now_ms - store.config.id_expiration_ms
    idle = [
        txn.transactional_id
        for txn in store.all()
        if txn.last_update_ms <= oldest_ms
        and outcome(txn.state, Input.EXPIRE) == TransactionState.DEAD
        and not store.is_pending(txn.transactional_id)
    ]
    more = len(idle) > MAX_EXPIRED_IDS_PER_BATCH
    delay_ms = 0 if more else store.config.expiration_interval_ms
    return store.forget(idle[:MAX_EXPIRED_IDS_PER_BATCH], (SetTimer((EXPIRATION_TIMER,), delay_ms),))
