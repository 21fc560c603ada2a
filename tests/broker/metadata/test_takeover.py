"""Directories of Apache Kafka: what a start of ours makes of them, what it writes, and what it refuses untouched."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ottla.base.errors import StorageError
from ottla.broker.metadata.image import PartitionImage
from ottla.broker.metadata.quorum import decode_vote, mark_of_apache_kafka
from ottla.broker.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    TopicRecord,
    decode_record,
)
from ottla.broker.recover import Recovered
from ottla.broker.told import Told
from ottla.log.replay import batches
from ottla.wire.quorum_records import LeaderChangeMessage, LeaderVoter, decode_control
from ottla.wire.records import decode_batch
from sim.kraft_directory import BROKER_EPOCH, DIRECTORY_ID, FEATURES, METADATA, snapshot
from tests.broker.metadata.kraft_directory import TOPIC_ID, KraftDirectory
from tests.log.batches import NOW_MS, batch

_VOTE = "quorum-state"


def _used(*, stopped: bool = True) -> KraftDirectory:
    directory = KraftDirectory()
    directory.start()
    directory.make_topic()
    if stopped:
        directory.stop()
    return directory


def _written(recovered: Recovered, epoch: int) -> list[object]:
    """What was written to the metadata log in this epoch of the quorum."""
    found: list[object] = []
    for header, content in batches(recovered.metadata.log):
        if header.partition_leader_epoch == epoch:
            found += [
                decode_control(each) if header.is_control else decode_record(each.value or b"")
                for each in decode_batch(content)
            ]
    return found


def _files(directory: KraftDirectory) -> dict[str, bytes | None]:
    disk = directory.disk
    own = {name: disk.own_files().read(name) for name in disk.own_files().names()}
    folders = [folder.name for folder in disk.folders()]
    return own | {
        f"{at}/{name}": disk.open_folder(at).read(name) for at in folders for name in disk.open_folder(at).names()
    }


def test_after_a_stop_in_order_we_lead_in_the_next_epoch_and_every_partition() -> None:
    directory, told = _used(), list[Told]()
    recovered = directory.recover(told)
    topic = recovered.metadata.image.topics["orders"]
    # Epoch 0 was Apache Kafka's, 1 the time without a leader.
    assert topic.partitions == [PartitionImage(1, 2, (1,), (DIRECTORY_ID,))]
    part = recovered.partitions.find("orders", 0)
    assert part is not None
    assert (part.leader_epoch, part.log.end_offset) == (2, 1)
    leader = (LeaderVoter(1),)
    assert _written(recovered, 2) == [
        LeaderChangeMessage(0, 1, leader, leader),
        PartitionChangeRecord(0, TOPIC_ID, (1,), 1, None, None, None, 0, (), ()),
    ]
    assert told == []
    vote = decode_vote(directory.disk.open_folder(METADATA).read(_VOTE) or b"")
    assert vote == (1, 2, (1,), True)
    assert recovered.metadata.metadata_version == 30
    assert recovered.properties.cluster_id == "c=1"
    recovered.close()
    assert directory.disk.own_files().read(".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":%d}' % BROKER_EPOCH


def test_our_own_next_start_writes_nothing_and_stays_in_its_epoch() -> None:
    directory, told = _used(), list[Told]()
    first = directory.recover()
    end_offset = first.metadata.log.end_offset
    first.close()
    assert mark_of_apache_kafka(directory.disk) is None
    recovered = directory.recover(told)
    assert recovered.metadata.log.end_offset == end_offset
    recovered.metadata.write_now(recovered.metadata.change([TopicRecord("ours", b"o" * 16)]))
    assert _written(recovered, 2)[-1] == TopicRecord("ours", b"o" * 16)
    assert told == []


def test_after_a_kill_the_leader_is_elected_anew() -> None:
    directory, told = _used(stopped=False), list[Told]()
    recovered = directory.recover(told)
    assert recovered.metadata.image.topics["orders"].partitions == [PartitionImage(1, 1, (1,), (DIRECTORY_ID,))]
    assert _written(recovered, 2)[1:] == [PartitionChangeRecord(0, TOPIC_ID, leader=1)]
    assert told == []


def test_what_apache_kafka_did_after_us_is_taken_over_anew() -> None:
    directory = _used()
    directory.recover().close()
    directory.epoch = 2
    directory.start()
    directory.stop()
    own = directory.disk.own_files()
    own.write("recovery-point-offset-checkpoint", b"0\n1\norders 0 1\n")  # the manifest knows another one
    told: list[Told] = []
    recovered = directory.recover(told)
    assert told == []
    assert recovered.metadata.image.topics["orders"].partitions[0].leader_epoch == 4
    assert isinstance(_written(recovered, 4)[0], LeaderChangeMessage)


def test_a_directory_that_was_only_formatted_begins_as_apache_kafka_would_begin_it() -> None:
    directory = KraftDirectory()
    recovered = directory.recover()
    image = recovered.metadata.image
    assert (image.features["metadata.version"], image.features["transaction.version"]) == (30, 2)
    assert image.configs[4, ""] == {"min.insync.replicas": "1"}
    assert isinstance(_written(recovered, 1)[0], LeaderChangeMessage)
    assert mark_of_apache_kafka(directory.disk) is None


def test_what_stands_in_a_transaction_that_was_aborted_or_not_ended_does_not_count() -> None:
    directory = _used(stopped=False)
    directory.write(BeginTransactionRecord("x"), TopicRecord("aborted", b"a" * 16))
    directory.write(AbortTransactionRecord("no"))
    directory.write(BeginTransactionRecord("y"), FeatureLevelRecord("metadata.version", 99))
    recovered = directory.recover()
    assert list(recovered.metadata.image.topics) == ["orders"]
    assert _written(recovered, 2)[1:] == [
        AbortTransactionRecord("Ottla has taken over"),
        PartitionChangeRecord(0, TOPIC_ID, leader=1),
    ]
    recovered.close()
    assert list(directory.recover().metadata.image.topics) == ["orders"]


def test_the_log_begins_behind_a_snapshot() -> None:
    directory = _used(stopped=False)
    first_end = directory.open().end_offset
    files = directory.disk.open_folder(METADATA)
    log = directory.open()
    log.roll(NOW_MS)
    log.close()
    directory.write(TopicRecord("later", b"l" * 16))
    contents = [
        decode_record(each.value or b"")
        for header, one in batches(directory.open())
        if not header.is_control and header.base_offset < first_end
        for each in decode_batch(one)
    ]
    kept = [each for each in contents if type(each).__name__ not in ("BeginTransactionRecord", "EndTransactionRecord")]
    files.write(f"{first_end:020d}-0000000001.checkpoint", snapshot(kept))
    files.write(f"{0:020d}-0000000000.checkpoint", b"an older one, of which nobody reads")
    for name in [each for each in files.names() if each.startswith("0" * 20) and not each.endswith(".checkpoint")]:
        files.delete(name)
    recovered = directory.recover()
    assert list(recovered.metadata.image.topics) == ["orders", "later"]
    assert recovered.metadata.image.topics["orders"].partitions[0].leader == 1
    assert recovered.metadata.log.log_start_offset == first_end
    recovered.close()
    files.write(f"{first_end:020d}-0000000001.checkpoint", snapshot(kept, has_footer=False))
    with pytest.raises(StorageError, match=r"-0000000001\.checkpoint is damaged .*without its footer"):
        directory.recover()
    files.delete(f"{first_end:020d}-0000000001.checkpoint")
    with pytest.raises(StorageError, match="the metadata's beginning is gone"):
        directory.recover()


def test_a_log_that_ends_before_its_snapshot_is_refused() -> None:
    directory = _used()
    directory.disk.open_folder(METADATA).write(f"{900:020d}-0000000001.checkpoint", snapshot(FEATURES))
    with pytest.raises(
        StorageError, match=r"ends at offset \d+, and 0+900-0000000001\.checkpoint is a snapshot of more"
    ):
        directory.recover()


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (
            lambda each: each.make_topic("far", replicas=(2, 1, 3)),
            r"partition far-0 are on the brokers 2, 1, 3, and this",
        ),
        (
            lambda each: each.make_topic("far", directory=b"\xee" * 16),
            r"far-0 lies in another of the broker's log\.dirs",
        ),
        (
            lambda each: each.write(FeatureLevelRecord("metadata.version", 31)),
            r"metadata\.version 31, and this version",
        ),
        (lambda each: each.write(FeatureLevelRecord("shiny.version", 1)), r"shiny\.version 1, .* does not know this"),
        (lambda each: each.write_values(b"\x01\x63\x00"), r"type 99 version 0 is not known.*newer version"),
    ],
)
def test_what_one_node_cannot_serve_is_refused_and_nothing_is_changed(
    spoil: Callable[[KraftDirectory], None], match: str
) -> None:
    directory = KraftDirectory()
    directory.start()
    spoil(directory)
    before = _files(directory)
    with pytest.raises(StorageError, match=match):
        directory.recover()
    assert _files(directory) == before


@pytest.mark.parametrize("voters", [(1, 2, 3), (3000,)])
def test_a_quorum_of_others_is_refused(voters: tuple[int, ...]) -> None:
    directory = KraftDirectory(voters=voters)
    directory.start()
    before = _files(directory)
    with pytest.raises(StorageError, match=r"the quorum's voters are .*is its own quorum here"):
        directory.recover()
    assert _files(directory) == before


def test_an_older_kind_of_directory_is_refused() -> None:
    directory = KraftDirectory()
    directory.disk.own_files().write("meta.properties", b"version=0\nbroker.id=1\ncluster.id=c\n")
    with pytest.raises(StorageError, match=r"meta\.properties is of version 0, and Ottla knows version 1"):
        directory.recover()


def test_what_has_no_effect_here_is_told_with_each_start_and_stays() -> None:
    directory = _used(stopped=False)
    directory.write(ConfigRecord(4, "", "log.retention.ms", "5"))
    directory.write(DelegationTokenRecord("User:alice", "User:alice", (), 1, 2, 3, "token"))
    for _ in range(2):
        told: list[Told] = []
        recovered = directory.recover(told)
        recovered.close()
        assert [(each.kind.name, each.text.partition(": ")[2].partition(";")[0]) for each in told] == [
            ("NOTE", "settings of all brokers (log.retention.ms) were changed while Apache Kafka ran"),
            ("NOTE", "1 delegation token(s) of Apache Kafka, of User:alice"),
        ]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda vote: b"{", "JSONDecodeError"),
        (lambda vote: vote.replace(b"ledByOttla", b"ledByOttlb"), "nobody writes a field 'ledByOttlb'"),
    ],
)
def test_a_damaged_vote_is_told_and_cast_anew_behind_the_logs_last_epoch(
    change: Callable[[bytes], bytes], fault: str
) -> None:
    directory, told = _used(), list[Told]()
    files = directory.disk.open_folder(METADATA)
    vote = json.loads(files.read(_VOTE) or b"") | {"ledByOttla": True}
    files.write(_VOTE, change(json.dumps(vote).encode()))
    recovered = directory.recover(told)
    assert [(each.kind.name, each.place) for each in told] == [("MADE_AGAIN", f"{METADATA}/{_VOTE}")]
    assert f"{_VOTE} is damaged ({fault}" in told[0].text
    assert decode_vote(directory.disk.open_folder(METADATA).read(_VOTE) or b"") == (1, 2, (1,), True)
    assert isinstance(_written(recovered, 2)[0], LeaderChangeMessage)


def test_a_full_disk_in_the_middle_leaves_a_directory_that_the_next_start_takes_over() -> None:
    """Wherever the disk refuses: the directory counts as Apache Kafka's until all of it is taken over."""
    refused = 0
    for steps in range(200):
        directory = _used()
        directory.disk.steps_left = steps
        try:
            recovered = directory.recover()
        except StorageError:
            refused += 1
            directory.disk.steps_left = None
            recovered = directory.recover()
        is_through = (directory.disk.steps_left or 0) > 0
        directory.disk.steps_left = None
        assert recovered.metadata.image.topics["orders"].partitions[0].leader == 1
        part = recovered.partitions.find("orders", 0)
        assert part is not None
        assert part.log.end_offset == 1
        one = batch(value=b"x")
        assert part.log.append(one, now_ms=NOW_MS, leader_epoch=part.leader_epoch).base_offset == 1
        if is_through:
            break
    assert refused > 3
