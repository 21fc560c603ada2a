"""Kafka's small text files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition, topic_id_bytes, topic_id_text
from ottla.log.checkpoint import (
    decode_leader_epochs,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_leader_epochs,
    encode_offsets,
    encode_partition_metadata,
    is_clean_shutdown,
)
from ottla.log.epochs import LeaderEpochs
from ottla.log.memory import MemoryStorage
from ottla.log.names import LOG, base_offset

_TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)
_OFFSETS = st.dictionaries(
    st.builds(TopicPartition, _TOPICS, st.integers(0, 1_000)), st.integers(0, 2**63 - 1), max_size=20
)


def test_a_checkpoint_reads_as_apache_kafka_writes_it() -> None:
    offsets = {TopicPartition("orders", 1): 12, TopicPartition("orders", 0): 4711}
    assert encode_offsets(offsets) == b"0\n2\norders 0 4711\norders 1 12\n"
    assert decode_offsets(b"0\n1\norders 0 7\n") == {TopicPartition("orders", 0): 7}


@given(offsets=_OFFSETS)
def test_offsets_read_back(offsets: dict[TopicPartition, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@given(epochs=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=10))
def test_leader_epochs_read_back(epochs: list[tuple[int, int]]) -> None:
    assert decode_leader_epochs(encode_leader_epochs(epochs)) == epochs


def test_an_epoch_of_more_than_31_bits_is_damage() -> None:
    storage = MemoryStorage()
    storage.write("leader-epoch-checkpoint", b"0\n1\n2147483648 0\n")
    epochs = LeaderEpochs(storage)
    assert (epochs.latest, epochs.fault) == (-1, "checkpoint: 2147483648 is no leader epoch, the newest is 2147483647")


def test_a_file_whose_name_is_too_large_for_an_offset_is_no_part_of_a_log() -> None:
    assert base_offset(f"{2**63 - 1:020}.log", LOG) == 2**63 - 1
    assert base_offset(f"{2**63:020}.log", LOG) is None


@given(topic_id=st.binary(min_size=16, max_size=16))
def test_topic_ids_read_back(topic_id: bytes) -> None:
    assert len(topic_id_text(topic_id)) == 22
    assert decode_partition_metadata(encode_partition_metadata(topic_id)) == topic_id


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"",
            b"0\n",
            b"1\n0\n",
            b"0\n2\norders 0 1\n",
            b"0\n1\norders 0\n",
            b"0\nx\n",
            b"0\n1\norders a 1\n",
            b"\xff",
        ),
        *(b"0\n1\norders 0 " + each for each in (b"-1", b"1_0", b"9223372036854775808", b"9" * 5_000)),
    ],
)
def test_anything_else_is_no_checkpoint(content: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_offsets(content)


@pytest.mark.parametrize("text", ["", "short", "AAECAwQFBgcICQoLDA0ODwAA", "*" * 22])
def test_anything_else_is_no_topic_id(text: str) -> None:
    with pytest.raises(CorruptDataError):
        topic_id_bytes(text)
    with pytest.raises(CorruptDataError):
        decode_partition_metadata(f"version: 0\ntopic_id: {text}".encode())


def test_partition_metadata_without_a_topic_id_is_no_partition_metadata() -> None:
    with pytest.raises(CorruptDataError, match="topic_id"):
        decode_partition_metadata(b"version: 0\n")


def test_the_clean_shutdown_marker_is_kafkas() -> None:
    assert encode_clean_shutdown(5) == b'{"version":0,"brokerEpoch":5}'
    assert is_clean_shutdown(encode_clean_shutdown(5))
    assert is_clean_shutdown(b""), "older brokers leave it empty"
    assert not is_clean_shutdown(None)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"0", b"[]", b"{}", b'{"version":"0"}', encode_clean_shutdown()[:-1]])
def test_a_clean_shutdown_marker_that_no_broker_leaves_is_none(content: bytes) -> None:
    with pytest.raises(CorruptDataError, match="no mark of a clean shutdown"):
        is_clean_shutdown(content)


@pytest.mark.parametrize("lost_bytes", [1, 2])
def test_a_checkpoint_that_ends_in_a_number_is_torn(lost_bytes: int) -> None:
    """A loss of power has taken its end: 27 must not become 2, nor 27 that may have been 271."""
    with pytest.raises(CorruptDataError, match="ends in the middle of a line"):
        decode_leader_epochs(encode_leader_epochs([(5, 1), (9, 27)])[:-lost_bytes])
