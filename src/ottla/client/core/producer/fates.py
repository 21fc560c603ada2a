"""What becomes of batches: does what `answers` says, and keeps accumulator, sequences and transaction in step."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.base.rng import Rng
from ottla.client.config.producer import ProducerConfig
from ottla.client.core.backoff import Backoff
from ottla.client.core.intents import WARNING, Say
from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.answers import Action, SentAs, Standing, action_for
from ottla.client.core.producer.batch import ProducerBatch
from ottla.client.core.producer.calls import SHORT_BACKOFF_MS
from ottla.client.core.producer.identity import ProducerIdentity
from ottla.client.core.producer.sequencing import Sequencer
from ottla.client.core.producer.transactions import Transactions
from ottla.client.errors import ClientError, KafkaError, RecordTooLargeError, RequestTimeoutError, code_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceResponse


class Settle(NamedTuple):
    """Tell the users of a batch its fate."""

    batch: ProducerBatch
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: Exception | None = None


class RoomFreed(NamedTuple):
    """There may be room in `buffer.memory` for those who wait for it."""


class Fates:
    """Settles, repeats and splits the batches of one producer."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        sequencer: Sequencer | None,
        transactions: Transactions | None,
        rng: Rng,
        intend: Callable[[object], None],
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._sequencer = sequencer
        self._transactions = transactions
        self._intend = intend
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._short_backoff = Backoff(*SHORT_BACKOFF_MS, rng)
        #: Topics whose users were told that their batches are too large.
        self._split_topics: set[str] = set()

    # when an answer comes

    def answered(
        self, batch: ProducerBatch, identity: ProducerIdentity, part: PartitionProduceResponse, now_s: float
    ) -> None:
        """A broker has answered for `batch`, which was sent as `identity`."""
        if part.error_code == ErrorCode.NONE:  # every row of the table says so
            batch.on_wire = False
            self.acknowledge(batch, part.base_offset, part.log_append_time_ms)
            return
        code = code_of(part.error_code)
        error: ClientError = KafkaError.of(code, part.error_message or str(batch.tp))
        self._act(batch, identity, code, error, part, now_s)

    def lost(self, batch: ProducerBatch, identity: ProducerIdentity, error: ClientError, now_s: float) -> None:
        """No answer will come for `batch`, which was sent as `identity`."""
        nothing = PartitionProduceResponse(error_code=ErrorCode.NETWORK_EXCEPTION)
        self._act(batch, identity, ErrorCode.NETWORK_EXCEPTION, error, nothing, now_s)

    def not_sent(self, batch: ProducerBatch) -> None:
        """`batch` has not left this client after all: as if it had never been taken."""
        batch.on_wire = False
        batch.attempts -= 1
        if batch.settled:
            self.give_up(batch, batch.last_error or RequestTimeoutError("given up on"))
        else:
            self._accumulator.put_back(batch)

    def _act(
        self,
        batch: ProducerBatch,
        identity: ProducerIdentity,
        code: ErrorCode,
        error: ClientError,
        part: PartitionProduceResponse,
        now_s: float,
    ) -> None:
        batch.on_wire = False
        sent_as = SentAs.UNCOUNTED if self._sequencer is None else self._sequencer.sent_as(batch, identity)
        gap = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        match action_for(self._standing(batch), sent_as, code):
            case Action.ACKNOWLEDGE:
                self.acknowledge(batch, part.base_offset, part.log_append_time_ms)
            case Action.REPEAT:
                if self._sequencer is not None and gap and sent_as is not SentAs.FORMER:
                    self._sequencer.echoed(batch)
                self._repeat(batch, code, error, now_s)
            case Action.REPEAT_IN_DOUBT:
                batch.perhaps_written = True
                self._repeat(batch, code, error, now_s)
            case Action.BEGIN_AGAIN:
                if self._sequencer is not None:
                    self._sequencer.begin_again(batch)
                self._repeat(batch, code, error, now_s)
            case Action.SPLIT if batch.record_count > 1:
                self._split(batch)
            case Action.SPLIT:
                self.give_up(batch, _too_large_alone(batch))
            case Action.GIVE_UP:
                self.give_up(batch, _unknown(batch) if gap and batch.whole_perhaps_written else error)
            case Action.GIVE_UP_IN_DOUBT:
                batch.perhaps_written = True
                self.give_up(batch, _unproved(batch) if gap else error)

    def _standing(self, batch: ProducerBatch) -> Standing:
        if batch.settled or (self._transactions is not None and self._transactions.in_error):
            return Standing.OVER
        if batch.attempts > self._config.retries:
            return Standing.SPENT
        return Standing.NEXT if self._sequencer is None else self._sequencer.standing(batch)

    # what becomes of it

    def acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        """The log has it; `base_offset` is -1 when the broker did not say where."""
        if self._sequencer is not None:
            self._sequencer.acknowledged(batch, offset_known=base_offset >= 0)
        self._settle(Settle(batch, base_offset, log_append_time_ms))

    def give_up(self, batch: ProducerBatch, error: Exception) -> None:
        """The user hears that `batch` failed. While it is on the wire, its sequence waits for the answer."""
        if not batch.on_wire:
            self._accumulator.drop(batch)
            if self._sequencer is not None:
                self._sequencer.given_up(batch)
        if self._transactions is not None and not batch.settled:  # else its transaction has heard, and may be over
            self._transactions.batch_failed(error, had_sequence=batch.identity.valid)
        self._settle(Settle(batch, error=error))

    def give_up_queued(self, error: Exception) -> None:
        """Give up on what is not on the wire."""
        for batch in self._accumulator.queued():
            self.give_up(batch, error)

    def give_up_all(self, error: Exception) -> None:
        """Give up on everything that has not been acknowledged."""
        for batch in self._accumulator.incomplete():
            self.give_up(batch, error)

    def expire(self, now_s: float) -> None:
        """`delivery.timeout.ms`: what is older fails, on the wire or not (KIP-91)."""
        timeout_ms = self._config.delivery_timeout_ms
        for batch in self._accumulator.older_than(now_s - timeout_ms / 1000):
            error = RequestTimeoutError(
                f"{batch.tp}: {batch.record_count} records were not delivered in {timeout_ms} ms"
            )
            error.__cause__ = batch.last_error
            self.give_up(batch, error)

    def _settle(self, fate: Settle) -> None:
        batch = fate.batch
        if not batch.settled:
            batch.settled = True
            self._accumulator.settled(batch)
            self._intend(fate)
            if self._accumulator.room_wanted:
                self._accumulator.room_wanted = False
                self._intend(RoomFreed())
        if not batch.on_wire:
            batch.release()

    def _repeat(self, batch: ProducerBatch, code: ErrorCode, error: ClientError, now_s: float) -> None:
        # the markers of the transaction before are being written: that is over in milliseconds
        backoff = self._short_backoff if code is ErrorCode.CONCURRENT_TRANSACTIONS else self._backoff
        batch.retry_at_s = now_s + backoff.after_ms(batch.attempts - 1) / 1000
        batch.last_error = error
        self._accumulator.put_back(batch)

    def _split(self, batch: ProducerBatch) -> None:
        """Send the halves of a batch that the broker refuses for its size, whatever `retries` says."""
        if batch.tp.topic not in self._split_topics:
            self._split_topics.add(batch.tp.topic)
            text = (
                "%s: a batch of %d bytes is larger than the broker takes (max.message.bytes), such batches are split: "
                "a smaller batch.size would save it"
            )
            self._intend(Say(WARNING, text, (batch.tp, batch.size_bytes)))
        halves = self._accumulator.split(batch)
        if self._sequencer is not None:
            self._sequencer.split(batch, halves)
        batch.release()


def _too_large_alone(batch: ProducerBatch) -> ClientError:
    return RecordTooLargeError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{batch.tp}: the record alone takes a batch of {batch.size_bytes} bytes, more than the topic's "
        "max.message.bytes allows",
    )


def _unproved(batch: ProducerBatch) -> ClientError:
    """Of a batch behind another one that may yet be written, as it may be itself."""
    return KafkaError.of(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{batch.tp}: it is unknown whether {batch.record_count} records were written: the answer about their batch "
        "was lost, and records sent before them were given up on in the same way; look at the end of the partition "
        "before you send them again",
    )


def _unknown(batch: ProducerBatch) -> ClientError:
    """Of a part of a batch that the broker may have had as a whole."""
    return KafkaError.of(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{batch.tp}: it is unknown whether {batch.record_count} records were written: the answer about their batch "
        "was lost, or its leader lost the partition, and when it was sent again the topic's max.message.bytes did not "
        "allow it any more; look at the end of the partition before you send them again",
    )
