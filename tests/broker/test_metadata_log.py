"""The metadata log: KRaft's records, and the image they make."""

from collections import deque
from contextlib import suppress
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.types import TopicPartition
from ottla.broker.access.acls import Acl
from ottla.broker.metadata.features import NEWEST_METADATA_VERSION
from ottla.broker.metadata.image import TOPIC_RESOURCE
from ottla.broker.metadata.node_records import (
    BrokerRegistrationChangeRecord,
    NodeEndpoint,
    NodeFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ottla.broker.metadata.properties import load_or_create, new_uuid
from ottla.broker.metadata.records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from ottla.broker.storage import DirectoryDisk
from ottla.log.config import LogConfig
from ottla.log.memory import MemoryStorage
from ottla.log.partition import PartitionLog
from ottla.log.results import Origin
from ottla.wire.producer_ids_record import ProducerIdsRecord
from ottla.wire.records import Record, encode_batch
from tests.broker.metadata_changes import make_topic, new_producer_id, opened_metadata, write
from tests.counted_calls import calls

_uuid = st.binary(min_size=16, max_size=16)
_int8 = st.integers(-128, 127)
_int32 = st.integers(-(2**31), 2**31 - 1)
_names = st.text(max_size=9)
_nodes = st.lists(st.integers(0, 9), max_size=3).map(tuple)
_uuids = st.lists(_uuid, max_size=2).map(tuple)
_label = st.none() | _names
_endpoints = st.lists(
    st.builds(NodeEndpoint, _names, _names, st.integers(0, 65535), st.integers(0, 3)), max_size=2
).map(tuple)
_levels = st.lists(st.builds(NodeFeature, _names, st.integers(0, 9), st.integers(0, 9)), max_size=2).map(tuple)
_RECORDS: st.SearchStrategy[MetadataRecord] = st.one_of(
    st.builds(TopicRecord, st.text(max_size=50), _uuid),
    st.builds(
        PartitionRecord,
        _int32,
        _uuid,
        _nodes,
        _nodes,
        _nodes,
        _nodes,
        _int32,
        st.integers(0, 1),
        _int32,
        _int32,
        st.lists(_uuid, max_size=2).map(tuple),
        st.none(),  # of one replica there is nothing to say: version 1 is written, which has no such fields
        st.none(),
    ),
    st.builds(
        PartitionChangeRecord,
        _int32,
        _uuid,
        st.none() | _nodes,
        _int32,
        st.none() | _nodes,
        st.none() | _nodes,
        st.none() | _nodes,
        st.integers(-1, 1),
        st.none() | _nodes,
        st.none() | _nodes,
        st.none() | _uuids,
    ),
    st.builds(
        RegisterBrokerRecord,
        _int32,
        st.booleans(),
        _uuid,
        st.integers(0, 2**62),
        _endpoints,
        _levels,
        _label,
        st.booleans(),
        st.booleans(),
        _uuids,
        st.none() | _uuids,
    ),
    st.builds(
        BrokerRegistrationChangeRecord,
        _int32,
        st.integers(0, 2**62),
        st.integers(-1, 1),
        st.integers(0, 1),
        _uuids,
        st.none() | _uuids,
    ),
    st.builds(RegisterControllerRecord, _int32, _uuid, st.booleans(), _endpoints, _levels),
    st.builds(UnregisterBrokerRecord, _int32, st.integers(0, 2**62)),
    st.builds(BeginTransactionRecord, _label),
    st.builds(AbortTransactionRecord, _label),
    st.sampled_from([NoOpRecord(), EndTransactionRecord()]),
    st.builds(ClearElrRecord, _names),
    st.builds(DelegationTokenRecord, _names, _names, st.lists(_names, max_size=2).map(tuple), token_id=_names),
    st.builds(RemoveDelegationTokenRecord, _names),
    st.builds(
        ConfigRecord, st.integers(0, 127), st.text(max_size=9), st.text(max_size=9), st.none() | st.text(max_size=9)
    ),
    st.builds(RemoveTopicRecord, _uuid),
    st.builds(FeatureLevelRecord, st.text(max_size=9), st.integers(0, 99)),
    st.builds(RemoveAccessControlEntryRecord, _uuid),
    st.builds(AccessControlEntryRecord, _uuid, _int8, _names, _int8, _names, _names, _int8, _int8),
    st.builds(ProducerIdsRecord, _int32, st.integers(-1, 9), st.integers(0, 2**62)),
)


@given(_RECORDS)
def test_a_record_comes_back_as_it_was(record: MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


def test_the_bytes_are_kraft_s() -> None:
    # Frame version 1, api key 2, version 0, compact string "t", the id, no tagged fields.
    assert encode_record(TopicRecord("t", b"i" * 16)).hex() == "010200" + "0274" + "69" * 16 + "00"


@given(st.binary(max_size=40))
def test_garbage_is_a_fault_of_the_data_and_nothing_else(value: bytes) -> None:
    with suppress(CorruptDataError):
        decode_record(value)


def test_a_log_of_a_newer_metadata_version_is_refused_and_says_so() -> None:
    storage = MemoryStorage()
    metadata = opened_metadata(storage)
    write(metadata, [FeatureLevelRecord("metadata.version", NEWEST_METADATA_VERSION + 1)])
    with pytest.raises(StorageError, match=r"metadata\.version 31, and this version of Ottla knows them up to 30"):
        opened_metadata(storage)


def test_a_record_of_a_newer_version_is_no_damage() -> None:
    storage = MemoryStorage()
    opened_metadata(storage)
    log = PartitionLog.open(TopicPartition("__cluster_metadata", 0), storage, LogConfig(), 0)
    log.append(encode_batch([Record(0, 0, None, bytes((1, 99, 0)), ())]), now_ms=0, origin=Origin.COORDINATOR)
    with pytest.raises(StorageError, match=r"does not know .*type 99 version 0.*: a newer version has written it"):
        opened_metadata(storage)


def test_acls_come_back() -> None:
    storage = MemoryStorage()
    metadata = opened_metadata(storage)
    acl = Acl(2, "orders", 3, "User:alice", "*", 3, 3)
    write(metadata, metadata.acl_records({b"a" * 16: acl, b"b" * 16: acl._replace(host="h")}, ()))
    write(metadata, metadata.acl_records({b"c" * 16: acl._replace(pattern_type=4)}, [b"b" * 16]))
    assert dict(opened_metadata(storage).image.acls) == {b"a" * 16: acl, b"c" * 16: acl._replace(pattern_type=4)}


def test_topics_settings_and_partitions_come_back() -> None:
    storage = MemoryStorage()
    metadata = opened_metadata(storage)
    topic = make_topic(metadata, "t", b"i" * 16, 2, {"retention.ms": "5"})
    write(metadata, metadata.partition_records(topic, 3, directory_id=b"d" * 16))
    write(metadata, metadata.config_records(TOPIC_RESOURCE, "t", {"retention.ms": None, "segment.ms": "9"}))
    gone = make_topic(metadata, "gone", b"g" * 16, 1, {"retention.ms": "1"})
    write(metadata, metadata.removal_records([gone]))
    image = opened_metadata(storage).image
    assert list(image.topics) == ["t"]
    assert [partition.leader for partition in image.topics["t"].partitions] == [1, 1, 1]
    assert image.topic_configs("t") == {"segment.ms": "9"}
    assert image.topic_configs("gone") == {}


def test_p2_producer_ids_are_never_handed_out_twice() -> None:
    storage = MemoryStorage()
    seen = []
    for _ in range(3):
        metadata = opened_metadata(storage)
        seen += [new_producer_id(metadata) for _ in range(1_500)]
    assert len(set(seen)) == len(seen)
    assert None not in seen


def test_what_was_answered_survives_a_loss_of_power() -> None:
    storage = MemoryStorage()
    metadata = opened_metadata(storage)
    make_topic(metadata, "t", b"i" * 16, 1, {"retention.ms": "5"})
    producer_id = new_producer_id(metadata)
    again = opened_metadata(storage.after_power_loss(lambda name, synced_bytes, size_bytes: synced_bytes))
    assert again.image.topic_configs("t") == {"retention.ms": "5"}
    assert (new_producer_id(again) or 0) > (producer_id or 0)


def test_p2_an_id_is_handed_out_when_its_block_is_on_the_device_and_not_before() -> None:
    """The simulator's find: two producers got one id, and a record of one passed for a duplicate of the other's."""
    storage = MemoryStorage()
    metadata = opened_metadata(storage)
    storage.refuses = lambda action, name: action == "sync"
    assert new_producer_id(metadata) is None
    storage.refuses = None
    first = new_producer_id(metadata)
    assert first is not None
    left = storage.after_power_loss(lambda name, synced, size: synced)
    assert (new_producer_id(opened_metadata(left)) or 0) > first


def test_a_directory_belongs_to_one_node_of_one_cluster(tmp_path: Path) -> None:
    disk, rng = DirectoryDisk(tmp_path), Random(1)
    made = load_or_create(disk, rng, node_id=1, cluster_id=None)
    assert load_or_create(disk, rng, node_id=1, cluster_id=None) == made
    assert load_or_create(disk, rng, node_id=1, cluster_id=made.cluster_id) == made
    assert len(made.cluster_id) == 22
    with pytest.raises(StorageError, match=r"node\.id=1"):
        load_or_create(disk, rng, node_id=2, cluster_id=None)
    with pytest.raises(StorageError, match="belongs to cluster"):
        load_or_create(disk, rng, node_id=1, cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(StorageError, match="damaged"):
        load_or_create(disk, rng, node_id=1, cluster_id=None)


def test_an_id_whose_text_begins_with_a_dash_is_drawn_again() -> None:
    # Kafka's tools take such a text for an option: `kafka-storage format -t -FWFz56LTXu6O3AkLoZqsg` prints its usage.
    class Drawn(Random):
        """Draws these, in this order."""

        numbers = iter([b"\xf8" * 16, b"\xfb" * 16, b"\x01" * 16])

        def getrandbits(self, k: int, /) -> int:
            return int.from_bytes(next(self.numbers), "big")

    made = new_uuid(Drawn())
    assert made == UUID(bytes=b"\x01" * 16, version=4).bytes


def test_what_is_left_of_a_long_change_to_be_written_does_not_depend_on_its_records() -> None:
    """A batch of 21,000 records had taken 12 to 16 ms in one turn; each is put into it in its own step now."""

    def calls_of(records: int) -> int:
        metadata = opened_metadata(MemoryStorage())
        configs = {f"key-{number}": "value" for number in range(records)}
        change = metadata.change(metadata.topic_records("t", b"t" * 16, 1, configs, directory_id=b"d" * 16))
        deque(change.encode(), 0)
        return calls(change.append)

    assert calls_of(3_000) == calls_of(3)
