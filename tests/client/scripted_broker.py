"""A Kafka broker in the test's loop that answers as `fake_kafka` does, except where the test says otherwise.

    async with ScriptedBroker({"t": 2}) as broker:
        held = Hold()
        broker.script(ApiKey.PRODUCE, held, hang_up)  # the first is kept, the second loses its connection
        ...
        await held.reached.wait()
        held.release()
        assert len(broker.asked(ApiKey.PRODUCE)) == 2

As a real broker does, it answers the requests of one connection one after the other: what comes behind a request that
is held waits too. It reads ahead, so that a test sees (`saw`) what waits there.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from ottla import AsyncConsumer, AsyncProducer
from ottla.wire.apis import API, ApiKey
from ottla.wire.frames import decode_body, decode_request, encode_response
from tests.client.fake_kafka import Asked, FakeKafka

#: A message, bytes that go out as they are, or nothing.
Answer = tuple[Any, ...] | bytes | None
Usual = Callable[[], Awaitable[Answer]]
#: What becomes of one request; `usual` processes it and gives the usual answer.
Step = Callable[[Asked, Usual], Awaitable[Answer]]

#: Pauses so short that no test feels them.
QUICK = {
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 5,
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 5,
}
_GOODBYE_S = 1.0


class HangUpError(Exception):
    """Raised by a step: the broker closes the connection."""


async def as_usual(asked: Asked, usual: Usual) -> Answer:
    """What the broker does without a script."""
    return await usual()


async def hang_up(asked: Asked, usual: Usual) -> Answer:
    """Close the connection; nobody has looked at the request."""
    raise HangUpError


async def lose_answer(asked: Asked, usual: Usual) -> Answer:
    """Do what is asked, and close the connection before the answer."""
    await usual()
    raise HangUpError


async def silence(asked: Asked, usual: Usual) -> Answer:
    """Never answer, and nothing behind it either."""
    await asyncio.Event().wait()
    return None


def instead(answer: Answer) -> Step:
    """Answer this, and do nothing."""

    async def step(asked: Asked, usual: Usual) -> Answer:
        return answer

    return step


def changed(change: Callable[[Any], Answer]) -> Step:
    """Do what is asked, and change the answer."""

    async def step(asked: Asked, usual: Usual) -> Answer:
        return change(await usual())

    return step


class Hold:
    """Keeps a request until `release`; then it is processed as `then` says. `reached` is set when it is here."""

    def __init__(self, then: Step = as_usual) -> None:
        self.reached = asyncio.Event()
        self._released = asyncio.Event()
        self._then = then

    def release(self) -> None:
        """Let it go on."""
        self._released.set()

    async def __call__(self, asked: Asked, usual: Usual) -> Answer:
        self.reached.set()
        await self._released.wait()
        return await self._then(asked, usual)


class ScriptedBroker:
    """A listener, what it was asked, and what it does about it. `kafka` is the state behind it."""

    def __init__(
        self,
        topics: dict[str, int] | None = None,
        *,
        transaction_version: int = 2,
        without: Iterable[ApiKey] = (),
    ) -> None:
        """`topics` by number of partitions; APIs `without` are not offered."""
        self.kafka = FakeKafka(topics=topics or {}, transaction_version=transaction_version, without=without)
        self.requests: list[Asked] = []
        self._scripts: dict[ApiKey, deque[Step]] = {}
        self._always: dict[ApiKey, Step] = {}
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._connected = 0
        self._arrived = asyncio.Event()
        self._faults: list[Exception] = []

    # scripts

    def script(self, api: ApiKey, *steps: Step) -> None:
        """The next requests of `api` are treated so, one step each; then as usual."""
        self._scripts.setdefault(api, deque()).extend(steps)

    def always(self, api: ApiKey, step: Step) -> None:
        """All requests of `api` that have no step of their own are treated so, until `always` is called again."""
        self._always[api] = step

    # what it was asked

    def asked(self, api: ApiKey) -> list[Any]:
        """The requests of `api` that have arrived, oldest first."""
        return [asked.message for asked in self.requests if asked.api == api]

    async def saw(self, api: ApiKey, count: int = 1) -> None:
        """Wait until `count` requests of `api` have arrived; they may still wait behind others."""
        while len(self.asked(api)) < count:
            await self._arrived.wait()

    async def deserted(self) -> None:
        """Wait until nobody is connected any more."""
        await asyncio.gather(*self._connections, return_exceptions=True)

    # clients

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def config(self, config: Mapping[str, object] | None = None) -> dict[str, object]:
        """A client's configuration: this broker, short pauses, and `config`."""
        return {"bootstrap.servers": self.bootstrap_servers, **QUICK, **(config or {})}

    @asynccontextmanager
    async def producer(self, config: Mapping[str, object] | None = None) -> AsyncIterator[AsyncProducer]:
        """A producer that is closed at once, also when it hangs."""
        producer = AsyncProducer(self.config({"linger.ms": 0, **(config or {})}))
        try:
            yield producer
        finally:
            with contextlib.suppress(Exception):  # what is tested is over
                await producer.close(0)

    @asynccontextmanager
    async def consumer(self, config: Mapping[str, object] | None = None) -> AsyncIterator[AsyncConsumer]:
        """A consumer that leaves without a commit, also when it hangs."""
        reading = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.max.wait.ms": 10}
        consumer = AsyncConsumer(self.config({**reading, **(config or {})}))
        try:
            yield consumer
        finally:
            with contextlib.suppress(Exception):  # what is tested is over
                async with asyncio.timeout(_GOODBYE_S):
                    await consumer.abandon()

    # life

    async def __aenter__(self) -> "ScriptedBroker":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.kafka.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._faults and fault is None:
            raise self._faults[0]  # the fake itself is wrong, or was asked what it does not know

    def cut(self) -> None:
        """Close every connection, whatever waits there."""
        for writer in self._connections.values():
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        self._connected += 1
        waiting: asyncio.Queue[tuple[Asked, int]] = asyncio.Queue()
        answering = asyncio.create_task(self._answer_all(waiting, writer))
        try:
            await self._read(self._connected, reader, waiting)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone, or the test is over
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            del self._connections[task]
            writer.transport.abort()

    async def _read(
        self, number: int, reader: asyncio.StreamReader, waiting: "asyncio.Queue[tuple[Asked, int]]"
    ) -> None:
        while True:
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            header, at = decode_request(frame)
            api = API[header.api_key]
            message = decode_body(api.request, header.api_version, frame, at)
            asked = Asked(api.key, header.api_version, header.client_id, message, number)
            self.requests.append(asked)
            waiting.put_nowait((asked, header.correlation_id))
            self._arrived.set()
            self._arrived = asyncio.Event()

    async def _answer_all(self, waiting: "asyncio.Queue[tuple[Asked, int]]", writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked, correlation_id = await waiting.get()
                answer = await self._step_for(asked.api)(asked, self._usual(asked))
                if isinstance(answer, bytes):
                    writer.write(answer)
                elif answer is not None:
                    writer.write(encode_response(asked.api, asked.version, correlation_id, answer))
        except HangUpError:
            pass
        except Exception as fault:  # noqa: BLE001  a test must not hang because its broker is wrong
            self._faults.append(fault)
        writer.transport.abort()

    def _usual(self, asked: Asked) -> Usual:
        async def usual() -> Answer:
            return await self.kafka.answer(asked)

        return usual

    def _step_for(self, api: ApiKey) -> Step:
        steps = self._scripts.get(api)
        return steps.popleft() if steps else self._always.get(api, as_usual)
