"""One broker: its ports put together."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ottla.assign.server import ServerAssignor
from ottla.base.clock import Clock
from ottla.base.limits import SETTLING_HEARTBEAT_MS
from ottla.base.types import TopicPartition
from ottla.broker.access.audit import Audit
from ottla.broker.access.authorizer import Authorizer
from ottla.broker.config import BrokerConfig
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.group_config import own_settings
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.metadata.image import MetadataImage, TopicImage
from ottla.broker.metadata.names import GROUP_TOPIC, TRANSACTION_TOPIC
from ottla.broker.metadata.properties import MetaProperties
from ottla.broker.ports.access import Access
from ottla.broker.ports.acls import AclChanges
from ottla.broker.ports.identity import Identity
from ottla.broker.ports.metadata_log import MetadataLog
from ottla.broker.ports.quotas import Quotas
from ottla.broker.ports.refusals import Refusals
from ottla.broker.ports.topics import Topics
from ottla.broker.ports.transactions import ProducerIds, Verification
from ottla.broker.runtime.answers import then
from ottla.broker.runtime.assigning import Assigning
from ottla.broker.runtime.changes import Changes
from ottla.broker.runtime.coordinators import Coordinators, apply_to_group, apply_to_transactions
from ottla.broker.runtime.decided import DecidedChanges
from ottla.broker.runtime.encoding import Answers
from ottla.broker.runtime.group_events import GroupEvents
from ottla.broker.runtime.group_topics import GroupTopics
from ottla.broker.runtime.markers import Marker, Markers
from ottla.broker.runtime.partitions import Partitions
from ottla.broker.runtime.searches import Searches
from ottla.broker.runtime.shard import ShardRunner, ShardRuntime, ShardState, nobody
from ottla.broker.runtime.slices import Slices
from ottla.broker.runtime.timers import Timers
from ottla.coordinator.decision import Effect, WriteMarkers
from ottla.coordinator.facts import GroupFacts
from ottla.coordinator.group.config import GroupConfig, GroupSettings
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.txn.config import TransactionConfig
from ottla.coordinator.txn.shard import TransactionShard
from ottla.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Node:
    """All ports. A handler takes it as the protocols of `ottla.broker.ports` that it needs."""

    config: BrokerConfig
    clock: Clock
    rng: random.Random
    timers: Timers
    identity: Identity
    image: MetadataImage
    access: Access
    acls: AclChanges
    users: DecidedChanges
    features: DecidedChanges
    metadata_log: MetadataLog
    quotas: Quotas
    topics: Topics
    partitions: Partitions
    groups: Coordinators[GroupShard]
    transactions: Coordinators[TransactionShard]
    verification: Verification
    markers: Markers
    producer_ids: ProducerIds
    sessions: FetchSessions
    slices: Slices
    answers: Answers
    searches: Searches
    refusals: Refusals
    events: GroupEvents


def make_node(
    config: BrokerConfig,
    properties: MetaProperties,
    clock: Clock,
    rng: random.Random,
    timers: Timers,
    metadata: ClusterMetadata,
    partitions: Partitions,
    assignors: Mapping[str, ServerAssignor],
) -> Node:
    """The ports over a recovered data directory. The coordinators must be loaded afterwards."""
    slices = Slices(clock)
    changes = Changes(metadata, slices)
    topics = Topics(config, metadata, changes, partitions, slices, properties.directory_id, rng)
    producer_ids = ProducerIds(metadata, changes, slices, partitions.faults)
    events = GroupEvents(partitions, timers, clock, slices, metadata.image, topics.create_internal)
    runtime = ShardRuntime(partitions, timers, clock, slices, _heard(config, events))
    groups = _groups(config, runtime, metadata.image, topics, assignors)
    markers = Markers(partitions, groups, slices)
    transactions = _transactions(config, runtime, metadata.image, topics, producer_ids, markers)
    topics.tell(made=partial(_topic_made, groups, transactions), deleted=partial(_topics_deleted, groups, transactions))
    decided = partial(DecidedChanges, changes=changes, slices=slices, faults=partitions.faults)
    return Node(
        config=config,
        clock=clock,
        rng=rng,
        timers=timers,
        identity=Identity(properties, config.text("broker.rack")),
        image=metadata.image,
        access=_access(config, metadata.image, clock),
        acls=AclChanges(metadata, changes, slices, rng, partitions.faults),
        users=decided("users"),
        features=decided("features"),
        metadata_log=metadata,
        quotas=Quotas(metadata.image.quotas, config, clock, decided("quotas")),
        topics=topics,
        partitions=partitions,
        groups=groups,
        transactions=transactions,
        verification=Verification(transactions),
        markers=markers,
        producer_ids=producer_ids,
        sessions=FetchSessions(config.int("max.incremental.fetch.session.cache.slots"), clock, rng),
        slices=slices,
        answers=Answers(),
        searches=Searches(slices),
        refusals=Refusals(clock),
        events=events,
    )


def expect_coordinators(node: Node) -> None:
    """From now on the coordinators are loading. Called before the broker listens: they must not look empty."""
    node.groups.expect()
    node.transactions.expect()


async def load_coordinators(node: Node) -> None:
    """Read what the coordinators' partitions hold; groups first, so that markers find them.

    Meanwhile both say that they are loading, also the one that is read last.
    """
    expect_coordinators(node)
    await node.groups.load()
    await node.transactions.load()


def _groups(
    config: BrokerConfig,
    runtime: ShardRuntime,
    image: MetadataImage,
    topics: Topics,
    assignors: Mapping[str, ServerAssignor],
) -> Coordinators[GroupShard]:
    group_config = _group_config(config)
    group_topics = GroupTopics(image, config.text("broker.rack"))
    settings = GroupSettings(group_config, partial(own_settings, config, image))
    shared = group_config, image.topic_id, group_topics, settings, assignors
    partitions = runtime.partitions
    return Coordinators(
        GROUP_TOPIC,
        runtime,
        image,
        lambda tp: GroupShard(*shared, max_record_bytes=partial(partitions.max_message_bytes, tp)),
        apply_to_group,
        create_topic=partial(topics.create_internal, GROUP_TOPIC),
        effect=Assigning(image, partitions, clock=runtime.clock).start,
    )


def _transactions(
    config: BrokerConfig,
    runtime: ShardRuntime,
    image: MetadataImage,
    topics: Topics,
    producer_ids: ProducerIds,
    markers: Markers,
) -> Coordinators[TransactionShard]:
    settings = _transaction_config(config)
    return Coordinators(
        TRANSACTION_TOPIC,
        runtime,
        image,
        lambda tp: TransactionShard(_coordinator_epoch(runtime.partitions, tp), producer_ids.new, settings),
        apply_to_transactions,
        create_topic=partial(topics.create_internal, TRANSACTION_TOPIC),
        effect=partial(_write_markers, markers),
    )


def _access(config: BrokerConfig, image: MetadataImage, clock: Clock) -> Access:
    authorizer = None
    if config.text("authorizer.class.name"):
        everybody = config.flag("allow.everyone.if.no.acl.found")
        authorizer = Authorizer(image.acls, config.super_users, allow_everyone_if_no_acl=everybody)
    audit = Audit(clock, with_allowed=config.flag("audit.log.allowed"))
    return Access(authorizer, audit, tells_logins=authorizer is not None or config.text("audit.log.path") is not None)


def _heard(config: BrokerConfig, events: GroupEvents) -> Callable[[Sequence[GroupFacts]], None]:
    return events.heard if config.flag("group.events.enable") else nobody


def _topic_made(
    groups: Coordinators[GroupShard], transactions: Coordinators[TransactionShard], topic: TopicImage
) -> None:
    if topic.name == groups.topic:
        groups.begin(topic)
    elif topic.name == transactions.topic:
        transactions.begin(topic)


def _topics_deleted(
    groups: Coordinators[GroupShard], transactions: Coordinators[TransactionShard], topics: Sequence[TopicImage]
) -> Iterator[None]:
    """The coordinators of an internal topic end with it, now; groups forget the offsets that were committed in a topic,
    a shard in each step: it looks at a thousand at once."""
    for topic in topics:
        if topic.name == groups.topic:
            groups.unload()
        elif topic.name == transactions.topic:
            transactions.unload()
    return groups.telling(lambda shard, now_ms: shard.topics_deleted())  # once: it looks at all offsets


def _write_markers(markers: Markers, runner: ShardRunner[TransactionShard], effect: Effect) -> None:
    assert isinstance(effect, WriteMarkers)
    marker = Marker(
        effect.producer_id,
        effect.producer_epoch,
        effect.commit,
        effect.coordinator_epoch,
        effect.transaction_version,
    )
    shard = runner.shard

    def is_wanted() -> bool:
        """A shard that is read again from its log has its markers written anew.

        One that has just been read, and begins with what was decided, takes no requests yet, and wants them.
        """
        return runner.shard is shard and runner.state is not ShardState.UNLOADED

    def written(results: dict[TopicPartition, ErrorCode]) -> None:
        if is_wanted():
            runner.tell(
                lambda now_ms: shard.markers_written(
                    effect.transactional_id, effect.producer_id, effect.producer_epoch, results, now_ms
                )
            )

    decided_for = effect.transactional_id
    then(markers.write(sorted(effect.partitions), marker, is_wanted, decided_for=decided_for), written)


def _coordinator_epoch(partitions: Partitions, tp: TopicPartition) -> int:
    partition = partitions.find(*tp)
    return 0 if partition is None else partition.leader_epoch


def _group_config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
        group_max_size=config.int("group.max.size"),
        offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.int("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
        consumer_session_timeout_ms=config.int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=config.int("group.consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms=config.int("group.consumer.assignment.interval.ms"),
        consumer_settling_heartbeat_ms=SETTLING_HEARTBEAT_MS,
        consumer_max_size=config.int("group.consumer.max.size"),
        regex_refresh_interval_ms=config.int("group.consumer.regex.refresh.interval.ms"),
        upgrade=_policy(config) in ("upgrade", "bidirectional"),
        downgrade=_policy(config) in ("downgrade", "bidirectional"),
    )


def _policy(config: BrokerConfig) -> str:
    return (config.text("group.consumer.migration.policy") or "").lower()


def _transaction_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        max_timeout_ms=config.int("transaction.max.timeout.ms"),
        id_expiration_ms=config.int("transactional.id.expiration.ms"),
        expiration_interval_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
        two_phase_commit=config.flag("transaction.two.phase.commit.enable"),
    )
