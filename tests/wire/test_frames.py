"""Frames cut out of a stream, and headers: whole, byte by byte, and broken."""

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.limits import BUSY_BUFFER_BYTES, IDLE_BUFFER_BYTES, LARGE_FRAME_BYTES, RECEIVED_AT_ONCE_BYTES
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import Buffer, WireError
from ottla.wire.frames import (
    FrameBuffer,
    UnsupportedVersionError,
    decode_body,
    decode_request,
    decode_response,
    encode_request,
    encode_request_pieces,
    encode_response,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.spare_memory import SpareMemory

FRAMES = st.lists(st.binary(max_size=300), max_size=8)


def feed(buffer: FrameBuffer, data: bytes, sizes: Iterator[int]) -> list[Buffer]:
    """Hand `data` to the buffer in pieces as a socket would."""
    frames: list[Buffer] = []
    view = memoryview(data)
    while len(view):
        room = buffer.get_buffer()
        size = max(1, min(next(sizes), len(room), len(view)))
        room[:size] = view[:size]
        view = view[size:]
        frames += buffer.commit(size)
    return frames


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@given(frames=FRAMES, size=st.integers(1, 70_000))
def test_frames_come_out_whole_however_they_were_cut(frames: list[bytes], size: int) -> None:
    stream = b"".join(struct.pack(">i", len(f)) + f for f in frames)
    buffer = FrameBuffer(1000)
    assert feed(buffer, stream, iter(lambda: size, 0)) == frames


@pytest.mark.parametrize("size", [65_532, 65_533, 200_000, 1_000_000])
def test_a_frame_larger_than_the_first_buffer_makes_room_for_itself(size: int) -> None:
    frame = bytes(range(256)) * (size // 256) + bytes(size % 256)
    stream = (struct.pack(">i", size) + frame) * 2
    assert feed(FrameBuffer(1_000_000), stream, iter(lambda: 7_777, 0)) == [frame, frame]


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused_at_once(length: int) -> None:
    buffer = FrameBuffer(1000)
    with pytest.raises(WireError, match="0 to 1000 are accepted"):
        feed(buffer, struct.pack(">i", length), iter(lambda: 100, 0))
    assert len(buffer.get_buffer()) < 70_000


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_a_declared_length_alone_takes_no_memory() -> None:
    before = _resident_bytes()
    buffers = [FrameBuffer(2**26) for _ in range(20)]
    for buffer in buffers:
        assert feed(buffer, struct.pack(">i", 2**26) + bytes(100), iter(lambda: 104, 0)) == []
        assert buffer.begun_bytes == 2**26 + 4
    assert _resident_bytes() - before < 2**26


@pytest.mark.parametrize("spare", [None, SpareMemory(2**24)])
def test_a_large_frame_is_handed_out_without_a_copy_and_nothing_of_it_is_kept(spare: SpareMemory | None) -> None:
    buffer = FrameBuffer(2**30, spare=spare)
    head = struct.pack(">i", LARGE_FRAME_BYTES + 1)
    feed(buffer, head + b"abc", iter(lambda: 7, 0))
    assert (buffer.begun, buffer.begun_bytes) == (head + b"abc", LARGE_FRAME_BYTES + 5)
    room = buffer.get_buffer()
    assert len(room) == RECEIVED_AT_ONCE_BYTES
    room[:4] = b"defg"
    (frame,) = buffer.commit(4) or [*feed(buffer, bytes(LARGE_FRAME_BYTES + 1 - 7), iter(lambda: 10**6, 0))]
    assert isinstance(frame, memoryview)
    assert frame.readonly
    room[0] = ord("x")
    assert bytes(frame[:8]) == b"abcxefg\0"
    assert (buffer.begun, buffer.begun_bytes) == (b"", 0)
    assert len(buffer.get_buffer()) == IDLE_BUFFER_BYTES


@pytest.mark.parametrize("spare", [None, SpareMemory(2**24)])
def test_frames_follow_each_other_whatever_their_sizes(spare: SpareMemory | None) -> None:
    sizes = (10, LARGE_FRAME_BYTES + 1, 0, LARGE_FRAME_BYTES, LARGE_FRAME_BYTES + 70_000, 3)
    frames = [bytes([i]) * size for i, size in enumerate(sizes, 1)]
    stream = b"".join(struct.pack(">i", len(f)) + f for f in frames)
    for size in (65_536, 999_983, 10**8):
        buffer = FrameBuffer(2**30, spare=spare)
        assert feed(buffer, stream, iter(lambda: size, 0)) == frames  # noqa: B023 - used at once


@pytest.mark.parametrize("client_id", [None, "", "me", "ü" * 100])
@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_a_request_comes_back(client_id: str | None, version: int) -> None:
    frame = encode_request(ApiKey.API_VERSIONS, version, -5, client_id, ApiVersionsRequest())
    assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4
    header, offset = decode_request(frame[4:])
    assert header == (ApiKey.API_VERSIONS, version, -5, client_id)
    assert decode_body(ApiVersionsRequest, version, frame[4:], offset) == ApiVersionsRequest()


def test_the_answer_to_api_versions_has_the_old_header_in_every_version() -> None:
    for version in range(5):
        frame = encode_response(ApiKey.API_VERSIONS, version, 9, ApiVersionsResponse(error_code=35))
        assert frame[4:10] == struct.pack(">ih", 9, 35)
        assert decode_response(ApiKey.API_VERSIONS, version, frame[4:])[1].error_code == 35


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (ApiKey.METADATA, 99), (ApiKey.PRODUCE, 2), (18, -1)])
def test_an_unknown_api_or_version_is_told_apart(key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        decode_request(struct.pack(">hhih", key, version, 4, -1))
    assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (key, version, 4)


@given(data=st.binary(max_size=60))
def test_garbage_headers_are_wire_errors(data: bytes) -> None:
    for api in API.values():
        with suppress(WireError):
            decode_request(struct.pack(">hh", api.key, api.max_version) + data)


def test_every_prefix_of_a_header_is_refused() -> None:
    frame = encode_request(ApiKey.METADATA, 12, 1, "client", MetadataRequest())[4:]
    header_size = decode_request(frame)[1]
    for end in range(header_size):
        with pytest.raises(WireError):
            decode_request(frame[:end])


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("sizes", [(40_000,), (5,), (100_000, 5, 32_768)])
def test_large_records_are_pieces_of_their_own_and_the_whole_is_one_frame(version: int, sizes: tuple[int, ...]) -> None:
    records = [bytes([number]) * size for number, size in enumerate(sizes)]
    parts = tuple(PartitionProduceData(number, data) for number, data in enumerate(records))
    request = ProduceRequest(None, -1, 30_000, (TopicProduceData(name="topic", partition_data=parts),))
    pieces = encode_request_pieces(ApiKey.PRODUCE, version, 7, "client", request)
    assert all(any(piece is data for piece in pieces) for data in records if len(data) > 32_767)
    assert b"" not in pieces
    [frame] = feed(FrameBuffer(1_000_000), b"".join(pieces), iter(lambda: 1_000_000, 0))
    header, at = decode_request(frame)
    assert header == (ApiKey.PRODUCE, version, 7, "client")
    [topic] = decode_body(ProduceRequest, version, frame, at).topic_data
    assert [bytes(part.records) for part in topic.partition_data] == records


def test_a_connection_takes_little_memory_until_somebody_fills_it() -> None:
    buffer = FrameBuffer(1_000_000)
    assert len(buffer.get_buffer()) == IDLE_BUFFER_BYTES
    whole, begun = b"\0\0\0\x02ab", b"\0\0\x20\0" + bytes(IDLE_BUFFER_BYTES - 10)
    buffer.get_buffer()[: len(whole)] = whole
    assert [bytes(frame) for frame in buffer.commit(len(whole))] == [b"ab"]
    assert len(buffer.get_buffer()) == IDLE_BUFFER_BYTES
    buffer.get_buffer()[:] = whole + begun
    assert [bytes(frame) for frame in buffer.commit(IDLE_BUFFER_BYTES)] == [b"ab"]
    assert len(buffer.get_buffer()) == BUSY_BUFFER_BYTES - len(begun)
    left = 4 + 0x2000 - len(begun)
    buffer.get_buffer()[:left] = b"c" * left
    assert [bytes(frame) for frame in buffer.commit(left)] == [begun[4:] + b"c" * left]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_buffer_that_shrinks_after_each_receive_keeps_a_little_beyond_its_frame(one_by_one: bool) -> None:
    sizes = (10, BUSY_BUFFER_BYTES, 0, 5_000, 10 * BUSY_BUFFER_BYTES, 3, 70_000)
    frames = [bytes([i]) * size for i, size in enumerate(sizes, 1)]
    stream = b"".join(struct.pack(">i", len(f)) + f for f in frames)
    buffer, received, at = FrameBuffer(2**30, one_by_one=one_by_one), list[bytes](), 0
    while at < len(stream):
        room = buffer.get_buffer()
        part = stream[at : at + len(room)]
        room[: len(part)] = part
        at += len(part)
        whole = buffer.commit(len(part))
        while whole:
            received += map(bytes, whole)
            buffer.shrink()
            whole = buffer.commit(0) if one_by_one else []
        if buffer.begun_bytes <= IDLE_BUFFER_BYTES:
            assert buffer.kept_bytes == 0
    assert received == frames
