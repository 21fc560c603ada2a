"""What a partition remembers of a transaction until its coordinator has confirmed it (KIP-890)."""


class Verification:
    """A transaction that is being verified with its coordinator before its first append (KIP-890)."""

    __slots__ = ("confirmed", "guard", "lowest_sequence", "producer_epoch", "started_ms", "supports_epoch_bump")

    def __init__(self, guard: int, sequence: int, producer_epoch: int, supports_epoch_bump: bool, now_ms: int) -> None:
        self.guard = guard
        #: A higher sequence must not overtake the lowest one that is still waiting.
        self.lowest_sequence = sequence
        self.producer_epoch = producer_epoch
        #: Whether the producer speaks KIP-890's protocol (transaction version 2).
        self.supports_epoch_bump = supports_epoch_bump
        self.started_ms = now_ms
        #: The coordinator has said yes; see `ProducerState.confirm_verification`.
        self.confirmed = False

    def update(self, sequence: int, producer_epoch: int) -> None:
        """Another batch waits for the same verification."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
