"""The coordinators of this node: a shard per partition of `__consumer_offsets` and of `__transaction_state`.

By its hash a group or transactional id belongs to one partition; the leader of that partition coordinates it. After a
start the shards are loaded from their partitions, in steps that leave the loop free for other requests.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from ottla.base.errors import StorageError
from ottla.base.require import require
from ottla.base.types import TopicPartition
from ottla.broker.metadata.image import MetadataImage, TopicImage
from ottla.broker.runtime.answers import ready
from ottla.broker.runtime.shard import Applier, Logged, Shard, ShardRunner, ShardRuntime, ShardState
from ottla.coordinator.decision import NOTHING, Decision, Effect
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.txn.shard import TransactionShard
from ottla.wire.errors import ErrorCode
from ottla.wire.hashing import coordinator_partition

S = TypeVar("S", bound=Shard)


class Coordinators(Generic[S]):
    """The shards of one internal topic."""

    def __init__(
        self,
        topic: str,
        runtime: ShardRuntime,
        image: MetadataImage,
        make_shard: Callable[[TopicPartition], S],
        applier: Applier[S],
        *,
        create_topic: Callable[[], Coroutine[Any, Any, TopicImage]],
        effect: Callable[[ShardRunner[S], Effect], None],
    ) -> None:
        self.topic = topic
        self._runtime = runtime
        self._image = image
        self._make_shard = make_shard
        self._applier = applier
        self._create_topic = create_topic
        self._effect = effect
        self._runners: dict[int, ShardRunner[S]] = {}
        self._making: asyncio.Task[StorageError | None] | None = None

    def partition_of(self, name: str) -> TopicPartition | None:
        """The partition that coordinates `name`; None before the topic is there."""
        number = self._number_of(name)
        return None if number is None else TopicPartition(self.topic, number)

    def _number_of(self, name: str) -> int | None:
        topic = self._image.topics.get(self.topic)
        return None if topic is None else coordinator_partition(name, len(topic.partitions))

    def ready(self) -> "asyncio.Future[StorageError | None]":
        """Done when the topic is there, which is made at the first use (G2); the result says why it cannot be made."""
        if self.topic in self._image.topics:
            return ready(None)
        if self._making is None:
            self._making = self._runtime.slices.start(self._make(), f"making {self.topic}")
        return asyncio.shield(self._making)

    async def _make(self) -> StorageError | None:
        try:
            await self._create_topic()
        except StorageError as fault:  # it was reported where the topic could not be made
            return fault
        finally:
            self._making = None
        return None

    def begin(self, topic: TopicImage) -> None:
        """Begin to coordinate: the internal topic was made just now, for a first group or by a user."""
        for number in range(len(topic.partitions)):
            for _ in self._add(number).load():
                pass

    def find(self, name: str) -> ShardRunner[S] | ErrorCode:
        """The runner that coordinates `name`, or why it cannot be asked now."""
        number = self._number_of(name)
        if number is None:
            self.ready()
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        runner = self._runners.get(number)
        if runner is None:
            return ErrorCode.NOT_COORDINATOR
        if runner.state is ShardState.UNLOADED or not runner.is_sure():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if runner.state is ShardState.LOADING else runner

    def active(self) -> Iterator[ShardRunner[S]]:
        """The runners that can be asked, by partition."""
        for _, runner in sorted(self._runners.items()):
            if runner.state is ShardState.ACTIVE:
                yield runner

    def tell(self, call: Callable[[S, int], Decision]) -> None:
        """Give every shard an input that nobody waits for; one that is being read gets it when it has been."""
        deque(self.telling(call), 0)

    def telling(self, call: Callable[[S, int], Decision]) -> Iterator[None]:
        """The same, a shard in each step."""
        for runner in tuple(self._runners.values()):
            runner.tell(lambda now_ms, runner=runner: call(runner.shard, now_ms))  # type: ignore[misc]
            yield

    @property
    def loading(self) -> bool:
        """Whether a shard's log is still being read."""
        return any(runner.state is ShardState.LOADING for runner in self._runners.values())

    @property
    def has_unloaded(self) -> bool:
        """Whether a shard's log cannot be read: a list of all that is known would leave out in silence what it has."""
        return any(runner.state is ShardState.UNLOADED for runner in self._runners.values())

    def runner(self, partition: int) -> ShardRunner[S] | None:
        """The runner of a partition."""
        return self._runners.get(partition)

    def expect(self) -> None:
        """From now on the shards of the partitions that are there are loading; `load` reads them."""
        topic = self._image.topics.get(self.topic)
        if topic is not None and not self._runners:
            for number in range(len(topic.partitions)):
                self._add(number)

    async def load(self) -> None:
        """Read the partitions that are there at the start."""
        self.expect()
        for runner in tuple(self._runners.values()):
            if runner.state is ShardState.LOADING:
                await runner.read()

    def unload(self) -> None:
        """Take no more requests: the topic is gone, or the broker stops."""
        for runner in self._runners.values():
            runner.unload()
        self._runners.clear()

    def _add(self, number: int) -> ShardRunner[S]:
        tp = TopicPartition(self.topic, number)
        runner = ShardRunner(tp, self._make_shard, self._applier, self._runtime, self._effect)
        self._runners[number] = runner
        return runner


def apply_to_group(shard: GroupShard, batch: Logged, now_ms: int) -> Decision:
    """A batch of `__consumer_offsets`: plain records, a transaction's offsets, or its marker."""
    decision = NOTHING
    if batch.commit is not None and batch.producer_id is not None:
        decision = shard.apply_marker(batch.producer_id, batch.commit)
    else:
        for record in batch.records:
            if batch.producer_id is None:
                shard.apply(record, now_ms)
            else:
                shard.apply_transactional(batch.producer_id, record)
    settled = shard.settled()
    return decision._replace(facts=settled) if settled else decision


def apply_to_transactions(shard: TransactionShard, batch: Logged, now_ms: int) -> Decision:
    """A batch of `__transaction_state`. A marker says nothing: versions before let any client have one written."""
    if batch.commit is not None:
        return NOTHING
    require(batch.producer_id is None, "__transaction_state holds plain batches only")
    for record in batch.records:
        shard.apply(record, now_ms)
    return NOTHING
