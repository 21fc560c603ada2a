"""The fate of each batch: does what the table in `answers` says, in accumulator, sequencer and transactions alike."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.base.rng import Rng
from ottla.client.core.backoff import Backoff, short_backoff
from ottla.client.core.intents import WARNING, Say
from ottla.client.core.producer.answers import Action, SentAs, Standing, action_for, is_gap
from ottla.client.core.producer.batch import ProducerBatch
from ottla.client.core.producer.identity import ProducerIdentity
from ottla.client.core.producer.shared import Shared
from ottla.client.errors import ClientError, KafkaError, RecordTooLargeError, RequestTimeoutError, code_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceResponse

#: Callers who wait for room in `buffer.memory` hear of a little room so long after there was some: the thread that
#: sends and the loop take turns then, and with batches of 16 KiB each turn would be of a few records.
LITTLE_ROOM_S = 0.005


class Settle(NamedTuple):
    """Tell the callers who sent the batch's records what its fate is."""

    batch: ProducerBatch
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: Exception | None = None


class RoomFreed(NamedTuple):
    """There may be room in `buffer.memory` now, for callers who wait for it."""


class Fates:
    """Settles, repeats and splits the batches of one producer."""

    def __init__(self, shared: Shared, rng: Rng) -> None:
        config, self._accumulator, self._sequencer, self._transactions, self._intend = shared
        self._config = config
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._short_backoff = short_backoff(rng)
        #: A batch was settled since the last `RoomFreed`, and somebody waits for room; when to tell of it at last.
        self._room_freed = False
        self._tell_at_s: float | None = None
        self._little_room_s = min(LITTLE_ROOM_S, config.max_block_ms / 4_000)  # else who waits so long gives up before
        #: Topics for which the log says already that batches are too large.
        self._split_topics: set[str] = set()

    # when an answer comes

    def answered(
        self, batch: ProducerBatch, identity: ProducerIdentity, part: PartitionProduceResponse, now_s: float
    ) -> None:
        """A broker has answered for `batch`, which was sent as `identity`."""
        if part.error_code == ErrorCode.NONE:  # *acknowledge* in every row of the table: there is no need to look
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
        """`batch` has not left this client: undo that it was taken out of its queue."""
        batch.on_wire = False
        batch.attempts -= 1
        if batch.settled:
            self.give_up(batch, batch.last_error or RequestTimeoutError(f"{batch.tp}: the records were not sent"))
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
        gap = is_gap(code)
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
                self.give_up(batch, _unknown_half(batch) if gap and batch.whole_perhaps_written else error)
            case Action.GIVE_UP_IN_DOUBT:
                batch.perhaps_written = True
                self.give_up(batch, _unknown_behind_another(batch) if gap else error)

    def _standing(self, batch: ProducerBatch) -> Standing:
        if batch.settled or (self._transactions is not None and self._transactions.in_error):
            return Standing.OVER
        if batch.attempts > self._config.retries:
            return Standing.SPENT
        return Standing.NEXT if self._sequencer is None else self._sequencer.standing(batch)

    # the actions

    def acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        """The log has the batch. `base_offset` is -1 if the broker did not say where."""
        if self._sequencer is not None:
            self._sequencer.acknowledged(batch, offset_known=base_offset >= 0)
        self._settle(Settle(batch, base_offset, log_append_time_ms))

    def give_up(self, batch: ProducerBatch, error: Exception) -> None:
        """`batch` fails with `error`. While it is on the wire, its sequence still waits for the answer."""
        if not batch.on_wire:
            self._accumulator.drop(batch)
            if self._sequencer is not None:
                self._sequencer.given_up(batch)
        if self._transactions is not None and not batch.settled:  # else the transaction knows, and may have ended
            error = self._transactions.batch_failed(error, had_sequence=batch.identity.valid)
        self._settle(Settle(batch, error=error))

    def give_up_queued(self, error: Exception) -> None:
        """Give up on every batch that is not on the wire."""
        for batch in self._accumulator.queued():
            self.give_up(batch, error)

    def give_up_all(self, error: Exception) -> None:
        """Give up on every batch."""
        for batch in self._accumulator.incomplete():
            self.give_up(batch, error)

    def expire(self, now_s: float) -> None:
        """Give up on batches that are older than `delivery.timeout.ms`, on the wire or not (KIP-91)."""
        timeout_ms = self._config.delivery_timeout_ms
        for batch in self._accumulator.older_than(now_s - timeout_ms / 1000):
            error = RequestTimeoutError(
                f"{batch.tp}: {batch.record_count} records were not acknowledged within delivery.timeout.ms "
                f"({timeout_ms} ms)" + (f": {batch.last_error}" if batch.last_error is not None else "")
            )
            error.__cause__ = batch.last_error
            self.give_up(batch, error)

    def tell_of_room(self, now_s: float, comes_more: Callable[[], bool]) -> float | None:
        """Tell callers who wait for room: of much at once, of a little soon, or at once if no answer is on its way that
        can make it more (`comes_more`). Returns when to call this again."""
        if not self._room_freed:
            return None
        if self._tell_at_s is None:
            self._tell_at_s = now_s + self._little_room_s
        if now_s < self._tell_at_s and not self._accumulator.has_much_room and comes_more():
            return self._tell_at_s
        self._room_freed = self._accumulator.room_wanted = False
        self._tell_at_s = None
        self._intend(RoomFreed())
        return None

    def _settle(self, fate: Settle) -> None:
        batch = fate.batch
        if not batch.settled:
            batch.settled = True
            self._accumulator.settled(batch)
            self._intend(fate)
            self._room_freed = self._accumulator.room_wanted
        if not batch.on_wire:
            batch.release()

    def _repeat(self, batch: ProducerBatch, code: ErrorCode, error: ClientError, now_s: float) -> None:
        # CONCURRENT_TRANSACTIONS: the markers of the previous transaction are being written, which takes milliseconds
        backoff = self._short_backoff if code is ErrorCode.CONCURRENT_TRANSACTIONS else self._backoff
        batch.retry_at_s = now_s + backoff.after_ms(batch.attempts - 1) / 1000
        batch.last_error = error
        self._accumulator.put_back(batch)

    def _split(self, batch: ProducerBatch) -> None:
        """Send the halves of a batch that is too large for the broker, also when `retries` is used up."""
        if batch.tp.topic not in self._split_topics:
            self._split_topics.add(batch.tp.topic)
            text = (
                "%s: a batch of %d bytes is larger than the topic's max.message.bytes. The producer splits such "
                "batches and sends them again; with a smaller batch.size it would not have to"
            )
            self._intend(Say(WARNING, text, (batch.tp, batch.size_bytes)))
        halves = self._accumulator.split(batch)
        if self._sequencer is not None:
            self._sequencer.split(batch, halves)
        batch.release()


def _too_large_alone(batch: ProducerBatch) -> ClientError:
    return RecordTooLargeError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{batch.tp}: the record alone makes a batch of {batch.size_bytes} bytes, more than the topic's "
        "max.message.bytes allows; send smaller records, or raise it",
    )


def _unknown_behind_another(batch: ProducerBatch) -> ClientError:
    """For a batch that may still be written, like one before it that was given up on (`Standing.UNPROVED`)."""
    return _unknown(batch, "was lost, and so was the answer about records before them, which were given up on")


def _unknown_half(batch: ProducerBatch) -> ClientError:
    """For a part of a split batch that may have been written as a whole (`Standing.PART`)."""
    return _unknown(
        batch,
        "was lost, or its leader lost the partition; and when the batch was sent again, it was larger than the topic's "
        "max.message.bytes, which had become smaller",
    )


def _unknown(batch: ProducerBatch, why: str) -> ClientError:
    return KafkaError.of(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{batch.tp}: it is unknown whether {batch.record_count} records were written: the answer about their batch "
        f"{why}. Look at the end of the partition before you send them again",
    )
