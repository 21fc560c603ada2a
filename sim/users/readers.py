"""Users of the consumer: members of a group that poll, commit, are slow, are killed and come back."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition
from ottla.client.consumer.consumer import AsyncConsumer
from ottla.client.core.consumer.member import NO_GENERATION
from ottla.client.core.consumer.offset_reset import OffsetReset
from ottla.client.core.consumer.subscription import SubscriptionPattern, Wanted
from ottla.client.errors import (
    ClientError,
    CommitFailedError,
    CorruptRecordsError,
    FencedInstanceIdError,
    KafkaError,
    MaxPollIntervalExceededError,
    RebalanceInProgressError,
    RequestTimeoutError,
    UnreleasedInstanceIdError,
)
from ottla.testing.history.facts import Assigned, Polled, Read, Revoked, Sought
from sim.history import IsMember
from sim.seam import make_consumer
from sim.users.process import LONGEST_PAUSE_S, Process

if TYPE_CHECKING:
    from sim.world import World

#: Errors after which the documentation tells the user to poll again.
_POLL_AGAIN = (MaxPollIntervalExceededError, RequestTimeoutError)
#: A group reads on for at least so long after the last fault (sessions end, coordinators move), and until no poll has
#: returned a record for so long. A JoinGroup takes 15 s here if nobody has noticed that its connection is cut, and a
#: fetch behind it 7 s.
_DRAIN_S = 45.0
_IDLE_S = 30.0


class MistakeError(Exception):
    """An error of the user's own callback."""


class Reading(Process):
    """What all programs with a consumer have in common."""

    group = "g"
    read_committed = True
    #: Whether the consumer of now is asked for columns, and the pattern that it has subscribed to, if to one.
    columns = False
    pattern: re.Pattern[str] | None = None
    #: When a poll of this program last returned records, or it came back from doing nothing.
    busy_at_s = 0.0

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        #: The last record of each partition that this program has seen.
        self.reached: defaultdict[TopicPartition, int] = defaultdict(int)

    @property
    def drained(self) -> bool:
        """Whether faults are over, and there seems to be nothing left to read."""
        now_s = self.world.loop.time()
        over_s = self.world.stopped_at_s + _DRAIN_S
        return self.world.users_stopped and now_s > over_s and now_s > self.busy_at_s + _IDLE_S

    def consumer(self, topics: Sequence[str], **more: object) -> AsyncConsumer:
        """A consumer that has subscribed as a member of the group."""
        draw = self.rng.choice
        session_ms = draw((2_000, 6_000))
        config: dict[str, object] = {
            "bootstrap.servers": self.world.served.bootstrap,
            "client.id": self.who,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if self.read_committed else "read_uncommitted",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 4,
            "max.poll.interval.ms": draw((4_000, 10_000)),
            "max.poll.records": draw((4, 20, 500)),
            "request.timeout.ms": draw((1_000, 5_000)),
            "default.api.timeout.ms": draw((2_000, 10_000)),
            "fetch.max.wait.ms": 2_000,
            "max.partition.fetch.bytes": draw((300, 1_048_576)),
            "partition.assignment.strategy": self.world.strategy,
            **more,
        }
        protocol = self.world.protocols.change(config, self.world.stream(f"{self.who} {len(self.clients)} protocol"))
        consumer = make_consumer(config, self.world.loop, self.rng, self._reset, self.crashed)
        self.clients.append(consumer)

        instance_id = None if "group.instance.id" not in config else str(config["group.instance.id"])
        known_as = ""

        def told(what: str, partitions: Sequence[TopicPartition]) -> None:
            nonlocal known_as
            member_id, generation = consumer.group_metadata().member_id, consumer.group_metadata().generation_id
            if known_as != member_id:
                known_as = member_id
                self.note("is member", member_id, IsMember(member_id))
            text = f"generation {generation}: {', '.join(map(str, sorted(partitions))) or 'none'}"
            present = self.world.served.generation(self.group)
            if present is not None and generation > present:
                generation = NO_GENERATION  # of a life before, heard of late: others are given the same number now
            given = tuple(sorted(partitions))
            if what == "assigned":
                fact: Assigned | Revoked = Assigned(self.group, generation, given, instance_id)
            else:
                fact = Revoked(self.group, generation, given, lost=what == "lost")
            self.note(what, text, fact)
            if self.rng.random() < self.world.mistakes:
                raise MistakeError(what)

        wanted: Wanted = topics if self.pattern is None else self.pattern
        if protocol == "consumer" and self.pattern is not None and self.rng.random() < 0.5:
            wanted = SubscriptionPattern(self.pattern.pattern)
        self.note("joins", f"{protocol}, {wanted}")
        consumer.subscribe(
            wanted,
            on_assigned=lambda partitions: told("assigned", list(partitions)),
            on_revoked=lambda partitions: told("revoked", list(partitions)),
            on_lost=lambda partitions: told("lost", list(partitions)),
        )
        return consumer

    def _reset(self, reset: OffsetReset) -> None:
        """The consumer has set a position by its reset policy. It may do so only where it has none, or where records
        were deleted that it has not read."""
        self.note("position reset", str(reset))
        if self.world.served.behind_loss(reset.partition, 0) is not None:
            self.note("sought", f"{reset.partition}", Sought({reset.partition: -1}))
        elif reset.before >= 0 and not reset.before < reset.after <= self.world.served.deleted_below(reset.partition):
            self.world.anomaly("false-reset", f"{self.who}: {reset}", self.who)

    def has_polled(self, records: Sequence[Read]) -> None:
        """A poll has returned these records."""
        if records:
            self.busy_at_s = self.world.loop.time()
            for tp, offset, _ in records:
                self.reached[tp] = max(self.reached[tp], offset)
            text = ", ".join(f"{uid} {tp}@{offset}" for tp, offset, uid in records)
            self.note("polled", text, Polled(self.group, tuple(records), self.read_committed))

    async def poll(self, consumer: AsyncConsumer, timeout_s: float) -> list[Read]:
        """The records of a poll; none if it raises an error after which the user should poll again. Raises others."""
        try:
            found = await self._polled(consumer, timeout_s)
        except _POLL_AGAIN as error:
            self.note("poll raised", repr(error))
            return []
        except UnreleasedInstanceIdError as error:  # it was killed, and its session is not over
            self.note("poll raised", repr(error))
            await super().pause(0.2)
            return []
        except CorruptRecordsError as error:
            behind = self.world.served.behind_loss(error.partition, error.offset)
            if behind is None:
                raise
            self.note("poll raised", repr(error))
            # One damage may take many offsets, and each takes the consumer's time to be sure of it.
            self.busy_at_s = self.world.last_fault_s = self.world.loop.time()
            consumer.seek(error.partition, behind)  # as the error says; the broker's log has the end of what is gone
            self.note("sought", f"{error.partition}@{behind}", Sought({error.partition: behind}))
            return []
        except KafkaError as error:
            if not error.retriable:
                raise
            self.note("poll raised", repr(error))
            return []
        except MistakeError as error:
            self.note("poll raised", repr(error))
            return []
        self.has_polled(found)
        return found

    async def _polled(self, consumer: AsyncConsumer, timeout_s: float) -> list[Read]:
        if self.columns:
            batches = await consumer.poll_arrow(timeout_s)
            return [
                Read(tp, row["offset"], uid_of(row["value"]))
                for tp, batch in batches.items()
                for row in batch.to_pylist()
            ]
        records = await consumer.poll(timeout_s)
        return [Read(TopicPartition(r.topic, r.partition), r.offset, uid_of(r.value)) for r in records]

    async def pause(self, mean_s: float, most_s: float = LONGEST_PAUSE_S) -> None:
        """Do nothing for a while. What has come meanwhile is still to be read."""
        await super().pause(mean_s, most_s)
        self.busy_at_s = self.world.loop.time()

    async def leave(self, consumer: AsyncConsumer) -> None:
        """Close the consumer."""
        try:
            await consumer.close(leave_group=self.rng.random() < 0.8)
        except (ClientError, MistakeError) as error:
            self.note("close raised", repr(error))
        self.note("closed")


def uid_of(value: bytes | None) -> str:
    """The record's name, which is its value without the padding."""
    return bytes(value or b"").rstrip(b".").decode()


class Reader(Reading):
    """Reads everything. Each of its consumers commits either by itself or by the user's calls."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self.read_committed = world.read_committed

    async def live(self) -> None:
        drained_s = None
        while drained_s is None:
            by_hand = self.rng.random() < 0.5
            more: dict[str, object] = {"enable.auto.commit": not by_hand, "auto.commit.interval.ms": 1_000}
            if self.name in self.world.static_members:
                more["group.instance.id"] = self.name
            self.columns = self.rng.random() < 0.25
            self.pattern = self.rng.choice((None, None, re.compile(r"t\d+")))
            consumer = self.consumer(self.world.topics, **more)
            until_s = self.world.loop.time() + self.rng.uniform(5.0, 60.0)
            try:
                drained_s = await self._read(consumer, until_s, by_hand=by_hand)
            except FencedInstanceIdError as error:
                self.note("fenced", repr(error))
            await self.leave(consumer)

    async def _read(self, consumer: AsyncConsumer, until_s: float, *, by_hand: bool) -> float | None:
        loop = self.world.loop
        while not self.world.users_stopped and loop.time() < until_s:
            await self.poll(consumer, self.rng.choice((0.0, 0.5, 3.0)))
            if by_hand and self.rng.random() < 0.3:
                await self._commit(consumer)
            if self.rng.random() < self.world.seeks:
                self._seek_back(consumer)
            if self.rng.random() < 0.05:
                await self.pause(self.rng.choice((0.3, 3.0, 6.0)))
        if not self.world.users_stopped:
            return None
        while not self.drained:
            await self.poll(consumer, 1.0)
        return loop.time()

    def _seek_back(self, consumer: AsyncConsumer) -> None:
        """Read something again, while fetches of what comes later are on their way."""
        owned = sorted(consumer.assignment())
        if owned:
            tp = self.rng.choice(owned)
            offset = self.rng.randrange(self.reached[tp] + 1)
            consumer.seek(tp, offset)
            self.note("sought", f"{tp}@{offset}", Sought({tp: offset}))

    async def _commit(self, consumer: AsyncConsumer) -> None:
        if self.rng.random() < 0.3:
            consumer.commit_async()
            return
        try:
            await consumer.commit()
        except (CommitFailedError, RebalanceInProgressError, RequestTimeoutError) as error:
            self.note("commit raised", repr(error))
        except KafkaError as error:
            if not error.retriable:
                raise
            self.note("commit raised", repr(error))
