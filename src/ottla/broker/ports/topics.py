"""Topics: what the metadata says of them, and making, changing and deleting them."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ottla.base.errors import StorageError
from ottla.base.limits import MAX_NEW_PARTITIONS
from ottla.broker.config import BrokerConfig
from ottla.broker.config_keys import SMALLEST_SEGMENT_BYTES
from ottla.broker.metadata.cluster import Change, ClusterMetadata
from ottla.broker.metadata.image import GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage, TopicImage
from ottla.broker.metadata.names import GROUP_EVENTS_TOPIC, GROUP_TOPIC, TRANSACTION_TOPIC, TopicNames
from ottla.broker.metadata.properties import new_uuid
from ottla.broker.metadata.records import MetadataRecord
from ottla.broker.metadata.rules import RefusedError, check_name
from ottla.broker.runtime.changes import Changes
from ottla.broker.runtime.elections import Elections
from ottla.broker.runtime.making import Making, make_all
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.slices import Slices
from ottla.wire.errors import ErrorCode

T = TypeVar("T")
#: Hears of a name that gets no topic, and why.
LeftOut = Callable[[str, str], object]

#: The topics that the broker makes for itself, and how their settings begin in its configuration.
_LARGEST_EVENTS_SEGMENT_BYTES: Final = 16_777_216
_INTERNAL = {GROUP_TOPIC: "offsets.topic", TRANSACTION_TOPIC: "transaction.state.log"}


class NewTopic(NamedTuple):
    """A topic that is asked for; name and settings are checked."""

    name: str
    partitions: int
    configs: Mapping[str, str]


class _Job(NamedTuple):
    """Partitions to be made of one topic, and what the metadata says of them then."""

    name: str
    making: Making
    records: Iterator[MetadataRecord]


def _records_of(parts: Iterable[Iterable[MetadataRecord]], ends: list[int]) -> Iterator[MetadataRecord]:
    """The records of all; in `ends` how many they are up to the end of each part."""
    count = 0
    for part in parts:
        for record in part:
            count += 1
            yield record
        ends.append(count)


def _put_in_place(
    change: Change, jobs: deque[_Job], ends: Iterable[int], there: Callable[[str], None]
) -> Iterator[None]:
    """A topic in each step: the metadata says that its partitions are there, and they are found. Its job is freed.

    `there` is called with its name in the same step.
    """
    for end in ends:
        change.apply(end)
        job = jobs.popleft()
        job.making.put_in_place()
        there(job.name)
        yield


class Topics:
    """Changes topics: in the metadata and on the disk. `made` is told of each when it is seen, and behind
    the change `deleted` of all at once.

    A request may ask for ten thousand partitions. So what a client asks for runs in `change`: one request after the
    other, each in slices while others are served, with one batch of metadata for all of its topics. What the broker
    makes by itself, an internal topic, waits for its turn, too: a client may ask for a topic of that name.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        changes: Changes,
        partitions: Partitions,
        slices: Slices,
        directory_id: bytes,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._changes = changes
        self._partitions = partitions
        self._slices = slices
        self._directory_id = directory_id
        self._rng = rng
        #: Held by who makes, changes or deletes topics, from the first check on: two would not know of each other.
        self._changing = asyncio.Lock()
        self._made: Callable[[TopicImage], None] = _nobody
        self._deleted: Callable[[Sequence[TopicImage]], Iterator[None] | None] = _nobody

    def tell(
        self, *, made: Callable[[TopicImage], None], deleted: Callable[[Sequence[TopicImage]], Iterator[None] | None]
    ) -> None:
        """Call these from now on. The coordinators begin and end with their topics, and are made after this port.

        What `deleted` has still to do is in the steps that it gives.
        """
        self._made, self._deleted = made, deleted

    def change(self, work: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Future[T]":
        """Carry out a request when those before it are done, as Apache Kafka's controller does.

        Once it has begun it is carried out whole, although its client may go before it is answered.
        """
        return self._slices.in_order(self._changing, work, "a change of topics")

    def elect(self, elections: Elections) -> "asyncio.Future[None]":
        """Try to hold the elections that a start owes."""
        return self.change(partial(elections.attempt, self._changes))

    async def create_all(self, wanted: Sequence[NewTopic]) -> dict[str, TopicImage | StorageError]:
        """Make topics. Each is made whole, or not at all when the disk fails; the result says which."""
        topics, made = self._metadata.image.topics, dict[str, TopicImage | StorageError]()

        def there(name: str) -> None:
            made[name] = topics[name]
            self._made(topics[name])

        faults = await self._carry_out(await self._slices.collect(map(self._job, wanted)), there)
        return {**made, **faults}

    def _job(self, wanted: NewTopic) -> _Job:
        name, partitions, configs = wanted
        topic_id = new_uuid(self._rng)
        making = Making(self._partitions, name, topic_id, range(partitions), configs)
        return _Job(name, making, self._records(name, topic_id, partitions, configs))

    async def grow_all(self, wanted: Mapping[str, int]) -> dict[str, StorageError]:
        """Give topics more partitions (new totals). Where the disk fails, a topic stays as it was."""
        jobs = (self._growing(name, count) for name, count in wanted.items())
        faults = await self._carry_out(await self._slices.collect(jobs), _nobody)
        await self._slices.run(map(self._reconfigure, wanted))  # its settings may have been changed meanwhile
        return faults

    def _growing(self, name: str, count: int) -> _Job:
        image = self._metadata.image
        topic = image.topics[name]
        more = range(len(topic.partitions), count)
        making = Making(self._partitions, name, topic.topic_id, more, image.topic_configs(name))
        return _Job(name, making, self._metadata.partition_records(topic, count, directory_id=self._directory_id))

    async def _carry_out(self, jobs: list[_Job], there: Callable[[str], None]) -> dict[str, StorageError]:
        """Make the partitions of each topic, then write the metadata of all. Returns the faults by topic.

        `there` is called with the name of each topic in the step in which it is seen. Nobody else holds the jobs:
        thousands would take long to be freed together.
        """
        faults = await make_all([job.making for job in jobs], self._partitions, self._slices)
        for name, fault in faults.items():
            self._partitions.faults.report(f"the partitions of topic {name} cannot be made", fault)
        ready, ends = deque(job for job in jobs if job.name not in faults), list[int]()
        jobs.clear()
        change = self._changes.change(_records_of((job.records for job in ready), ends))
        try:
            with self._telling("the metadata of topics cannot be written"):
                await self._changes.write(change, _put_in_place(change, ready, ends, there))
        except StorageError as fault:
            for job in ready:
                await self._partitions.in_thread(job.making.undo)
            return faults | {job.name: fault for job in ready}
        except BaseException:  # the broker stops
            if not change.is_appended:
                for job in ready:
                    job.making.undo()
            raise
        return faults

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> TopicImage:
        """Make a checked topic. StorageError when the disk refuses it."""
        async with self._changing:
            return await self._create(NewTopic(name, partitions, configs))

    async def _create(self, wanted: NewTopic) -> TopicImage:
        made = (await self.create_all((wanted,)))[wanted.name]
        if isinstance(made, StorageError):
            raise made
        return made

    def _records(
        self, name: str, topic_id: bytes, partitions: int, configs: Mapping[str, str]
    ) -> Iterator[MetadataRecord]:
        return self._metadata.topic_records(name, topic_id, partitions, configs, directory_id=self._directory_id)

    async def create_internal(self, name: str) -> TopicImage:
        """`__consumer_offsets` or `__transaction_state`, compacted as in Kafka; or the history of groups.

        It may be there then by somebody else's request. StorageError when the disk refuses it.
        """
        async with self._changing:
            return self._metadata.image.topics.get(name) or await self._create(self._internal(name))

    def _internal(self, name: str) -> NewTopic:
        if name == GROUP_EVENTS_TOPIC:
            return NewTopic(name, 1, self._events_configs())
        prefix = _INTERNAL[name]
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer" if name == GROUP_TOPIC else "uncompressed",
            "segment.bytes": str(self._config.int(f"{prefix}.segment.bytes")),
        }
        return NewTopic(name, self._config.int(f"{prefix}.num.partitions"), configs)

    def _events_configs(self) -> dict[str, str]:
        """Nothing is synced for the history of groups, and a quarter of it is deleted at a time."""
        kept_bytes = self._config.int("group.events.retention.bytes")
        segment_bytes = min(max(kept_bytes // 4, SMALLEST_SEGMENT_BYTES), _LARGEST_EVENTS_SEGMENT_BYTES)
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self._config.int("group.events.retention.ms")),
            "retention.bytes": str(kept_bytes),
            "segment.bytes": str(segment_bytes if kept_bytes >= 0 else _LARGEST_EVENTS_SEGMENT_BYTES),
            "max.message.bytes": "1048588",
            "flush.messages": str(2**63 - 1),
        }

    @property
    def auto_creates(self) -> bool:
        """Whether topics are made that a client asks for (`auto.create.topics.enable`)."""
        return self._config.flag("auto.create.topics.enable")

    def may_auto_create(self, name: str) -> bool:
        """Whether a client that names this topic has it made: an internal one always, others where it is allowed."""
        return name in _INTERNAL or self.auto_creates

    @property
    def auto_created_partitions(self) -> int:
        """How many partitions such a topic gets."""
        return self._config.int("num.partitions")

    async def auto_create_all(self, names: Iterable[str], left_out: LeftOut = lambda name, why: None) -> None:
        """Make the topics that a client asks for, with one batch of metadata.

        `left_out` hears of a name that is not valid and why, and of the first one with which they would be too many: it
        is not made, nor is what comes behind it. One that the disk refuses is not made either.
        """
        wanted: dict[str, NewTopic] = {}
        await self._slices.run(self._check_auto_created(names, wanted, left_out))
        if wanted:
            await self.create_all(tuple(wanted.values()))

    def _check_auto_created(
        self, names: Iterable[str], wanted: dict[str, NewTopic], left_out: LeftOut
    ) -> Iterator[None]:
        """Check a name in each step. Those that are good go into `wanted`, up to the limit of new partitions."""
        image, partitions, coming = self._metadata.image, 0, TopicNames()
        for name in names:
            new = None if name in image.topics else self._auto_created(name, coming, left_out)
            if new is not None:
                partitions += new.partitions
                if partitions > MAX_NEW_PARTITIONS:
                    most = f"more than {MAX_NEW_PARTITIONS:,} partitions at once; name less in a request"
                    left_out(name, f"with this one and those behind it there would be {most}")
                    return
                wanted[name] = new
                coming.add(name)
            yield

    def _auto_created(self, name: str, coming: TopicNames, left_out: LeftOut) -> NewTopic | None:
        if name in _INTERNAL or name == GROUP_EVENTS_TOPIC:
            return self._internal(name)
        try:
            check_name(name, self._metadata.image, coming)
        except RefusedError as fault:
            left_out(name, str(fault))
            return None
        return NewTopic(name, self.auto_created_partitions, {})

    async def delete_all(self, topics: Sequence[TopicImage]) -> None:
        """Forget topics, their records and the offsets committed for them: all, or none with StorageError.

        Their names are free when this returns. Another thread deletes the files.
        """
        change, folders = self._changes.change(self._metadata.removal_records(topics)), list[str]()
        with self._telling("topics cannot be deleted"):
            await self._changes.write(change, self._taking_out(change, topics, folders))
        rest = self._deleted(topics)
        if rest is not None:
            await self._slices.run(rest)
        doomed = await self._partitions.in_thread(partial(self._partitions.mark_deleted, folders))
        asyncio.get_running_loop().run_in_executor(None, self._partitions.remove_deleted, doomed)

    def _taking_out(self, change: Change, topics: Iterable[TopicImage], folders: list[str]) -> Iterator[None]:
        """A topic after the other: the metadata says that it is gone, and its partitions are not found any more."""
        for end, topic in enumerate(topics, 1):
            change.apply(end)
            for folder in self._partitions.take_out(topic):
                folders.append(folder)
                yield

    def check_alterable(self, resource_type: int, name: str) -> None:
        """RefusedError unless it is a topic that exists, or a group. A broker keeps what it was started with."""
        if resource_type == GROUP_RESOURCE:
            if not name:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            return
        if resource_type != TOPIC_RESOURCE:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "Only the settings of topics and groups can be changed while a broker runs."
            )
        if not name:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if name not in self._metadata.image.topics:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    async def alter_all(self, wanted: Mapping[tuple[int, str], Mapping[str, str | None]]) -> None:
        """Change the settings of topics and groups, by type and name: all, or none with StorageError.

        They were checked before.
        """
        ends: list[int] = []
        records = (self._metadata.config_records(*resource, each) for resource, each in wanted.items())
        change = self._changes.change(_records_of(records, ends))
        with self._telling("settings cannot be changed"):
            await self._changes.write(change, self._coming_into_force(change, wanted, ends))

    def _coming_into_force(
        self, change: Change, resources: Iterable[tuple[int, str]], ends: Iterable[int]
    ) -> Iterator[None]:
        """A topic or group in each step: the metadata says its new settings, and its partitions follow them."""
        for (kind, name), end in zip(resources, ends, strict=True):
            change.apply(end)
            if kind == TOPIC_RESOURCE:
                self._reconfigure(name)
            yield

    def _reconfigure(self, name: str) -> None:
        """Have a topic's partitions follow what the metadata says now. Others may have deleted the topic meanwhile."""
        image = self._metadata.image
        if name in image.topics:
            self._partitions.reconfigure(image.topics[name], image.topic_configs(name))

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Report a fault of the disk to the operator, and raise it for the request too."""
        try:
            yield
        except StorageError as fault:
            self._partitions.faults.report(what, fault)
            raise


def _nobody(topics: object) -> None:
    """Nobody listens yet."""


class HasTopics(Protocol):
    """Needs to change topics."""

    @property
    def topics(self) -> Topics: ...


class HasImage(Protocol):
    """Needs to read what the metadata says."""

    @property
    def image(self) -> MetadataImage: ...
