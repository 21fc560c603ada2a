"""What handlers see of the broker: its configuration and the ports to everything that has state."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ottla.base.clock import Clock
from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.handlers.answers import then
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.metadata.image import TOPIC_RESOURCE, TopicImage
from ottla.broker.metadata.names import GROUP_TOPIC, TRANSACTION_TOPIC
from ottla.broker.metadata.properties import MetaProperties, new_uuid
from ottla.broker.metadata.rules import RefusedError, check_name
from ottla.broker.runtime.coordinators import Coordinators, apply_to_group, apply_to_transactions
from ottla.broker.runtime.directories import remove_directories
from ottla.broker.runtime.markers import Markers
from ottla.broker.runtime.partitions import Partition, Partitions
from ottla.broker.runtime.shard import ShardRunner, ShardRuntime
from ottla.broker.runtime.timers import Timers
from ottla.coordinator.decision import Effect
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.txn.config import TransactionConfig
from ottla.coordinator.txn.shard import TransactionShard
from ottla.coordinator.txn.states import TransactionVersion
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

_log = logging.getLogger(__name__)


class Node:
    """One broker: state that requests read, and the ports through which they change it."""

    def __init__(
        self,
        config: BrokerConfig,
        properties: MetaProperties,
        clock: Clock,
        timers: Timers,
        metadata: ClusterMetadata,
        partitions: Partitions,
    ) -> None:
        self.config = config
        self.clock = clock
        self.timers = timers
        self.node_id = properties.node_id
        self.cluster_id = properties.cluster_id
        self.directory_id = properties.directory_id
        self.rack = config.text("broker.rack")
        #: The address told to clients; known once the listener is bound.
        self.host = ""
        self.port = -1
        self.metadata = metadata
        self.partitions = partitions
        self.sessions = FetchSessions(config.int("max.incremental.fetch.session.cache.slots"), clock)
        runtime = ShardRuntime(partitions, timers, clock)
        group_config = _group_config(config)
        self.groups: Coordinators[GroupShard] = Coordinators(
            GROUP_TOPIC,
            runtime,
            metadata.image,
            lambda tp: GroupShard(group_config),
            apply_to_group,
            create_topic=partial(self._create_internal, GROUP_TOPIC, "offsets.topic"),
            effect=_no_effect,
        )
        transaction_config = _transaction_config(config)
        self.transactions: Coordinators[TransactionShard] = Coordinators(
            TRANSACTION_TOPIC,
            runtime,
            metadata.image,
            lambda tp: TransactionShard(self._coordinator_epoch(tp), self.new_producer_id, transaction_config),
            apply_to_transactions,
            create_topic=partial(self._create_internal, TRANSACTION_TOPIC, "transaction.state.log"),
            effect=self._write_markers,
        )
        self.markers = Markers(partitions, self.groups)

    async def load_coordinators(self) -> None:
        """Read what the coordinators' partitions hold; groups first, so that markers find them."""
        await self.groups.load()
        await self.transactions.load()

    # ---- topics

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> TopicImage:
        """Make a topic whose name and settings were checked: first its directories, so that a full disk makes none."""
        topic_id, numbers = new_uuid(), range(partitions)
        with self._telling(f"topic {name} cannot be made"):
            self.partitions.make(name, topic_id, numbers, configs)
            try:
                topic = self.metadata.create_topic(name, topic_id, partitions, configs, directory_id=self.directory_id)
            except StorageError:
                self.partitions.unmake(name, numbers)
                raise
        for coordinators in (self.groups, self.transactions):
            if coordinators.topic == name:
                coordinators.begin(topic)
        return topic

    def auto_create_topic(self, name: str) -> TopicImage | None:
        """Make the topic a client asks for, where `auto.create.topics.enable` allows it; None where it does not."""
        if name == GROUP_TOPIC:
            return self._create_internal(GROUP_TOPIC, "offsets.topic")
        if name == TRANSACTION_TOPIC:
            return self._create_internal(TRANSACTION_TOPIC, "transaction.state.log")
        if not self.config.flag("auto.create.topics.enable"):
            return None
        try:
            check_name(name, self.metadata.image)
            return self.create_topic(name, self.config.int("num.partitions"), {})
        except RefusedError as fault:
            _log.warning("topic %s was not made: %s", name, fault)
        except StorageError:
            pass  # told already
        return None

    def delete_topic(self, topic: TopicImage) -> None:
        """Forget a topic, its records and the offsets committed in it; the files go in another thread."""
        with self._telling(f"topic {topic.name} cannot be deleted"):
            self.metadata.delete_topic(topic)
        if topic.name == GROUP_TOPIC:
            self.groups.unload()
        elif topic.name == TRANSACTION_TOPIC:
            self.transactions.unload()
        doomed = self.partitions.delete_topic(topic)
        asyncio.get_running_loop().run_in_executor(None, remove_directories, doomed)
        for runner in self.groups.active():
            runner.tell(lambda now_ms, shard=runner.shard: shard.topics_deleted({topic.name: topic.topic_id}))  # type: ignore[misc]

    def add_partitions(self, topic: TopicImage, count: int) -> None:
        """Give a topic `count` partitions altogether."""
        more = range(len(topic.partitions), count)
        with self._telling(f"topic {topic.name} cannot be given {count} partitions"):
            self.partitions.make(topic.name, topic.topic_id, more, self.metadata.image.topic_configs(topic.name))
            try:
                self.metadata.add_partitions(topic, count, directory_id=self.directory_id)
            except StorageError:
                self.partitions.unmake(topic.name, more)
                raise

    def check_alterable(self, resource_type: int, name: str) -> None:
        """RefusedError unless it is a topic that exists: a broker keeps the settings it was started with."""
        if resource_type != TOPIC_RESOURCE:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "Only the settings of topics can be changed while a broker runs."
            )
        if not name:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if name not in self.metadata.image.topics:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def alter_topic(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings that were checked."""
        with self._telling(f"the settings of topic {name} cannot be changed"):
            self.metadata.set_configs(TOPIC_RESOURCE, name, changes)
        image = self.metadata.image
        self.partitions.reconfigure(image.topics[name], image.topic_configs(name))

    def check_leader_epoch(self, partition: Partition, current: int) -> ErrorCode:
        """Whether a client's idea of the leader epoch is right (KIP-320); -1 is no idea."""
        if current in (-1, partition.leader_epoch):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if current < partition.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    # ---- transactions

    def new_producer_id(self) -> int | None:
        """A producer id nobody ever had, or None when none can be made durable now."""
        try:
            return self.metadata.next_producer_id()
        except StorageError as fault:
            self.partitions.faults.report("no producer id", fault)
            return None

    def add_to_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> "asyncio.Future[dict[TopicPartition, ErrorCode]]":
        """Ask the coordinator to add partitions to a transaction, or to verify that they are in it (KIP-890)."""
        future: asyncio.Future[dict[TopicPartition, ErrorCode]] = asyncio.get_running_loop().create_future()
        runner = self.transactions.find(transactional_id)
        if isinstance(runner, ErrorCode):
            future.set_result(dict.fromkeys(partitions, runner))
            return future
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        asked = AddPartitionsToTxnTransaction(
            transactional_id,
            producer_id,
            producer_epoch,
            verify_only,
            tuple(AddPartitionsToTxnTopic(topic, tuple(numbers)) for topic, numbers in topics.items()),
        )
        version = TransactionVersion.V0 if verify_only else TransactionVersion.V2
        shard = runner.shard
        answered = then(
            runner.submit(lambda token, now_ms: shard.add_partitions_to_txn(token, asked, version, now_ms)), _errors
        )
        if isinstance(answered, asyncio.Future):
            return answered
        future.set_result(answered)
        return future

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Tell the operator of a fault of the disk, and whoever asked too."""
        try:
            yield
        except StorageError as fault:
            self.partitions.faults.report(what, fault)
            raise

    @staticmethod
    def new_future() -> "asyncio.Future[Any]":
        """A future of the running loop."""
        return asyncio.get_running_loop().create_future()

    def _write_markers(self, runner: ShardRunner[TransactionShard], effect: Effect) -> None:
        results = self.markers.write(
            sorted(effect.partitions),
            producer_id=effect.producer_id,
            producer_epoch=effect.producer_epoch,
            commit=effect.commit,
            coordinator_epoch=effect.coordinator_epoch,
            transaction_version=effect.transaction_version,
        )
        runner.tell(
            lambda now_ms: runner.shard.markers_written(
                effect.transactional_id, effect.producer_id, effect.producer_epoch, results, now_ms
            )
        )

    def _coordinator_epoch(self, tp: TopicPartition) -> int:
        partition = self.partitions.find(*tp)
        return 0 if partition is None else partition.leader_epoch

    def _create_internal(self, name: str, prefix: str) -> TopicImage:
        """`__consumer_offsets` or `__transaction_state`, compacted as in Kafka."""
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer" if name == GROUP_TOPIC else "uncompressed",
            "segment.bytes": str(self.config.int(f"{prefix}.segment.bytes")),
        }
        return self.create_topic(name, self.config.int(f"{prefix}.num.partitions"), configs)


def _no_effect(runner: ShardRunner[GroupShard], effect: Effect) -> None:
    raise AssertionError(f"a group shard has no effects, got {effect}")


def _errors(result: AddPartitionsToTxnResult) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }


def _group_config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
        group_max_size=config.int("group.max.size"),
        offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.int("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
    )


def _transaction_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        max_timeout_ms=config.int("transaction.max.timeout.ms"),
        id_expiration_ms=config.int("transactional.id.expiration.ms"),
        expiration_interval_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
        two_phase_commit=config.flag("transaction.two.phase.commit.enable"),
    )
