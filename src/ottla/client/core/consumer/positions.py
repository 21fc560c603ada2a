"""Where a consumer is in each of its partitions.

Two threads use a `PartitionState`: the loop fetches ahead, the user's thread takes what was fetched. Only one of them
writes each number, so nothing needs a lock: the loop writes `added_*`, the user's thread writes `taken_*`, and also
`position` while there is something to take. `version` changes whenever earlier fetches become void (a seek, a reset).
With `assignment`, the number of the assignment in which the partition came, it is the partition's era (`era`).
"""

from collections.abc import Iterable, Iterator

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.consumer_record import ConsumerRecord
from ottla.client.core.offsets import OffsetAndMetadata
from ottla.wire.special_timestamp import SpecialTimestamp

NO_POSITION = -1
UNKNOWN_EPOCH = -1


class Got:
    """How far a `for` loop is in a partition: at `record`, or, before it has got one, where its poll began."""

    __slots__ = ("_begin", "record")

    def __init__(self, begin: tuple[int, int]) -> None:
        self._begin = begin
        self.record: ConsumerRecord | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Position and epoch behind the record."""
        record = self.record
        if record is None:
            return self._begin
        return record.offset + 1, UNKNOWN_EPOCH if record.leader_epoch is None else record.leader_epoch


class PartitionState:
    """One assigned partition."""

    __slots__ = (
        "added_bytes",
        "added_fetches",
        "assignment",
        "end_asked",
        "fetch_offset",
        "fetched_last",
        "got",
        "halted",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "looked_up",
        "lost_at",
        "lost_epoch",
        "old_since_s",
        "out_of_range_since_s",
        "paused",
        "position",
        "position_epoch",
        "refusals",
        "reset_to_ms",
        "retry_at_s",
        "taken_bytes",
        "taken_fetches",
        "tp",
        "unwanted",
        "validate",
        "version",
    )

    def __init__(self, tp: TopicPartition, assignment: int = 0) -> None:
        self.tp = tp
        self.assignment = assignment
        #: Offset of the next record that the user gets; NO_POSITION until it is known.
        self.position = NO_POSITION
        #: Leader epoch of the last record that the user got, or of the committed offset.
        self.position_epoch = UNKNOWN_EPOCH
        #: What a `for` loop has got of the last poll; None if it has got all of it.
        self.got: Got | None = None
        #: Offset of the next fetch. It is ahead of `position` by what is in the buffer.
        self.fetch_offset = NO_POSITION
        #: The number of the last fetch that brought records: partitions that waited longer are asked for first.
        self.fetched_last = 0
        #: Leader epoch at which the position was last found to be in the log.
        self.leader_epoch = UNKNOWN_EPOCH
        #: The leader has changed: whether the log still holds the position must be checked (`validation`).
        self.validate = False
        #: Since when metadata has had an older epoch than the position; None if it has not, or nobody has looked.
        self.old_since_s: float | None = None
        #: Since when leaders have said that the position, whose epoch is not known, is not in the log; None if the last
        #: fetch brought no such answer. They may have been deposed without knowing it.
        self.out_of_range_since_s: float | None = None
        #: The time by which a position must be looked up (or a SpecialTimestamp); None if it need not.
        self.reset_to_ms: int | None = None
        #: A request about the position is on its way.
        self.looked_up = False
        #: The position that was out of range, and its epoch, while another one is looked for.
        self.lost_at = NO_POSITION
        self.lost_epoch = UNKNOWN_EPOCH
        #: The end of the log (EARLIEST, LATEST) that is asked for, to see whether the lost position is in the log.
        self.end_asked: SpecialTimestamp | None = None
        self.retry_at_s = 0.0
        #: How many fetches in a row brought an error.
        self.refusals = 0
        self.paused = False
        #: The user does not subscribe to the topic any more, and the group has not heard of it.
        self.unwanted = False
        #: The last stored fetch ends in an error: nothing is fetched until poll has raised it.
        self.halted = False
        self.version = 0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.added_fetches = self.taken_fetches = 0
        self.added_bytes = self.taken_bytes = 0

    @property
    def rests(self) -> bool:
        """Whether nothing is fetched, and the user gets nothing, for now."""
        return self.paused or self.unwanted

    @property
    def buffered_fetches(self) -> int:
        """Fetches that wait to be taken."""
        return self.added_fetches - self.taken_fetches

    @property
    def buffered_bytes(self) -> int:
        """Their bytes."""
        return self.added_bytes - self.taken_bytes

    @property
    def next_offset(self) -> int:
        """The position as the user sees it: after the last record that the user has got."""
        got = self.got
        return self.position if got is None else got.place[0]

    def lag(self, *, read_committed: bool) -> int | None:
        """Offsets left to read as of the last fetch; None before the first."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        return None if end < 0 or self.position == NO_POSITION else max(0, end - self.next_offset)

    def seek(self, offset: int, epoch: int = UNKNOWN_EPOCH) -> None:
        """Go on at `offset`. Earlier fetches become void."""
        self.version += 1
        self.got = None
        self.position = self.fetch_offset = offset
        self.position_epoch = epoch
        self.reset_to_ms = None
        self.looked_up = False
        self.lost_at = NO_POSITION
        self.lost_epoch = UNKNOWN_EPOCH
        self.end_asked = None
        self.retry_at_s = 0.0
        self.refusals = 0
        self.halted = False
        self.validate = epoch != UNKNOWN_EPOCH
        self.old_since_s = None
        self.out_of_range_since_s = None
        self.added_fetches = self.taken_fetches = 0
        self.added_bytes = self.taken_bytes = 0

    def seek_to_time(self, timestamp_ms: int) -> None:
        """Go on at the first record from this time on. Its offset has to be looked up."""
        self.seek(NO_POSITION)
        self.reset_to_ms = timestamp_ms

    def lose(self, timestamp_ms: int) -> None:
        """The position is out of range, or there was none: look for the one of this time."""
        lost = (self.lost_at, self.lost_epoch) if self.position == NO_POSITION else (self.position, self.position_epoch)
        since_s = self.out_of_range_since_s
        self.seek_to_time(timestamp_ms)
        self.lost_at, self.lost_epoch = lost
        self.out_of_range_since_s = since_s

    def doubt(self, end: SpecialTimestamp) -> None:
        """A leader says that the position is out of range: look for this end of its log first."""
        self.lose(end)
        self.end_asked = end

    def find_again(self, retry_at_s: float) -> None:
        """The position that was out of range may be in the log all the same: try to read from it again."""
        since_s = self.out_of_range_since_s
        self.seek(self.lost_at, self.lost_epoch)
        self.out_of_range_since_s = since_s
        self.retry_at_s = retry_at_s

    def led_elsewhere(self) -> None:
        """Another leader, or another epoch of it: what the former one has refused this one may bring."""
        if self.refusals:
            self.refusals = 0
            self.retry_at_s = 0.0

    def committable(self) -> OffsetAndMetadata | None:
        """The position to commit: after the last record that the user has got."""
        got = self.got
        offset, epoch = (self.position, self.position_epoch) if got is None else got.place
        if self.end_asked is not None:  # it is in doubt, and the user has read up to it all the same
            offset, epoch = self.lost_at, self.lost_epoch
        return None if offset == NO_POSITION else OffsetAndMetadata(offset, "", epoch)


class Positions:
    """The assigned partitions."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}
        self._assignments = 0
        #: The topics that the user subscribes to by name; None for all that are assigned.
        self._wanted: frozenset[str] | None = None

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(list(self._states.values()))

    def __len__(self) -> int:
        return len(self._states)

    def get(self, tp: TopicPartition) -> PartitionState | None:
        """The state of `tp`; None if it is not assigned."""
        return self._states.get(tp)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is assigned."""
        return frozenset(self._states)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these. Partitions that stay keep their positions. Fetches of those that go become void."""
        before = self._states
        self._assignments += 1
        self._states = {tp: before.get(tp) or PartitionState(tp, self._assignments) for tp in partitions}
        for tp, state in before.items():
            if tp not in self._states:
                state.version += 1
        self.want(self._wanted)

    def want(self, topics: frozenset[str] | None) -> None:
        """Read partitions of these topics alone; None for all that are assigned."""
        self._wanted = topics
        for state in self._states.values():
            state.unwanted = topics is not None and state.tp.topic not in topics

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every known position."""
        found = ((state.tp, state.committable()) for state in self)
        return {tp: offset for tp, offset in found if offset is not None}
