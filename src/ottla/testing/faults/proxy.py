"""A listener in front of a broker that reads every request and answer, and harms those that a fault waits for."""

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.testing.faults.refusals import names_its_parts, refusal, spoiled
from ottla.testing.faults.rules import Fault, Harm, Side
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec import WireError
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import (
    UnsupportedVersionError,
    decode_body,
    decode_request,
    decode_response,
    encode_response,
)

_SIZE: Final = struct.Struct(">i")
#: Frames larger than Kafka's own limit are no frames.
_MAX_FRAME_BYTES: Final = 256 * 1_048_576
#: How long a broker may take to close after its client has gone.
_LAST_WORDS_S: Final = 5.0

#: Which faults a message meets: its API, whether it is the request or the answer, the client's id.
Meet = Callable[[int, Side, str | None], list[Fault]]


@dataclass(slots=True)
class _Asked:
    """A request whose answer is to come. `refusal`, if there is one, makes what is sent instead of the broker's answer.

    It gets that answer, or None: then it returns None if it cannot do without.
    """

    api: int
    client_id: str | None
    refusal: "Callable[[ErrorCode, bytes | None], bytes | None] | None"
    #: What the broker's answer is refused with, once it is there.
    error: ErrorCode = ErrorCode.NONE
    #: The answer when the broker was not asked.
    made_up: bytes | None = None
    #: How many answers of the broker nobody waits for, because the request was repeated.
    surplus: int = 0


class Proxy:
    """Listens on `host`; `connect_to` is where the broker is. Call `start` once, and then `stop` once."""

    def __init__(self, meet: Meet, host: str = "127.0.0.1") -> None:
        self._meet = meet
        self.host, self.port = host, 0
        #: The broker's own address; None while it has none.
        self.connect_to: tuple[str, int] | None = None
        #: Whether new connections are taken.
        self.is_open = True
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> int:
        """Listen; the port. OSError when it cannot be had."""
        self._server = await asyncio.start_server(self._accepted, self.host, port, limit=2**20)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def stop(self) -> None:
        """Cut every connection and listen no more."""
        if self._server is not None:
            self._server.close()
            self.cut(None)
            await asyncio.gather(*self._tasks)
            await self._server.wait_closed()
            self._server = None

    def cut(self, client_id: str | None) -> int:
        """Cut the connections of a client, or of all; how many there were."""
        found = [link for link in self._links if client_id in (None, link.client_id)]
        for link in found:
            link.cut()
        return len(found)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._accept(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self._meet, reader, writer)
        self._links.add(link)
        try:
            if self.is_open and self.connect_to is not None:
                await link.run(*self.connect_to)
        except (OSError, WireError):
            pass  # the broker is down, one side has gone, or what came makes no sense: the other side is cut off
        finally:
            link.cut()
            self._links.discard(link)


class _Link:
    """One client's connection, and the one to the broker that belongs to it."""

    def __init__(self, meet: Meet, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._meet = meet
        self._reader, self._writer = reader, writer
        self._upstream: asyncio.StreamWriter | None = None
        self._asked: asyncio.Queue[_Asked | None] = asyncio.Queue()
        #: Answers of the broker that were not passed on yet.
        self._heard: asyncio.Queue[bytes] = asyncio.Queue()
        self._gone = asyncio.Event()
        self.client_id: str | None = None

    def cut(self) -> None:
        """Both connections break now."""
        self._gone.set()
        for writer in (self._writer, self._upstream):
            if writer is not None:
                writer.transport.abort()

    async def run(self, host: str, port: int) -> None:
        """Until one side has gone."""
        reader, self._upstream = await asyncio.open_connection(host, port, limit=2**20)
        work = (self._requests(self._upstream), self._answers(), self._hear(reader))
        pumps = [asyncio.ensure_future(each) for each in work]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if pumps[0].done() and not self._gone.is_set():
                self._upstream.write_eof()  # the client has gone: what it has sent goes all the way
                self._asked.put_nowait(None)
                await asyncio.wait(pumps[1:], timeout=_LAST_WORDS_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for ended in await asyncio.gather(*pumps, return_exceptions=True):
                if isinstance(ended, Exception) and not isinstance(ended, OSError | EOFError):
                    raise ended

    async def _requests(self, upstream: asyncio.StreamWriter) -> None:
        while True:
            frame = await _read(self._reader)
            asked, has_answer = _understood(frame)
            self.client_id = asked.client_id
            faults = self._meet(asked.api, Side.REQUEST, asked.client_id)
            if not await self._suffer(faults):
                return
            for fault in faults:
                if fault.spec.harm is Harm.FAIL and asked.refusal is not None:
                    asked.error = fault.spec.error
                    asked.made_up = asked.refusal(asked.error, None)
            copies = 0 if asked.made_up is not None else 1 + _repeats(faults)
            asked.surplus = max(copies - 1, 0)
            if has_answer:
                self._asked.put_nowait(asked)
            for _ in range(copies):
                upstream.write(_SIZE.pack(len(frame)) + frame)
            await upstream.drain()

    async def _hear(self, upstream: asyncio.StreamReader) -> None:
        while True:
            self._heard.put_nowait(await _read(upstream))

    async def _answers(self) -> None:
        while (asked := await self._asked.get()) is not None:
            if asked.made_up is None:
                frame = await self._heard.get()
                answer = _SIZE.pack(len(frame)) + frame
                for _ in range(asked.surplus):
                    await self._heard.get()
                if asked.error is not ErrorCode.NONE:
                    answer = _refused(asked, asked.error, answer)
            else:
                answer = asked.made_up
            faults = self._meet(asked.api, Side.ANSWER, asked.client_id)
            if not await self._suffer(faults):
                return
            for fault in faults:
                if fault.spec.harm is Harm.FAIL:
                    answer = _refused(asked, fault.spec.error, answer)
            self._writer.write(answer * (1 + _repeats(faults)))
            await self._writer.drain()

    async def _suffer(self, faults: list[Fault]) -> bool:
        """Wait as long as the faults say. False when the message is dropped, and the connection with it."""
        for fault in faults:
            if fault.spec.harm is Harm.DELAY:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._gone.wait(), fault.spec.delay_s)
        for fault in faults:
            if fault.spec.harm is Harm.DROP:
                if fault.spec.silent:
                    await self._gone.wait()
                self.cut()
        return not self._gone.is_set()


def _refused(asked: _Asked, error: ErrorCode, answer: bytes) -> bytes:
    """What the client is told for `answer`."""
    refused = None if asked.refusal is None else asked.refusal(error, answer)
    return answer if refused is None else refused


def _repeats(faults: list[Fault]) -> int:
    return sum(fault.spec.harm is Harm.REPEAT for fault in faults)


async def _read(reader: asyncio.StreamReader) -> bytes:
    (size,) = _SIZE.unpack(await reader.readexactly(4))
    if not 0 <= size <= _MAX_FRAME_BYTES:
        raise EOFError(f"a frame of {size} bytes")
    return await reader.readexactly(size)


def _understood(frame: bytes) -> tuple[_Asked, bool]:
    """What is asked, and whether there will be an answer. An API that is not known here passes as it is."""
    try:
        header, offset = decode_request(frame)
    except UnsupportedVersionError as unknown:
        return _Asked(unknown.api_key, None, None), True
    api, version, correlation_id, client_id = header
    key = ApiKey(api)

    def refused(error: ErrorCode, answer: bytes | None) -> bytes | None:
        request = decode_body(API[key].request, version, frame, offset)
        if names_its_parts(key, version, request):
            return encode_response(key, version, correlation_id, refusal(key, request, error))
        if answer is None:
            return None
        _, response = decode_response(key, version, answer[_SIZE.size :])
        return encode_response(key, version, correlation_id, spoiled(response, error))

    try:
        has_answer = key is not ApiKey.PRODUCE or decode_body(API[key].request, version, frame, offset).acks != 0
    except WireError:
        has_answer = True  # the broker will close the connection
    return _Asked(api, client_id, refused), has_answer
