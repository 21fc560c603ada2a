"""Frames and headers: the bytes around every request and response.

A frame is a 4-byte length and that many bytes. A request begins with its header (API key, version, correlation id,
client id; tagged fields when the version is flexible), a response with its correlation id (and tagged fields, but
never in ApiVersions, whose answer must be readable to a client that does not know the broker's versions yet: KIP-511).
"""

import mmap
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ottla.base.limits import (
    BUSY_BUFFER_BYTES,
    IDLE_BUFFER_BYTES,
    LARGE_FRAME_BYTES,
    MAX_STRING_BYTES,
    MAX_TAGGED_FIELDS,
    RECEIVED_AT_ONCE_BYTES,
    REUSED_FRAME_BYTES,
)
from ottla.wire.apis import API, Api, ApiKey
from ottla.wire.codec import Buffer, UnwritableTextError, WireError
from ottla.wire.schema import decode, encode, encode_element_steps, encode_pieces, encode_steps
from ottla.wire.spare_memory import SpareMemory

_HEAD: Final = struct.Struct(">hhi")
_SIZE: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
#: Length, correlation id, and how many tagged fields.
_RESPONSE: Final = struct.Struct(">ii")
_TAGGED_RESPONSE: Final = struct.Struct(">iib")


class UnsupportedVersionError(WireError):
    """A request whose API or version is not known here. The error has as much of the header as could be read."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        api = API.get(api_key)
        if api is None:
            super().__init__(f"API key {api_key} is not known")
        else:
            known = f"{api.min_version}..{api.max_version}"
            super().__init__(f"{api.name} version {api_version} is not known, only {known}")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class RequestHeader(NamedTuple):
    """Who asks what, in which version."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def known_api(api_key: int, api_version: int) -> Api | None:
    """The API when this version of it is known."""
    api = API.get(api_key)
    return api if api is not None and api.min_version <= api_version <= api.max_version else None


def decode_request(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request frame (without its length), and where the body begins.

    Raises UnsupportedVersionError for an API or version that is not known, WireError for a frame that is too short.
    """
    if len(frame) < 8:
        raise WireError(f"a request of {len(frame)} bytes has no header")
    api_key, version, correlation_id = _HEAD.unpack_from(frame, 0)
    api = known_api(api_key, version)
    if api is None:
        raise UnsupportedVersionError(api_key, version, correlation_id)
    client_id, pos = _nullable_string(frame, 8)
    if version >= api.flexible_from:
        # Hardly any client has tags in its header.
        pos = pos + 1 if pos < len(frame) and not frame[pos] else _skip_tags(frame, pos)
    return RequestHeader(api_key, version, correlation_id, client_id), pos


def client_id_of(frame: Buffer) -> str:
    """The client id of a request whose API or version is not known: it has stood there in every version so far."""
    try:
        return _nullable_string(frame, 8)[0] or ""
    except WireError:
        return ""


def decode_body(cls: type[Any], version: int, frame: Buffer, offset: int = 0) -> Any:
    """The message after the header. WireError unless it is exactly one `cls` of `version`."""
    return decode(cls, version, frame, offset)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: tuple[Any, ...]
) -> bytes:
    """A whole request frame, with its length."""
    return b"".join(encode_request_pieces(api_key, version, correlation_id, client_id, message))


def encode_request_pieces(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: tuple[Any, ...]
) -> list[Buffer]:
    """The same in pieces: large fields, a batch's records, are not copied. The first piece has the header, whole."""
    head = _HEAD.pack(api_key, version, correlation_id)
    if client_id is None:
        name = b"\xff\xff"
    else:
        data = client_id.encode()
        name = _INT16.pack(len(data)) + data
    tags = b"\0" if version >= API[api_key].flexible_from else b""
    first, *others = encode_pieces(message, version)
    first = b"".join((head, name, tags, first))
    return [_SIZE.pack(len(first) + sum(map(len, others))) + first, *filter(len, others)]


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header of a response, without the frame's length."""
    return _SIZE.pack(correlation_id) + (b"\0" if _has_tags(api_key, version) else b"")


def _has_tags(api_key: int, version: int) -> bool:
    """Whether the header of this response may have tagged fields. Ours never has one, but says so."""
    return version >= API[api_key].flexible_from and api_key != ApiKey.API_VERSIONS


def encode_response(api_key: int, version: int, correlation_id: int, message: tuple[Any, ...]) -> bytes:
    """A whole response frame, with its length. In a text that UTF-8 cannot write, a path for example, `?` stands for
    what it cannot, as in Apache Kafka."""
    try:
        body = encode(message, version)
    except UnwritableTextError:
        body = encode(_writable(message), version)
    if _has_tags(api_key, version):
        return _TAGGED_RESPONSE.pack(5 + len(body), correlation_id, 0) + body
    return _RESPONSE.pack(4 + len(body), correlation_id) + body


def encode_response_steps(
    api_key: int, version: int, correlation_id: int, message: tuple[Any, ...], into: list[Buffer]
) -> Iterator[None]:
    """The same in steps, for an answer that takes long; the frame is what is in `into` at last, one after the other.

    Large fields are not copied. Structs of the message's own arrays may be encoded already
    (`encode_response_element_steps`).
    """
    into += b"", response_header(api_key, version, correlation_id)
    head_bytes = size_bytes = len(into[1])
    try:
        for piece in encode_steps(message, version):
            into.append(piece)
            size_bytes += len(piece)
            yield
    except UnwritableTextError:
        del into[2:]
        size_bytes = head_bytes
        for piece in encode_steps(_writable(message), version):
            into.append(piece)
            size_bytes += len(piece)
            yield
    into[0] = _SIZE.pack(size_bytes)


def encode_response_element_steps(
    api_key: int, version: int, field: str, element: tuple[Any, ...], into: list[Buffer]
) -> Iterator[None]:
    """A struct in an array of a response's own, as `encode_response_steps` writes it."""
    response = API[api_key].response
    try:
        for piece in encode_element_steps(response, version, field, element):
            into.append(piece)
            yield
    except UnwritableTextError:
        into.clear()
        for piece in encode_element_steps(response, version, field, _writable(element)):
            into.append(piece)
            yield


def _writable(value: Any) -> Any:
    """The message, its texts such that UTF-8 can write them. (A list has pieces that are encoded already.)"""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, tuple):
        parts = map(_writable, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """(correlation id, message) of a response frame without its length."""
    if len(frame) < 4:
        raise WireError(f"a response of {len(frame)} bytes has no header")
    pos = 4
    if _has_tags(api_key, version):
        pos = _skip_tags(frame, pos)
    return _SIZE.unpack_from(frame, 0)[0], decode(API[api_key].response, version, frame, pos)


def _nullable_string(frame: Buffer, pos: int) -> tuple[str | None, int]:
    if len(frame) < pos + 2:
        raise WireError("the request ends before its client id")
    (size,) = _INT16.unpack_from(frame, pos)
    pos += 2
    if size < 0:
        return None, pos
    if len(frame) < pos + size:
        raise WireError(f"a client id of {size} bytes, only {len(frame) - pos} are left")
    text = str(frame[pos : pos + size], "utf-8", "replace")  # see `codec.Reader.string`
    if size > MAX_STRING_BYTES // 3 and len(text.encode()) > MAX_STRING_BYTES:
        raise WireError(f"a client id of {size} bytes that are no UTF-8, at most {MAX_STRING_BYTES} are accepted")
    return text, pos + size


def _skip_tags(frame: Buffer, pos: int) -> int:
    count, pos = _uvarint(frame, pos)
    if count > MAX_TAGGED_FIELDS:
        raise WireError(f"{count} tagged fields in a header, more than {MAX_TAGGED_FIELDS}")
    for _ in range(count):
        _, pos = _uvarint(frame, pos)
        size, pos = _uvarint(frame, pos)
        if size > len(frame) - pos:
            raise WireError(f"a tagged field of {size} bytes, only {len(frame) - pos} are left")
        pos += size
    return pos


def _uvarint(frame: Buffer, pos: int) -> tuple[int, int]:
    value = shift = 0
    while pos < len(frame) and shift <= 28:
        byte = frame[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
    raise WireError(f"a varint in the header does not end by {pos}")


class FrameBuffer:
    """Cuts frames out of a stream, for `asyncio.BufferedProtocol`.

    The loop asks for room (`get_buffer`), fills it, and `commit` returns the whole frames, each copied out once. A
    length that is negative or above `max_bytes` raises WireError before room for it is made. A frame of more than
    LARGE_FRAME_BYTES is received into memory of its own and handed out as a view of that, without a copy: the system
    gives this memory page by page, as bytes come. With `spare`, a frame of more than REUSED_FRAME_BYTES gets memory
    that was used before, if there is some that nobody uses any more.

    With `one_by_one`, for a peer that is not trusted, `commit` hands out one frame and leaves those behind it where
    they are, for a `commit(0)`; and the buffer, which stays as large as it once was, does not grow above
    BUSY_BUFFER_BYTES.

    The buffer grows when room is asked for, so that one that is not read takes no more. Whoever finds that too much is
    kept makes it `shrink`, after each `commit`.
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_is_tight",
        "_large",
        "_large_end",
        "_large_from",
        "_max_bytes",
        "_one_by_one",
        "_spare",
        "_start",
        "_trusted_from",
        "is_filled",
        "kept_bytes",
    )

    def __init__(self, max_bytes: int, *, one_by_one: bool = False, spare: SpareMemory | None = None) -> None:
        self._buffer = bytearray(IDLE_BUFFER_BYTES)
        self._max_bytes = max_bytes
        self._one_by_one = one_by_one
        self._spare = spare
        #: A longer frame gets memory of its own, when the peer is trusted.
        self._trusted_from = LARGE_FRAME_BYTES if spare is None else REUSED_FRAME_BYTES
        self._large_from = BUSY_BUFFER_BYTES - 4 if one_by_one else self._trusted_from
        self._start = 0
        self._end = 0
        #: What the buffer has more than a connection begins with.
        self.kept_bytes = 0
        #: Whether the last receive has filled the buffer: more is on its way, and it grows when room for that is asked.
        self.is_filled = False
        #: Whether nothing is received beyond the frame that has begun, but a little.
        self._is_tight = False
        #: The large frame that is being received, without its length, and how much of it is here.
        self._large: memoryview | None = None
        self._large_end = 0

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Room for more bytes; at least one."""
        if self._large is not None:
            return self._large[self._large_end : self._large_end + RECEIVED_AT_ONCE_BYTES]
        if self.is_filled and len(self._buffer) < BUSY_BUFFER_BYTES:
            self._move(BUSY_BUFFER_BYTES)
        elif self._end == len(self._buffer):
            self._make_room()
        if self._is_tight:
            rest = self.begun_bytes - (self._end - self._start)
            return memoryview(self._buffer)[self._end : self._end + max(IDLE_BUFFER_BYTES, rest)]
        return memoryview(self._buffer)[self._end :]

    def shrink(self) -> None:
        """Keep no more memory than what is here takes; and with the next receive take little beyond its frame."""
        self.is_filled, self._is_tight = False, True
        size_bytes = max(IDLE_BUFFER_BYTES, self._end - self._start)
        if size_bytes < len(self._buffer):
            self._move(size_bytes)

    def allow(self, max_bytes: int) -> None:
        """The peer is trusted: from the next one on frames may be so large, and all that are there are handed out."""
        self._max_bytes = max_bytes
        self._one_by_one, self._large_from = False, self._trusted_from

    @property
    def begun(self) -> bytes:
        """What is here of the frame that comes next, eight bytes at most: for messages about it."""
        if self._large is not None:
            return _SIZE.pack(len(self._large)) + bytes(self._large[: min(self._large_end, 4)])
        return bytes(self._buffer[self._start : min(self._end, self._start + 8)])

    def commit(self, size: int) -> list[Buffer]:
        """Count `size` more bytes as filled; the frames that are whole now, without their lengths."""
        if self._large is not None:
            return self._commit_large(self._large, size)
        self._end += size
        frames: list[Buffer] = []
        view = memoryview(self._buffer)
        start, end = self._start, self._end
        while end - start >= 4:
            (length,) = _SIZE.unpack_from(view, start)
            if not 0 <= length <= self._max_bytes:
                raise WireError(f"a frame of {length} bytes; 0 to {self._max_bytes} are accepted")
            if end - start - 4 < length:
                if length > self._large_from:
                    self._begin_large(length, view[start + 4 : end])
                    start = end
                break
            frames.append(bytes(view[start + 4 : start + 4 + length]))
            start += 4 + length
            if self._one_by_one:
                break
        self.is_filled, self._is_tight = end == len(self._buffer), False
        if start == end:
            start = end = 0
        self._start, self._end = start, end
        return frames

    @property
    def begun_bytes(self) -> int:
        """What the frame that has begun will take, with its length; 4 before that is known, 0 when none has begun."""
        if self._large is not None:
            return 4 + len(self._large)
        used = self._end - self._start
        if used < 4:
            return 4 if used else 0
        return 4 + int(_SIZE.unpack_from(self._buffer, self._start)[0])

    def _begin_large(self, length: int, begun: memoryview) -> None:
        self._large = _fresh(length) if self._spare is None else self._spare.take(length)
        self._large_end = len(begun)
        self._large[: len(begun)] = begun

    def _commit_large(self, large: memoryview, size: int) -> list[Buffer]:
        self._large_end += size
        if self._large_end < len(large):
            return []
        self._large = None
        return [large.toreadonly()]

    def _make_room(self) -> None:
        """Move the begun frame to the front; grow by doubling, up to what its length says and no more."""
        used, size = self._end - self._start, len(self._buffer)
        self._move(max(size, min(self.begun_bytes, size * 2)) if used == size else size)

    def _move(self, size_bytes: int) -> None:
        """Move the begun frame to the front of a buffer of that size."""
        used = self._end - self._start
        if size_bytes != len(self._buffer):
            other = bytearray(size_bytes)
            other[:used] = memoryview(self._buffer)[self._start : self._end]
            self._buffer, self.kept_bytes = other, size_bytes - IDLE_BUFFER_BYTES
        else:
            self._buffer[:used] = self._buffer[self._start : self._end]
        self._start, self._end = 0, used


def _fresh(size_bytes: int) -> memoryview:
    """Memory that the system gives as it is written to, and has back when the last view of it is gone."""
    return memoryview(mmap.mmap(-1, size_bytes, access=mmap.ACCESS_COPY))
