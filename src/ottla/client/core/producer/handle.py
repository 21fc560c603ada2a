"""An open transaction as three values, which anybody may keep and end it with."""

from typing import NamedTuple


class TransactionHandle(NamedTuple):
    """An open transaction. With a handle anybody can end it (`Admin.end_transaction`)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}:{self.transactional_id}"

    @classmethod
    def parse(cls, text: str) -> "TransactionHandle":
        """The handle that `str(handle)` has written, for example into a database. Raises ValueError, TypeError."""
        if not isinstance(text, str):
            raise TypeError(f"a handle is read from the str that str(handle) has made, not from {text!r}")
        producer_id, colon, rest = text.partition(":")
        epoch, second_colon, transactional_id = rest.partition(":")
        numbers = producer_id.isdecimal() and int(producer_id) < 2**63 and epoch.isdecimal() and int(epoch) < 2**15
        if not (colon and second_colon and transactional_id and numbers):
            raise ValueError(f"{text!r} is no transaction: expected producerId:epoch:transactionalId, as str(handle)")
        return cls(transactional_id, int(producer_id), int(epoch))
