"""Texts that are no UTF-8, or that UTF-8 cannot write: in requests, in answers, in what is read and what is written."""

import tracemalloc
from typing import Any

import pytest

from ottla.base.limits import MAX_STRING_BYTES
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import Buffer, UnwritableTextError, WireError
from ottla.wire.frames import decode_body, decode_request, decode_response, encode_request, encode_response_steps
from ottla.wire.frames import encode_response as whole
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

#: A lone byte, half of a pair of surrogates (as WTF-8), the zero of Java's modified UTF-8, a cut sequence.
BAD = (b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf0\x9f")
_LONE = "a\udcffb"


def _slowly(key: int, version: int, correlation_id: int, message: tuple[Any, ...]) -> bytes:
    into: list[Buffer] = []
    for _ in encode_response_steps(key, version, correlation_id, message, into):
        pass
    return b"".join(into)


@pytest.mark.parametrize("bad", BAD, ids=repr)
@pytest.mark.parametrize("version", [0, 4])
def test_what_is_no_utf_8_is_read_as_java_reads_it(bad: bytes, version: int) -> None:
    mark = b"@" * len(bad)
    asked = HeartbeatRequest("g" + mark.decode(), 3, "m" + mark.decode() + "m")
    frame = encode_request(ApiKey.HEARTBEAT, version, 7, "c" + mark.decode(), asked).replace(mark, bad)[4:]
    header, offset = decode_request(frame)
    message = decode_body(HeartbeatRequest, version, frame, offset)
    said = bad.decode("utf-8", "replace")
    assert "\ufffd" in said
    assert (header.client_id, message.group_id, message.member_id) == (f"c{said}", f"g{said}", f"m{said}m")
    again = encode_request(ApiKey.HEARTBEAT, version, 7, header.client_id, message)
    assert decode_body(HeartbeatRequest, version, again[4:], decode_request(again[4:])[1]) == message


@pytest.mark.parametrize("version", [0, 4])
def test_a_string_that_no_record_could_hold_is_refused(version: int) -> None:
    """As in Apache Kafka: flexible versions could carry more, and bytes that are no UTF-8 become more."""
    longest = HeartbeatRequest("g" * MAX_STRING_BYTES, 3, "m")
    frame = encode_request(ApiKey.HEARTBEAT, version, 7, "c", longest)[4:]
    assert decode_body(HeartbeatRequest, version, frame, decode_request(frame)[1]) == longest
    grows = frame.replace(b"g" * 16_384, b"\xff" * 16_384)
    with pytest.raises(WireError, match="at most 32767 are accepted"):
        decode_body(HeartbeatRequest, version, grows, decode_request(grows)[1])
    named = encode_request(ApiKey.HEARTBEAT, version, 7, "c" * 30_000, HeartbeatRequest("g", 3, "m"))[4:]
    assert decode_request(named)[0].client_id == "c" * 30_000
    with pytest.raises(WireError, match="at most 32767 are accepted"):
        decode_request(named.replace(b"c" * 30_000, b"\xff" * 30_000))


def test_a_compact_string_is_as_long_as_any_other() -> None:
    """Nobody writes what nobody reads: neither in a request nor in the record of a log."""
    longest = encode_request(ApiKey.HEARTBEAT, 4, 7, "c", HeartbeatRequest("g" * MAX_STRING_BYTES, 3, "m"))[4:]
    size, more = b"\x80\x80\x02", b"\x81\x80\x02"  # of 32,767 bytes, and of 32,768
    frame = longest.replace(size + b"g", more + b"gg", 1)
    assert len(frame) == len(longest) + 1
    with pytest.raises(WireError, match="a string of 32768 bytes, at most 32767 are accepted"):
        decode_body(HeartbeatRequest, 4, frame, decode_request(frame)[1])
    with pytest.raises(WireError, match="a string of 32768 bytes, at most 32767 fit"):
        encode_request(ApiKey.HEARTBEAT, 4, 7, "c", HeartbeatRequest("g" * (MAX_STRING_BYTES + 1), 3, "m"))


def test_a_string_of_megabytes_is_refused_before_it_is_read() -> None:
    """In 20 MB of what is no UTF-8 each byte would become three, and then be counted: 160 MB, 200 ms."""
    head = encode_request(ApiKey.HEARTBEAT, 4, 7, "c", HeartbeatRequest("", 3, "m"))[4:]
    offset = decode_request(head)[1]
    count = 20_000_000
    length = bytes((count + 1 >> shift & 0x7F) | (0x80 if shift < 21 else 0) for shift in (0, 7, 14, 21))
    frame = head[:offset] + length + b"\xff" * count
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="a string of 20000000 bytes, at most 32767 are accepted"):
            decode_body(HeartbeatRequest, 4, frame, offset)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000


def test_a_length_that_is_wrong_is_still_refused() -> None:
    frame = encode_request(ApiKey.HEARTBEAT, 0, 7, "c", HeartbeatRequest("group", 3, "member"))[4:]
    with pytest.raises(WireError):
        decode_body(HeartbeatRequest, 0, frame[:-1], decode_request(frame)[1])


def test_half_of_a_pair_of_surrogates_is_not_sent() -> None:
    asked = LeaveGroupRequest("g", members=(MemberIdentity("m", None, _LONE),))
    with pytest.raises(UnwritableTextError, match=r"reason: 'a\\udcffb' is no text that UTF-8 can write"):
        encode_request(ApiKey.LEAVE_GROUP, 5, 1, "c", asked)


@pytest.mark.parametrize("encode", [whole, _slowly])
def test_an_answer_with_such_a_text_is_sent_without_it(encode: Any) -> None:
    """A data directory's name may be any bytes. As Java, it says `?`, and the connection stays."""
    version = API[ApiKey.DESCRIBE_LOG_DIRS].max_version
    answer = DescribeLogDirsResponse(0, 0, (DescribeLogDirsResult(0, f"/data/{_LONE}", ()),))
    _, found = decode_response(
        ApiKey.DESCRIBE_LOG_DIRS, version, encode(ApiKey.DESCRIBE_LOG_DIRS, version, 1, answer)[4:]
    )
    assert [each.log_dir for each in found.results] == ["/data/a?b"]
