"""The hand-packed fetch response says what the codec says."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.handlers.fetch_response import PartitionResult, encode_fetch, encode_fetch_steps
from ottla.broker.outbox import Piece
from ottla.log.memory import MemoryStorage
from ottla.log.results import AbortedTransaction, Read
from ottla.log.storage import Slice
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import NULL_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import encode_response
from ottla.wire.messages import fetch

_VERSIONS = st.integers(API[ApiKey.FETCH].min_version, API[ApiKey.FETCH].max_version)
_offsets = st.integers(-1, 2**62)


def _slices(data: bytes) -> tuple[Slice, ...]:
    if not data:
        return ()
    file = MemoryStorage().open("f.log", create=True)
    file.append((data,))
    cut = len(data) // 2
    return tuple(Slice(file, at, size) for at, size in ((0, cut), (cut, len(data) - cut)) if size)


@st.composite
def _results(draw: st.DrawFn) -> PartitionResult:
    aborted = draw(st.none() | st.lists(st.builds(AbortedTransaction, _offsets, _offsets), max_size=3).map(tuple))
    read = Read(
        draw(st.sampled_from([ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE])),
        _slices(draw(st.binary(max_size=300))),
        draw(_offsets),
        draw(_offsets),
        draw(_offsets),
        aborted,
    )
    return PartitionResult(
        draw(st.sampled_from(["a", "topic-" + "x" * 200])),
        b"i" * 16,
        draw(st.integers(0, 5)),
        read,
        draw(st.none() | st.tuples(st.integers(0, 9), _offsets)),
        draw(st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9))),
    )


def _message(version: int, error: ErrorCode, session_id: int, results: list[PartitionResult]) -> fetch.FetchResponse:
    topics: list[fetch.FetchableTopicResponse] = []
    for result in results:
        read = result.read
        data = fetch.PartitionData(
            result.partition,
            read.error,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            aborted_transactions=None
            if read.aborted is None
            else tuple(fetch.AbortedTransaction(*each) for each in read.aborted),
            records=b"".join(piece.read() for piece in read.slices),
        )
        if result.diverging is not None and version >= 12:
            data = data._replace(diverging_epoch=fetch.EpochEndOffset(*result.diverging))
        if result.leader is not None and version >= 12:
            data = data._replace(current_leader=fetch.LeaderIdAndEpoch(*result.leader))
        if topics and topics[-1].topic == result.topic:
            topics[-1] = topics[-1]._replace(partitions=(*topics[-1].partitions, data))
        else:
            topics.append(fetch.FetchableTopicResponse(result.topic_id, result.topic, (data,)))
    return fetch.FetchResponse(error_code=error, session_id=session_id, responses=tuple(topics))


@given(_VERSIONS, st.lists(_results(), max_size=5), st.integers(0, 2**31 - 1))
def test_every_version_is_packed_as_the_codec_packs_it(
    version: int, results: list[PartitionResult], session_id: int
) -> None:
    error = ErrorCode.NONE if version < 7 else ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    pieces = encode_fetch(version, 7, error, session_id, results)
    packed = b"".join(piece.read() if isinstance(piece, Slice) else piece for piece in pieces)
    assert packed == encode_response(ApiKey.FETCH, version, 7, _message(version, error, session_id, results))


def test_very_many_aborted_transactions_are_packed_in_steps() -> None:
    aborted = tuple(AbortedTransaction(number, number) for number in range(10_000))
    result = PartitionResult("a", NULL_UUID, 0, Read(ErrorCode.NONE, _slices(b"records"), 1, 1, 0, aborted))
    pieces: list[Piece] = []
    assert sum(1 for _ in encode_fetch_steps(12, 7, ErrorCode.NONE, 0, [result], pieces)) > 20
    packed = b"".join(piece.read() if isinstance(piece, Slice) else piece for piece in pieces)
    assert packed == encode_response(ApiKey.FETCH, 12, 7, _message(12, ErrorCode.NONE, 0, [result]))
