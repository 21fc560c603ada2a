"""The settings of the transaction coordinator; defaults are Kafka 4.3's."""

from __future__ import annotations

from typing import NamedTuple


class TransactionConfig(NamedTuple):
    """Settings of all shards of one broker. Each field names its key in the broker's configuration."""

    #: `transaction.max.timeout.ms`: a larger `transaction.timeout.ms` is refused.
    max_timeout_ms: int = 900_000
    #: `transactional.id.expiration.ms`: after this time an idle id is forgotten.
    id_expiration_ms: int = 604_800_000
    #: `transaction.remove.expired.transaction.cleanup.interval.ms`: how often to look for idle ids.
    expiration_interval_ms: int = 3_600_000
    #: `transaction.two.phase.commit.enable` (KIP-939).
    two_phase_commit: bool = False
    #: How long to wait before a failed append or marker is tried again.
    retry_backoff_ms: int = 100
