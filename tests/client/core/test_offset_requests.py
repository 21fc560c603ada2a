"""Requests about offsets: one part for each partition, with the leader epoch that the client knows (KIP-320)."""

from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from ottla.client.core.offset_requests import epochs_request, list_request
from ottla.wire.messages.list_offsets import ListOffsetsPartition
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SNAPSHOT = ClusterSnapshot(topics={"a": TopicInfo("a", b"a" * 16, {0: PartitionInfo(1, 4), 1: PartitionInfo(1, 6)})})


def test_a_leader_is_asked_where_epochs_end_in_the_epoch_that_it_leads() -> None:
    request = epochs_request(SNAPSHOT, {A0: 3, B0: 2, A1: 5})
    assert {topic.topic: topic.partitions for topic in request.topics} == {
        "a": (OffsetForLeaderPartition(0, 4, 3), OffsetForLeaderPartition(1, 6, 5)),
        "b": (OffsetForLeaderPartition(0, -1, 2),),
    }
    assert request.replica_id == -1, "a consumer"


def test_a_leader_is_asked_for_offsets_in_the_epoch_that_it_leads() -> None:
    request = list_request(SNAPSHOT, {A0: -1, A1: 7}, read_committed=True)
    (topic,) = request.topics
    assert topic.partitions == (ListOffsetsPartition(0, 4, -1), ListOffsetsPartition(1, 6, 7))
    assert (request.replica_id, request.isolation_level) == (-1, 1)
