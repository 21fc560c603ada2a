"""Snapshots of the cluster, and the versions agreed on. Pure."""

import random

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.backoff import Backoff
from ottla.client.core.metadata import NO_LEADER, ClusterSnapshot
from ottla.client.core.negotiation import CAPS_OF_FIRST_TRANSACTIONS, BrokerVersions
from ottla.client.errors import UnsupportedVersionError
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TP = TopicPartition("t", 0)
ID, OTHER_ID = b"1" * 16, b"2" * 16


def answer(
    leader: int = 1, epoch: int = 5, topic_id: bytes = ID, error: ErrorCode = ErrorCode.NONE
) -> MetadataResponse:
    partition = MetadataResponsePartition(0, 0, leader, epoch, (1, 2), (1, 2))
    topic = MetadataResponseTopic(error, "t", topic_id, False, () if error else (partition,))
    brokers = (MetadataResponseBroker(1, "a", 1, "r1"), MetadataResponseBroker(2, "b", 2))
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=2, topics=(topic,))


def test_a_snapshot_knows_leaders_ids_and_names() -> None:
    snapshot = ClusterSnapshot().updated(answer(), whole=False)
    assert (snapshot.leader(TP), snapshot.leader_epoch(TP), snapshot.partition_count("t")) == (1, 5, 1)
    assert snapshot.topic_name("", ID) == "t"
    assert snapshot.leader(TopicPartition("t", 1)) == NO_LEADER
    assert snapshot.leader(TopicPartition("u", 0)) == NO_LEADER


def test_c5_an_older_leader_epoch_does_not_undo_a_newer_one() -> None:
    snapshot = ClusterSnapshot().updated(answer(leader=2, epoch=6), whole=False).updated(answer(), whole=False)
    assert (snapshot.leader(TP), snapshot.leader_epoch(TP)) == (2, 6)


def test_c5_a_topic_made_anew_begins_with_its_own_epochs() -> None:
    snapshot = ClusterSnapshot().updated(answer(epoch=6), whole=False)
    snapshot = snapshot.updated(answer(leader=2, epoch=0, topic_id=OTHER_ID), whole=False)
    assert (snapshot.leader(TP), snapshot.leader_epoch(TP), snapshot.topic_name("", ID)) == (2, 0, "")


def test_c5_an_answer_may_name_a_newer_leader() -> None:
    snapshot = ClusterSnapshot().updated(answer(), whole=False)
    assert snapshot.with_leader(TP, 2, 5, ()) is snapshot
    assert snapshot.with_leader(TP, 2, 6, ()).leader(TP) == 2


def test_a_deleted_topic_is_forgotten_and_its_error_kept() -> None:
    snapshot = ClusterSnapshot().updated(answer(), whole=False)
    gone = snapshot.updated(answer(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), whole=False)
    assert gone.partition_count("t") == 0
    assert gone.topic_errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    waiting = snapshot.updated(answer(error=ErrorCode.LEADER_NOT_AVAILABLE), whole=False)
    assert waiting.partition_count("t") == 1


def test_a_whole_answer_replaces_everything() -> None:
    snapshot = ClusterSnapshot().updated(answer(), whole=False)
    assert snapshot.updated(answer()._replace(topics=()), whole=True).topics == {}


def versions(**spans: tuple[int, int]) -> BrokerVersions:
    return BrokerVersions({ApiKey[name]: span for name, span in spans.items()}, {"transaction.version": 1})


def test_the_highest_common_version_is_chosen() -> None:
    assert versions(FETCH=(0, 99)).choose(ApiKey.FETCH) >= 17
    assert versions(FETCH=(4, 15)).choose(ApiKey.FETCH) == 15
    assert versions(PRODUCE=(0, 99)).choose(ApiKey.PRODUCE, CAPS_OF_FIRST_TRANSACTIONS[ApiKey.PRODUCE]) == 11
    assert versions(ADD_PARTITIONS_TO_TXN=(0, 5)).choose(ApiKey.ADD_PARTITIONS_TO_TXN) == 3
    assert not versions().implicit_partitions


def test_no_common_version_says_what_the_broker_speaks() -> None:
    with pytest.raises(UnsupportedVersionError, match="versions 0 to 3 of FIND_COORDINATOR"):
        versions(FIND_COORDINATOR=(0, 3)).choose(ApiKey.FIND_COORDINATOR)
    beats = versions(CONSUMER_GROUP_HEARTBEAT=(0, 0))
    assert beats.choose(ApiKey.CONSUMER_GROUP_HEARTBEAT) == 0
    with pytest.raises(UnsupportedVersionError, match="needs version 1"):
        beats.choose(ApiKey.CONSUMER_GROUP_HEARTBEAT, least=1)
    assert not versions().supports(ApiKey.FETCH)


def test_c5_backoff_doubles_with_jitter_and_has_an_end() -> None:
    backoff = Backoff(100, 1_000, random.Random(1))
    pauses = [backoff.next_ms() for _ in range(6)]
    for pause, middle in zip(pauses, (100, 200, 400, 800, 1_000, 1_000), strict=True):
        assert 0.8 * middle <= pause <= 1.2 * middle
    backoff.succeeded()
    assert backoff.next_ms() <= 120
