"""The connection of a Spark process to Kafka: one per process and configuration, kept from batch to batch.

Spark uses its Python workers again: a module's globals survive from one micro-batch to the next, until the worker is
killed. So this module keeps links, one for each process (workers are forked) and configuration. A link has an admin
client, and the raw calls that source and ledger need. Both use one view of the cluster, on a loop in a background
thread; blocking code calls them through `run`. A link that a fault has ended is replaced the next
time somebody asks for it.
"""

import asyncio
import os
import random
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from ottla.base.errors import ConfigError
from ottla.base.types import TopicPartition, topic_id_text
from ottla.client.admin.admin import AsyncAdmin
from ottla.client.blocking.loop_thread import LoopThread, Running
from ottla.client.config.admin import ADMIN_CONFIG, admin_config
from ottla.client.config.producer import producer_config
from ottla.client.core.intents import COORDINATOR_MOVED, Channel, CoordinatorKind
from ottla.client.core.metadata import NO_TOPIC_ID, ClusterSnapshot, old_metadata_s
from ottla.client.core.negotiation import CAPS_OF_FIRST_TRANSACTIONS, BrokerVersions
from ottla.client.core.offsets import OffsetAndTimestamp
from ottla.client.errors import IllegalStateError, KafkaError, OffsetOutOfRangeError, RequestTimeoutError, raise_for
from ottla.client.net.cluster import Cluster
from ottla.client.net.log_offsets import epoch_ends, list_offsets
from ottla.client.net.requests import Requests, only, together
from ottla.client.net.topics import require_topic
from ottla.spark.doubt import Doubt
from ottla.spark.errors import DamagedRecordsError, DataLossError, UnknownOutcomeError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.special_timestamp import SpecialTimestamp

T = TypeVar("T")
#: How long a topic may be unknown to the brokers before it counts as gone.
UNKNOWN_TOPIC_S = 3.0
#: Errors that say: this handle can no longer end its transaction or write to it.
GONE = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
_UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class KafkaLink:
    """An admin client, and raw fetch, produce and transaction requests. What is asynchronous belongs to its loop."""

    def __init__(self, config: Mapping[str, object], *, cluster: Cluster | None = None) -> None:
        """Raises ConfigError. A `cluster`, if given, is the link's from now on: it closes it."""
        of_admin = {name: value for name, value in config.items() if name in ADMIN_CONFIG.keys}
        self.config = admin_config(of_admin)
        #: Its connections, and what it knows of the cluster.
        self.cluster = cluster or Cluster(self.config, random.Random())
        #: Another one whenever a connection is lost. As long as it stays, no broker that it asks was started again.
        self.unbroken = uuid.uuid4().hex
        self.cluster.on_disconnect(self._broken)
        self._slot_cluster: Cluster | None = None
        #: For lists, descriptions and topics.
        self.admin = AsyncAdmin(of_admin, cluster=self.cluster)
        self._requests = Requests(self.cluster, "the link to Kafka", self.config.default_api_timeout_ms)
        self._versions: BrokerVersions | None = None
        #: Named topics that have been there once.
        self._seen: set[str] = set()
        self._has_all_topics = False
        #: Values that the link's users keep from one call to the next, under keys of their own.
        self.memory: dict[Any, Any] = {}
        #: For how long brokers that say that records are gone are asked again: as long as metadata may be out of date.
        self.doubt_s = old_metadata_s(self.config.request_timeout_ms)
        self._thread = LoopThread("ottla-spark")

    # its thread

    @property
    def is_usable(self) -> bool:
        """False when a fault has ended it, or its thread."""
        return self._thread.is_running and self._requests.failure is None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the link's loop and wait for it, from any other thread."""
        return self._thread.run(coroutine)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Running[T]:
        """Run `coroutine` on the link's loop; its result is waited for later."""
        return self._thread.submit(coroutine)

    def shut(self) -> None:
        """Disconnect and end the thread. May be called again."""
        try:
            if self._thread.is_running:
                self.run(self._close())
        finally:
            self._thread.stop()

    async def _close(self) -> None:
        await self.admin.close()
        await self._requests.close(IllegalStateError("the link to Kafka is closed"))
        await self.cluster.close()
        if self._slot_cluster is not None:
            await self._slot_cluster.close()

    def _broken(self, _node_id: int, _channel: Channel) -> None:
        self.unbroken = uuid.uuid4().hex

    async def slot_cluster(self, config: Mapping[str, object]) -> Cluster:
        """What the producers of slots share, so that a slot costs no handshake. One that a fault has ended is replaced.

        The link closes it. The producers do not: each ends with the transaction that it was made for.
        """
        if self._slot_cluster is not None and self._slot_cluster.supervisor.failure is not None:
            await self._slot_cluster.close()
            self._slot_cluster = None
        if self._slot_cluster is None:
            self._slot_cluster = Cluster(producer_config(config), random.Random(), auto_create_topics=True)
        return self._slot_cluster

    # topics and offsets

    async def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """The ids, as Kafka prints them, of those of the topics that the cluster has now; "" for one without an id."""
        topics = tuple(MetadataRequestTopic(name=name) for name in sorted(names))
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

        async def attempt() -> dict[str, str]:
            answer: MetadataResponse = await self.cluster.request_any(ApiKey.METADATA, request)
            there = [topic for topic in answer.topics if topic.error_code not in _UNKNOWN_TOPIC]
            return {t.name or "": "" if t.topic_id == NO_TOPIC_ID else topic_id_text(t.topic_id) for t in there}

        async with self._requests.ready():
            return await self._requests.repeat(attempt, f"metadata of {', '.join(sorted(names))}")

    async def topics(self, names: Iterable[str] | None, *, as_of_now: bool) -> ClusterSnapshot:
        """Metadata of these topics, or of all. Raises ConfigError if a topic does not exist and was never seen.

        What is known may be as old as `metadata.max.age.ms`; with `as_of_now` it is asked for anew.
        """
        async with self._requests.ready() as deadline:
            if names is None:
                if as_of_now or not self._has_all_topics:
                    self.cluster.follow_all_topics(True, by=self)
                    await self.cluster.refreshed(deadline.left_ms)
                    self._has_all_topics = True
                return self.cluster.snapshot
            wanted = set(names)
            with self.cluster.tracking(wanted):
                if as_of_now:
                    await self.cluster.refreshed(deadline.left_ms)
                for name in wanted - self._seen:
                    missing = ConfigError(f"topic {name} does not exist")
                    attempt = partial(require_topic, self.cluster, name)
                    await self._unless_unknown(attempt, f"metadata of topic {name}", missing)
                    self.cluster.track([name], by=self)
                    self._seen.add(name)
            if any(self.cluster.snapshot.partition_count(name) == 0 for name in wanted):
                self.cluster.request_update()  # the topic was deleted meanwhile; it may be made again
            return self.cluster.snapshot

    async def offsets_at(self, times: Mapping[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
        """For each partition the first offset at or after a time in milliseconds.

        As a time, -2 means the earliest offset and -1 the end. The end is the last stable offset with `committed`,
        else the high watermark. The answer is -1 when no record is at or after the time. Partitions that do not exist
        are left out.
        """
        return {tp: at.offset for tp, at in (await self._list(times, committed)).items()}

    async def extents(
        self, tps: Collection[TopicPartition], *, committed: bool
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, tuple[int, int]]]:
        """The earliest offset of each partition; its end, as `offsets_at` has it, and the leader epoch that it is told
        of, -1 if of none. Both are asked at once, and no partition begins behind its end."""
        beginnings = self._list(dict.fromkeys(tps, SpecialTimestamp.EARLIEST), committed)
        found, ends = await together([beginnings, self._list(dict.fromkeys(tps, SpecialTimestamp.LATEST), committed)])
        # A leader has both questions in this order. If the first one was asked again, records may have gone meanwhile.
        late = [tp for tp, at in found.items() if tp in ends and ends[tp].offset < at.offset]
        if late:
            ends |= await self._list(dict.fromkeys(late, SpecialTimestamp.LATEST), committed)
        earliest = {tp: at.offset for tp, at in found.items()}
        return earliest, {tp: (at.offset, at.leader_epoch) for tp, at in ends.items()}

    async def _list(
        self, times: Mapping[TopicPartition, int], committed: bool
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        async with self._requests.ready() as deadline:
            with self.cluster.tracking({tp.topic for tp in times}) as is_new:
                if is_new:
                    await self.cluster.refreshed(deadline.left_ms)  # else a new topic would look as if it were gone
                return await list_offsets(
                    self.cluster, times, read_committed=committed, timeout_ms=deadline.left_ms, leave_out_gone=True
                )

    async def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where the log of each partition leaves a leader epoch; -1 where its leader does not know it."""
        async with self._requests.ready() as deadline:
            with self.cluster.tracking({tp.topic for tp in epochs}):
                return await epoch_ends(self.cluster, epochs, timeout_ms=deadline.left_ms)

    async def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        topic_id: str | None = None,
        committed: bool,
        max_bytes: int,
        max_wait_ms: int,
        end: int | None = None,
    ) -> PartitionData | None:
        """One fetch of one partition, repeated until it succeeds; None when a quota kept the broker from reading.

        After None the caller asks again: the connection itself waits as long as the broker wants (KIP-219). Raises
        OffsetOutOfRangeError; DataLossError if the topic is gone, or has another id than `topic_id`. Of a log that has
        been there up to `end`, whoever says that it is not is doubted for `doubt_s`.
        """
        doubt = self.doubt()

        async def attempt() -> PartitionData | None:
            try:
                await self._require_id(tp.topic, topic_id)
                data = await self._fetch(tp, topic_id, offset, int(committed), max_bytes, max_wait_ms)
            except (DataLossError, OffsetOutOfRangeError) as error:
                if end is None or await self._begins_behind(tp, offset) or not doubt.holds([tp]):
                    raise
                raise KafkaError.of(ErrorCode.OFFSET_NOT_AVAILABLE, f"{error}, says {tp}'s leader") from error
            has_end = data is None or (data.last_stable_offset if committed else data.high_watermark) >= (end or 0)
            if not has_end and data is not None and not data.records and doubt.holds([tp]):
                raise KafkaError.of(ErrorCode.OFFSET_NOT_AVAILABLE, f"{tp} ends before {end}, says its leader")
            return data

        gone = DataLossError(f"topic {tp.topic} is gone")
        patient = end is not None and len(self.cluster.snapshot.nodes) > 1
        after_s = self.doubt_s if patient else UNKNOWN_TOPIC_S
        with self.cluster.tracking([tp.topic]):
            return await self._unless_unknown(attempt, f"a fetch of {tp} at {offset}", gone, after_s)

    def doubt(self) -> Doubt:
        """One that begins with the first bad news."""
        return Doubt(self.cluster, self.doubt_s)

    async def _begins_behind(self, tp: TopicPartition, offset: int) -> bool:
        """Whether the log begins after `offset`. That is so for good, whoever says it."""
        return (await self.offsets_at({tp: SpecialTimestamp.EARLIEST}, committed=False)).get(tp, -1) > offset

    async def _unless_unknown(
        self, attempt: Callable[[], Awaitable[T]], what: str, error: Exception, after_s: float = UNKNOWN_TOPIC_S
    ) -> T:
        """Repeat `attempt`; raise `error` when the topic stays unknown for so long. Not every broker knows a new topic
        at once."""
        unknown_since: float | None = None

        async def timed() -> T:
            nonlocal unknown_since
            try:
                return await attempt()
            except KafkaError as answer:
                if answer.code in _UNKNOWN_TOPIC:
                    now_s = asyncio.get_running_loop().time()
                    unknown_since = now_s if unknown_since is None else unknown_since
                    if now_s - unknown_since >= after_s:
                        raise error from answer
                raise

        return await self._requests.repeat(timed, what)

    async def _require_id(self, topic: str, topic_id: str | None) -> None:
        if topic_id is None or self._has_id(topic, topic_id):
            return
        await self.cluster.refreshed()
        await require_topic(self.cluster, topic)
        if not self._has_id(topic, topic_id):
            raise DataLossError(f"topic {topic} was deleted and made again: its id is not {topic_id} any more")

    def _has_id(self, topic: str, topic_id: str) -> bool:
        return topic_id_text(self.cluster.snapshot.topic_id(topic)) == topic_id

    async def _fetch(
        self, tp: TopicPartition, topic_id: str | None, offset: int, isolation: int, max_bytes: int, max_wait_ms: int
    ) -> PartitionData | None:
        leader = await self._requests.leader(tp)
        await self._require_id(tp.topic, topic_id)  # the leader may be one that was waited for, of another topic
        snapshot = self.cluster.snapshot
        partition = FetchPartition(tp.partition, snapshot.leader_epoch(tp), offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=(FetchTopic(snapshot.topic_id(tp.topic), tp.topic, (partition,)),),
        )
        timeout_ms = self.config.request_timeout_ms + max_wait_ms
        answer: FetchResponse = await self.cluster.request(leader, ApiKey.FETCH, request, timeout_ms=timeout_ms)
        raise_for(answer.error_code)
        if not answer.responses and answer.throttle_time_ms > 0:
            return None
        data = only(only(answer.responses, str(tp)).partitions, str(tp))
        if data.error_code == ErrorCode.CORRUPT_MESSAGE:  # for a producer retriable, for a reader not
            raise DamagedRecordsError(tp, offset, "the broker says CORRUPT_MESSAGE")
        raise_for(data.error_code, f"{tp} at {offset}")
        return data

    async def produce(self, tp: TopicPartition, batch: bytes, transactional_id: str | None) -> tuple[int, int]:
        """Write one record batch with acks=all: the final error code, NONE when it is written, and its offset."""

        async def attempt() -> tuple[int, int]:
            leader = await self._requests.leader(tp)
            data = TopicProduceData(
                self.cluster.snapshot.topic_id(tp.topic), tp.topic, (PartitionProduceData(tp.partition, batch),)
            )
            request = ProduceRequest(transactional_id, -1, self.config.request_timeout_ms, (data,))
            cap = await self.cap(ApiKey.PRODUCE) if transactional_id is not None else None
            answer: ProduceResponse = await self.cluster.request(leader, ApiKey.PRODUCE, request, cap=cap)
            answered = only(only(answer.responses, str(tp)).partition_responses, str(tp))
            return _final(answered.error_code, str(tp)), answered.base_offset

        return await self.certain(attempt, f"a write to {tp}")

    async def ask_coordinator(
        self,
        transactional_id: str,
        api: ApiKey,
        message: tuple[Any, ...],
        error_of: Callable[[Any], int],
        *,
        group: str | None = None,
    ) -> tuple[int, Any]:
        """The final error code and the answer of the transaction's coordinator, or of `group`'s."""
        kind = CoordinatorKind.TRANSACTION if group is None else CoordinatorKind.GROUP
        key = transactional_id if group is None else group

        async def attempt() -> tuple[int, Any]:
            cap = await self.cap(api)
            answer = await self._requests.ask_coordinator(kind, key, api, message, cap=cap)
            code = error_of(answer)
            if code in COORDINATOR_MOVED:
                self._requests.coordinators.forget(kind, key)
            return _final(code, key), answer

        return await self.certain(attempt, f"{api.name} of {key}")

    async def versions(self) -> BrokerVersions:
        """What the cluster speaks: which protocol of transactions (KIP-890), and whether two-phase commit (KIP-939)."""
        if self._versions is None:
            self._versions = await self._requests.repeat(self.cluster.versions, "the broker's versions")
        return self._versions

    async def cap(self, api: ApiKey) -> int | None:
        """The newest version of a transactional request that fits the protocol which the cluster speaks."""
        return None if (await self.versions()).implicit_partitions else CAPS_OF_FIRST_TRANSACTIONS.get(api)

    async def certain(self, attempt: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Repeat `attempt` until its outcome is known. Raises UnknownOutcomeError."""
        try:
            return await self._requests.repeat(attempt, what, soon=True)
        except RequestTimeoutError as error:
            raise UnknownOutcomeError(f"{error}. Start the query again: it finds out what happened") from error


def _final(code: int, what: str) -> int:
    """`code` if it is final. Raises an error for a code that asks to try again."""
    error = KafkaError.of(code, what)
    if code != ErrorCode.NONE and error.retriable:
        raise error
    return code


_LINKS: dict[tuple[Any, ...], KafkaLink] = {}


def link(config: Mapping[str, object]) -> KafkaLink:
    """This process's link for a client configuration, of which it uses the keys of an admin client."""
    used = config.keys() & ADMIN_CONFIG.keys
    key = (os.getpid(), *sorted((name, str(config[name])) for name in used))
    found = _LINKS.get(key)
    if found is not None and not found.is_usable:
        found.shut()
        found = None
    if found is None:
        found = _LINKS[key] = KafkaLink(config)
    return found
