"""For each API a request on one topic, group and transactional id, for each thing that the request needs.

`needs` are the places in `handlers.needs.NEEDS` of what this request asks for; the other needs of its API are for
requests of another form.
"""

from typing import Any, NamedTuple

from ottla.wire.apis import ApiKey
from ottla.wire.messages import add_offsets_to_txn as offsets_to_txn
from ottla.wire.messages import add_partitions_to_txn as partitions_to_txn
from ottla.wire.messages import alter_client_quotas as quotas
from ottla.wire.messages import (
    alter_configs,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_transactions,
    elect_leaders,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_partition_reassignments,
    list_transactions,
    metadata,
    sync_group,
    update_features,
)
from ottla.wire.messages import alter_partition_reassignments as moves
from ottla.wire.messages import alter_replica_log_dirs as replica_dirs
from ottla.wire.messages import consumer_group_describe as group_describe
from ottla.wire.messages import consumer_group_heartbeat as group_heartbeat
from ottla.wire.messages import create_acls as acls
from ottla.wire.messages import create_partitions as grown
from ottla.wire.messages import create_topics as topics
from ottla.wire.messages import describe_client_quotas as described_quotas
from ottla.wire.messages import describe_configs as configs
from ottla.wire.messages import describe_topic_partitions as topic_pages
from ottla.wire.messages import fetch as fetch_
from ottla.wire.messages import list_offsets as offsets_
from ottla.wire.messages import offset_commit as commit
from ottla.wire.messages import offset_delete as forget
from ottla.wire.messages import offset_fetch as committed
from ottla.wire.messages import offset_for_leader_epoch as epochs
from ottla.wire.messages import produce as produce_
from ottla.wire.messages import txn_offset_commit as txn_commit
from ottla.wire.messages import write_txn_markers as markers
from ottla.wire.records import Record, encode_batch

_K = ApiKey
_TOPIC, _BROKER, _GROUP = 2, 4, 32


class ApiQuestion(NamedTuple):
    """A request, the version to send it in (None: the newest), and which of the API's needs it has."""

    key: ApiKey
    message: tuple[Any, ...]
    needs: tuple[int, ...] = (0,)
    version: int | None = None


def _batch(*, producer_id: int = -1) -> bytes:
    record = Record(0, 1_700_000_000_000, None, b"x", ())
    if producer_id < 0:
        return encode_batch([record])
    return encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def _produce(topic: str, data: bytes, transactional_id: str | None = None) -> tuple[Any, ...]:
    partition = produce_.PartitionProduceData(0, data)
    return produce_.ProduceRequest(
        transactional_id, -1, 10_000, (produce_.TopicProduceData(name=topic, partition_data=(partition,)),)
    )


def questions(topic: str, group: str, transactional_id: str, new_topic: str = "new") -> list[ApiQuestion]:
    """Harmless ones: asked in order, none of them ends the topic. Ids of producers and members are made up.

    `new_topic` is a name for which a topic may be made.
    """
    return [
        *_of_topics(topic, new_topic),
        *_of_groups(topic, group),
        *_of_transactions(topic, group, transactional_id),
        *_rest(),
    ]


def _of_topics(topic: str, new_topic: str) -> list[ApiQuestion]:
    asked = (metadata.MetadataRequestTopic(name=topic),)
    missing = (metadata.MetadataRequestTopic(name=new_topic),)
    offset = offsets_.ListOffsetsPartition(partition_index=0, timestamp=-1)
    read = fetch_.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return [
        ApiQuestion(_K.PRODUCE, _produce(topic, _batch()), (1,), 12),
        ApiQuestion(
            _K.FETCH,
            fetch_.FetchRequest(max_bytes=1000, topics=(fetch_.FetchTopic(topic=topic, partitions=(read,)),)),
            version=12,
        ),
        ApiQuestion(
            _K.LIST_OFFSETS,
            offsets_.ListOffsetsRequest(replica_id=-1, topics=(offsets_.ListOffsetsTopic(topic, (offset,)),)),
        ),
        ApiQuestion(_K.METADATA, metadata.MetadataRequest(asked, False)),
        ApiQuestion(_K.METADATA, metadata.MetadataRequest(missing, True), (0, 1)),
        ApiQuestion(
            _K.DELETE_TOPICS,
            delete_topics.DeleteTopicsRequest(
                topics=(delete_topics.DeleteTopicState(f"{topic}-missing"),), timeout_ms=10_000
            ),
        ),
        ApiQuestion(
            _K.DELETE_RECORDS,
            delete_records.DeleteRecordsRequest(
                (delete_records.DeleteRecordsTopic(topic, (delete_records.DeleteRecordsPartition(0, 0),)),), 10_000
            ),
        ),
        ApiQuestion(
            _K.CREATE_TOPICS,
            topics.CreateTopicsRequest((topics.CreatableTopic(f"{topic}-new", 1, 1),), 10_000, validate_only=True),
            (0, 1),
        ),
        ApiQuestion(
            _K.CREATE_PARTITIONS,
            grown.CreatePartitionsRequest((grown.CreatePartitionsTopic(topic, 2, None),), 10_000, validate_only=True),
        ),
        ApiQuestion(
            _K.OFFSET_FOR_LEADER_EPOCH,
            epochs.OffsetForLeaderEpochRequest(
                topics=(epochs.OffsetForLeaderTopic(topic, (epochs.OffsetForLeaderPartition(0, -1, 0),)),)
            ),
        ),
        ApiQuestion(
            _K.DESCRIBE_PRODUCERS,
            describe_producers.DescribeProducersRequest((describe_producers.TopicRequest(topic, (0,)),)),
        ),
        ApiQuestion(
            _K.DESCRIBE_TOPIC_PARTITIONS,
            topic_pages.DescribeTopicPartitionsRequest((topic_pages.TopicRequest(topic),)),
        ),
        *_of_settings(topic, _TOPIC, 0),
    ]


def _of_settings(name: str, kind: int, need: int) -> list[ApiQuestion]:
    """Seeing the settings of a resource, and changing none of them in both ways."""
    return [
        ApiQuestion(
            _K.DESCRIBE_CONFIGS,
            configs.DescribeConfigsRequest((configs.DescribeConfigsResource(kind, name, ()),)),
            (need,),
        ),
        ApiQuestion(
            _K.ALTER_CONFIGS,
            alter_configs.AlterConfigsRequest((alter_configs.AlterConfigsResource(kind, name, ()),), True),
            (need,),
        ),
        ApiQuestion(
            _K.INCREMENTAL_ALTER_CONFIGS,
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                (incremental_alter_configs.AlterConfigsResource(kind, name, ()),), True
            ),
            (need,),
        ),
    ]


def _of_groups(topic: str, group: str) -> list[ApiQuestion]:
    offset = commit.OffsetCommitRequestPartition(0, 0)
    fetched = committed.OffsetFetchRequestTopics(name=topic, partition_indexes=(0,))
    # A session timeout that no group may have: nobody joins.
    joining = join_group.JoinGroupRequest(
        group, 1, 1, "", None, "consumer", (join_group.JoinGroupRequestProtocol("range", b""),)
    )
    return [
        ApiQuestion(
            _K.OFFSET_COMMIT,
            commit.OffsetCommitRequest(
                group, topics=(commit.OffsetCommitRequestTopic(name=topic, partitions=(offset,)),)
            ),
            (0, 1),
            9,
        ),
        ApiQuestion(
            _K.OFFSET_FETCH,
            committed.OffsetFetchRequest((committed.OffsetFetchRequestGroup(group, topics=(fetched,)),)),
            (0, 1),
            9,
        ),
        ApiQuestion(_K.FIND_COORDINATOR, find_coordinator.FindCoordinatorRequest("", 0, (group,)), (0,)),
        ApiQuestion(_K.JOIN_GROUP, joining, (0,), 3),
        ApiQuestion(_K.HEARTBEAT, heartbeat.HeartbeatRequest(group, 1, "nobody")),
        ApiQuestion(
            _K.LEAVE_GROUP, leave_group.LeaveGroupRequest(group, (leave_group.MemberIdentity("nobody", None),))
        ),
        ApiQuestion(_K.SYNC_GROUP, sync_group.SyncGroupRequest(group, 1, "nobody", None, "consumer", "range")),
        ApiQuestion(_K.DESCRIBE_GROUPS, describe_groups.DescribeGroupsRequest((group,), True)),
        ApiQuestion(_K.DELETE_GROUPS, delete_groups.DeleteGroupsRequest((f"{group}-missing",))),
        ApiQuestion(
            _K.OFFSET_DELETE,
            forget.OffsetDeleteRequest(
                group, (forget.OffsetDeleteRequestTopic(topic, (forget.OffsetDeleteRequestPartition(0),)),)
            ),
            (0, 1),
        ),
        # A member that is not there, which stays.
        ApiQuestion(
            _K.CONSUMER_GROUP_HEARTBEAT,
            group_heartbeat.ConsumerGroupHeartbeatRequest(group, "nobody", 5, subscribed_topic_names=(topic,)),
            (0, 1),
        ),
        ApiQuestion(_K.CONSUMER_GROUP_DESCRIBE, group_describe.ConsumerGroupDescribeRequest((group,), True)),
        *_of_settings(group, _GROUP, 1),
    ]


def _of_transactions(topic: str, group: str, transactional_id: str) -> list[ApiQuestion]:
    added = (partitions_to_txn.AddPartitionsToTxnTopic(topic, (0,)),)
    offset = txn_commit.TxnOffsetCommitRequestPartition(0, 0)
    marker = markers.WritableTxnMarker(7, 0, False, (markers.WritableTxnMarkerTopic(f"{topic}-missing", (0,)),), 0)
    return [
        ApiQuestion(_K.PRODUCE, _produce(topic, _batch(producer_id=7), transactional_id), (0, 1), 11),
        ApiQuestion(_K.FIND_COORDINATOR, find_coordinator.FindCoordinatorRequest("", 1, (transactional_id,)), (1,)),
        ApiQuestion(_K.INIT_PRODUCER_ID, init_producer_id.InitProducerIdRequest(transactional_id, 60_000), (0,), 5),
        ApiQuestion(_K.INIT_PRODUCER_ID, init_producer_id.InitProducerIdRequest(None, 60_000), (2,), 5),
        ApiQuestion(
            _K.ADD_PARTITIONS_TO_TXN,
            partitions_to_txn.AddPartitionsToTxnRequest((), transactional_id, 7, 0, added),
            (1, 2),
            3,
        ),
        ApiQuestion(
            _K.ADD_PARTITIONS_TO_TXN,
            partitions_to_txn.AddPartitionsToTxnRequest(
                (partitions_to_txn.AddPartitionsToTxnTransaction(transactional_id, 7, 0, True, added),)
            ),
            (0,),
        ),
        ApiQuestion(
            _K.ADD_OFFSETS_TO_TXN,
            offsets_to_txn.AddOffsetsToTxnRequest(transactional_id, 7, 0, group),
            (0, 1),
        ),
        ApiQuestion(_K.END_TXN, end_txn.EndTxnRequest(transactional_id, 7, 0, False)),
        ApiQuestion(
            _K.TXN_OFFSET_COMMIT,
            txn_commit.TxnOffsetCommitRequest(
                transactional_id, group, 7, 0, topics=(txn_commit.TxnOffsetCommitRequestTopic(topic, (offset,)),)
            ),
            (0, 1, 2),
            4,
        ),
        ApiQuestion(_K.WRITE_TXN_MARKERS, markers.WriteTxnMarkersRequest((marker,))),
        ApiQuestion(_K.DESCRIBE_TRANSACTIONS, describe_transactions.DescribeTransactionsRequest((transactional_id,))),
        ApiQuestion(_K.LIST_TRANSACTIONS, list_transactions.ListTransactionsRequest(), ()),
    ]


def _rest() -> list[ApiQuestion]:
    quota = quotas.EntryData((quotas.EntityData("user", "zoe"),), (quotas.OpData("request_percentage", 50.0),))
    acl = acls.AclCreation(2, "some", 3, "User:zoe", "*", 3, 3)
    return [
        ApiQuestion(_K.LIST_GROUPS, list_groups.ListGroupsRequest(), ()),
        ApiQuestion(_K.DESCRIBE_ACLS, describe_acls.DescribeAclsRequest(2, "some", 3, "User:zoe", None, 1, 1)),
        ApiQuestion(_K.CREATE_ACLS, acls.CreateAclsRequest((acl,))),
        ApiQuestion(
            _K.DELETE_ACLS,
            delete_acls.DeleteAclsRequest((delete_acls.DeleteAclsFilter(2, "some", 3, "User:zoe", None, 1, 1),)),
        ),
        ApiQuestion(_K.DESCRIBE_CLIENT_QUOTAS, described_quotas.DescribeClientQuotasRequest()),
        ApiQuestion(_K.ALTER_CLIENT_QUOTAS, quotas.AlterClientQuotasRequest((quota,), True)),
        ApiQuestion(_K.DESCRIBE_LOG_DIRS, describe_log_dirs.DescribeLogDirsRequest(())),
        ApiQuestion(_K.DESCRIBE_CLUSTER, describe_cluster.DescribeClusterRequest(True), ()),
        ApiQuestion(
            _K.DESCRIBE_QUORUM,
            describe_quorum.DescribeQuorumRequest(
                (describe_quorum.TopicData("__cluster_metadata", (describe_quorum.PartitionData(0),)),)
            ),
        ),
        ApiQuestion(
            _K.UPDATE_FEATURES,
            update_features.UpdateFeaturesRequest(10_000, (update_features.FeatureUpdateKey("group.version", 1),)),
        ),
        # Partitions of a topic that is not there.
        ApiQuestion(
            _K.ALTER_REPLICA_LOG_DIRS,
            replica_dirs.AlterReplicaLogDirsRequest(
                (replica_dirs.AlterReplicaLogDir("/x", (replica_dirs.AlterReplicaLogDirTopic("missing", (0,)),)),)
            ),
        ),
        ApiQuestion(
            _K.ELECT_LEADERS,
            elect_leaders.ElectLeadersRequest(0, (elect_leaders.TopicPartitions("missing", (0,)),), 10_000),
        ),
        ApiQuestion(
            _K.ALTER_PARTITION_REASSIGNMENTS,
            moves.AlterPartitionReassignmentsRequest(
                10_000, topics=(moves.ReassignableTopic("missing", (moves.ReassignablePartition(0, (1,)),)),)
            ),
        ),
        ApiQuestion(
            _K.LIST_PARTITION_REASSIGNMENTS,
            list_partition_reassignments.ListPartitionReassignmentsRequest(10_000, None),
        ),
        ApiQuestion(_K.LIST_CONFIG_RESOURCES, list_config_resources.ListConfigResourcesRequest()),
        *_of_settings("1", _BROKER, 2),
    ]


def by_id(topic_id: bytes, group: str) -> list[ApiQuestion]:
    """Where newer versions name a topic by its id."""
    data = produce_.TopicProduceData(topic_id=topic_id, partition_data=(produce_.PartitionProduceData(0, _batch()),))
    read = fetch_.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    offset = commit.OffsetCommitRequestPartition(0, 0)
    fetched = committed.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=(0,))
    return [
        ApiQuestion(_K.PRODUCE, produce_.ProduceRequest(None, -1, 10_000, (data,)), (1,)),
        ApiQuestion(
            _K.FETCH,
            fetch_.FetchRequest(max_bytes=1000, topics=(fetch_.FetchTopic(topic_id=topic_id, partitions=(read,)),)),
        ),
        ApiQuestion(
            _K.METADATA, metadata.MetadataRequest((metadata.MetadataRequestTopic(topic_id, None),), False, False, True)
        ),
        ApiQuestion(
            _K.OFFSET_COMMIT,
            commit.OffsetCommitRequest(
                group, topics=(commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=(offset,)),)
            ),
            (0, 1),
        ),
        ApiQuestion(
            _K.OFFSET_FETCH,
            committed.OffsetFetchRequest((committed.OffsetFetchRequestGroup(group, topics=(fetched,)),)),
            (0, 1),
        ),
    ]


def in_older_versions(topic: str, group: str, transactional_id: str) -> list[ApiQuestion]:
    """Where an older version says an error in another way, or asks in another."""
    asked = (metadata.MetadataRequestTopic(name=topic),)
    offset = offsets_.ListOffsetsPartition(partition_index=0, timestamp=-2)
    fetched = (committed.OffsetFetchRequestTopic(topic, (0,)),)
    return [
        ApiQuestion(_K.METADATA, metadata.MetadataRequest(asked), version=0),
        ApiQuestion(_K.METADATA, metadata.MetadataRequest(()), (), 0),
        ApiQuestion(_K.METADATA, metadata.MetadataRequest(asked, False, True, True), version=8),
        ApiQuestion(
            _K.LIST_OFFSETS,
            offsets_.ListOffsetsRequest(replica_id=-1, topics=(offsets_.ListOffsetsTopic(topic, (offset,)),)),
            version=1,
        ),
        ApiQuestion(_K.OFFSET_FETCH, committed.OffsetFetchRequest(group_id=group, topics=fetched), (0, 1), 1),
        ApiQuestion(_K.OFFSET_FETCH, committed.OffsetFetchRequest(group_id=group, topics=None), (0,), 7),
        ApiQuestion(_K.FIND_COORDINATOR, find_coordinator.FindCoordinatorRequest(group, 0), (0,), 0),
        ApiQuestion(_K.FIND_COORDINATOR, find_coordinator.FindCoordinatorRequest(transactional_id, 1), (1,), 3),
        ApiQuestion(_K.LEAVE_GROUP, leave_group.LeaveGroupRequest(group, member_id="nobody"), version=1),
        ApiQuestion(_K.SYNC_GROUP, sync_group.SyncGroupRequest(group, 1, "nobody"), version=0),
        ApiQuestion(_K.DESCRIBE_GROUPS, describe_groups.DescribeGroupsRequest((group,)), version=0),
        ApiQuestion(_K.INIT_PRODUCER_ID, init_producer_id.InitProducerIdRequest(transactional_id, 60_000), (0,), 0),
        ApiQuestion(_K.DESCRIBE_LOG_DIRS, describe_log_dirs.DescribeLogDirsRequest(()), version=1),
    ]
