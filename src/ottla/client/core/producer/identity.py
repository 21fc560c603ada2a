"""Who a producer is to the brokers: its id and epoch (KIP-98)."""

from typing import NamedTuple

NO_SEQUENCE = -1
#: After the largest sequence, 2^31 - 1, comes 0.
MODULUS = 2**31
MAX_EPOCH = 2**15 - 1
#: In place of a broker's id: a batch was sent to none yet, or to more than one.
NOBODY = -1
SEVERAL = -2


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch; -1 if there is none."""

    producer_id: int = -1
    epoch: int = -1

    @property
    def valid(self) -> bool:
        """Whether a broker gave it."""
        return self.producer_id >= 0


NO_IDENTITY = ProducerIdentity()


def plus(sequence: int, count: int) -> int:
    """The sequence `count` after `sequence`. After NO_SEQUENCE comes 0."""
    return (sequence + count) % MODULUS
