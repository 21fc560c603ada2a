"""Fields of many bytes: few of them are copied in one step of reading, and none when an answer is encoded in steps."""

from itertools import pairwise

import pytest

from ottla.wire.apis import ApiKey
from ottla.wire.codec import Buffer, Reader, WireError
from ottla.wire.frames import encode_response, encode_response_element_steps, encode_response_steps
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.messages.sync_group import SyncGroupResponse
from ottla.wire.schema import _STEP_BYTES, _read_steps, decode, decode_steps, encode, plan

_FIELD = bytes(range(256)) * 400
_MANY = 120
_ANSWERS = {
    ApiKey.JOIN_GROUP: JoinGroupResponse(
        protocol_name="range", members=tuple(JoinGroupResponseMember(f"m{n}", None, _FIELD) for n in range(_MANY))
    ),
    ApiKey.SYNC_GROUP: SyncGroupResponse(protocol_name="range", assignment=_FIELD),
    ApiKey.DESCRIBE_GROUPS: DescribeGroupsResponse(
        groups=(
            DescribedGroup(
                group_id="g",
                members=tuple(
                    DescribedGroupMember(f"m{n}", None, "c", "/h", _FIELD, _FIELD) for n in range(_MANY // 2)
                ),
            ),
        )
    ),
}


@pytest.mark.parametrize("key", _ANSWERS)
@pytest.mark.parametrize("is_flexible", [False, True])
def test_large_fields_of_an_answer_are_pieces_that_are_not_copied(key: ApiKey, is_flexible: bool) -> None:
    version = 5 if is_flexible else 3
    version -= (key is ApiKey.SYNC_GROUP) and not is_flexible
    answer = _ANSWERS[key]
    if key is ApiKey.JOIN_GROUP:
        version += is_flexible
    frame: list[Buffer] = []
    for _ in encode_response_steps(key, version, 7, answer, frame):
        pass
    assert b"".join(frame) == encode_response(key, version, 7, answer)
    assert sum(each is _FIELD for each in frame) == (1 if key is ApiKey.SYNC_GROUP else _MANY)
    assert sum(len(each) for each in frame if each is not _FIELD) < 100 * _MANY


def test_an_element_of_many_elements_is_encoded_a_few_of_them_in_a_step() -> None:
    """A group with 10,000 commits of 4 KB of metadata each was one step of 40 MB."""
    told = tuple(OffsetFetchResponsePartitions(n, 1, -1, "m" * 4_000, 0) for n in range(2_000))
    group = OffsetFetchResponseGroup("g", (OffsetFetchResponseTopics(name="t", partitions=told),))
    pieces: list[Buffer] = []
    for _ in encode_response_element_steps(ApiKey.OFFSET_FETCH, 9, "groups", group, pieces):
        pass
    assert max(map(len, pieces)) < 5_000
    assert sum(map(len, pieces)) > 8_000_000


def _join(fields: int, size_bytes: int) -> bytes:
    protocols = tuple(JoinGroupRequestProtocol(f"p{n}", bytes(size_bytes)) for n in range(fields))
    return encode(JoinGroupRequest("g", 1, 1, "", None, "consumer", protocols), 9)


def test_a_step_of_reading_copies_few_bytes() -> None:
    """Twelve fields of 7.9 MB were copied in one step."""
    size_bytes = 300_000
    encoded = _join(40, size_bytes)
    reader = Reader(encoded, 0, 2**62)
    ends = [0, *(reader.pos for _ in _read_steps(reader, plan(JoinGroupRequest, 9))), reader.pos]
    assert ends[-1] == len(encoded)
    assert max(after - before for before, after in pairwise(ends)) <= _STEP_BYTES + 2 * size_bytes


def test_a_field_of_too_many_bytes_is_refused_before_it_is_copied() -> None:
    encoded = _join(2, 1_000)
    assert len(decode(JoinGroupRequest, 9, encoded, max_field_bytes=1_000).protocols) == 2
    with pytest.raises(WireError, match="JoinGroupRequest v9: metadata: 1000 bytes, at most 999 are accepted"):
        decode(JoinGroupRequest, 9, encoded, max_field_bytes=999)
    with pytest.raises(WireError, match="at most 999 are accepted"):
        list(decode_steps(JoinGroupRequest, 9, encoded, max_field_bytes=999))
