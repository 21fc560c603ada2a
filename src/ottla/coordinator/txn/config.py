"""What the transaction coordinator can be told; defaults are Kafka 4.3's."""

from __future__ import annotations

from typing import NamedTuple


class TransactionConfig(NamedTuple):
    """Settings of all shards of one broker. Each field names its key in the broker's configuration."""

    #: `transaction.max.timeout.ms`: a larger `transaction.timeout.ms` is refused.
    max_timeout_ms: int = 900_000
    #: `transactional.id.expiration.ms`: an idle id is forgotten after so long.
    id_expiration_ms: int = 604_800_000
    #: `transaction.remove.expired.transaction.cleanup.interval.ms`: how often idle ids are looked for.
    expiration_interval_ms: int = 3_600_000
    #: `transaction.two.phase.commit.enable` (KIP-939).
    two_phase_commit: bool = False
    #: How long an append or a marker that failed for now is left alone (Kafka retries at its request's pace).
    retry_backoff_ms: int = 100
