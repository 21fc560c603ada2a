"""What several parts of the producer's core use."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.client.config.producer import ProducerConfig
from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.sequencing import Sequencer
from ottla.client.core.producer.transactions import Transactions


class Shared(NamedTuple):
    """One producer's configuration and parts, and the way to the shell."""

    config: ProducerConfig
    accumulator: Accumulator
    #: None without `enable.idempotence`.
    sequencer: Sequencer | None
    #: None without `transactional.id`.
    transactions: Transactions | None
    intend: Callable[[object], None]
