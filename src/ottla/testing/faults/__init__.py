"""Faults as switches: what a network, or a broker in trouble, does to the requests and answers of a client.

faults = Faults()
with Broker(faults=faults) as broker:
    faults.drop("Produce", answer=True)         # written, and the producer does not hear of it
    faults.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=3)
    faults.delay("Fetch", 0.5, client_id="slow")
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from difflib import get_close_matches

from ottla.client.blocking.loop_thread import LoopThread
from ottla.testing.arguments import text
from ottla.testing.faults.proxy import Proxy
from ottla.testing.faults.rules import OWN_CLIENT_ID, Fault, FaultSpec, Harm, Side, api_of, checked
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

__all__ = ["Fault", "Faults"]


class Faults:
    """Faults for the clients of one broker: `Broker(faults=…)`, `AsyncBroker(faults=…)`. Threads may share it.

    A broker that is given faults is reached through a listener of theirs, which sees every request and answer. Each
    call here makes a fault that waits for its request: the `nth` of `api` from now on, and `times` in a row (None:
    all), of the client that calls itself `client_id` or of any. `api` is Kafka's name of it. Several may meet one
    message. The returned `Fault` counts how often it has happened, can be waited for, and cancelled.

    All of them raise ValueError for an API that is not known, or numbers that make no sense, and TypeError for what is
    no number where one is needed.
    """

    def __init__(self) -> None:
        self._made: list[Fault] = []
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._proxy: Proxy | None = None

    def fail(
        self,
        api: ApiKey | str,
        error: ErrorCode | str,
        *,
        done: bool = False,
        nth: int = 1,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> Fault:
        """The request is answered with `error` for each of its parts. With `done` the broker has carried it out.

        Who asks Metadata for all topics is told it for each topic that the broker tells of. Who asks for none, only for
        the brokers, is told it from version 13 on: before, that answer has no place for an error.

        ValueError for an API whose answer cannot be made up.
        """
        side = Side.ANSWER if done else Side.REQUEST
        return self._add(FaultSpec(Harm.FAIL, api_of(api), side, nth, times, client_id, error=_error(error)))

    def delay(
        self,
        api: ApiKey | str,
        seconds: float,
        *,
        answer: bool = False,
        nth: int = 1,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> Fault:
        """The request, or its answer, is late, and with it all that is behind it on its connection."""
        spec = FaultSpec(Harm.DELAY, api_of(api), _side(answer), nth, times, client_id, delay_s=seconds)
        return self._add(spec)

    def drop(
        self,
        api: ApiKey | str,
        *,
        answer: bool = False,
        silent: bool = False,
        nth: int = 1,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> Fault:
        """The request, or its answer, is lost because its connection breaks.

        With `silent` the connection stays, and nothing comes on it any more: the client has to notice by itself.
        """
        return self._add(FaultSpec(Harm.DROP, api_of(api), _side(answer), nth, times, client_id, silent=silent))

    def repeat(
        self,
        api: ApiKey | str,
        *,
        answer: bool = False,
        nth: int = 1,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> Fault:
        """The broker gets the request twice, and its second answer is thrown away; or the client gets it twice."""
        return self._add(FaultSpec(Harm.REPEAT, api_of(api), _side(answer), nth, times, client_id))

    def cut(self, client_id: str | None = None) -> int:
        """Cut the connections of a client, or all; how many there were. A client may connect again."""
        if client_id is not None:
            text("client_id, or None for all clients,", client_id)
        thread, proxy = self._running()
        return thread.run(_in_loop(proxy.cut, client_id))

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """`with faults.outage():` all connections are cut, and none is taken."""
        _, proxy = self._running()
        proxy.is_open = False
        try:
            self.cut()
            yield
        finally:
            proxy.is_open = True

    def clear(self) -> None:
        """Cancel all faults. What is delayed or dropped already stays so."""
        with self._lock:
            for fault in self._made:
                fault.cancel()
            self._made.clear()

    # for the broker that they belong to

    def listen(self, host: str, port: int = 0) -> int:
        """Listen where clients will connect; the port. OSError when it cannot be had."""
        if self._thread is not None:
            raise ValueError("these faults belong to a broker that runs: make others for another one")
        self._thread, self._proxy = LoopThread("ottla-faults"), Proxy(self._meet, host)
        try:
            return self._thread.run(self._proxy.start(port))
        except BaseException:
            self._thread.stop()
            self._thread = self._proxy = None
            raise

    def connect(self, host: str, port: int) -> None:
        """The broker listens there."""
        _, proxy = self._running()
        proxy.connect_to = (host, port)

    def close(self) -> None:
        """Cut every connection and listen no more. May be called again."""
        if self._thread is not None and self._proxy is not None:
            self._thread.run(self._proxy.stop())
            self._thread.stop()
            self._thread = self._proxy = None

    def _running(self) -> tuple[LoopThread, Proxy]:
        if self._thread is None or self._proxy is None:
            raise ValueError("no broker runs with these faults: start it with Broker(faults=...) first")
        return self._thread, self._proxy

    def _add(self, spec: FaultSpec) -> Fault:
        fault = Fault(checked(spec))
        with self._lock:
            self._made.append(fault)
        return fault

    def _meet(self, api: int, side: Side, client_id: str | None) -> list[Fault]:
        if client_id == OWN_CLIENT_ID:
            return []
        with self._lock:
            made = list(self._made)
        return [fault for fault in made if fault.meets(api, side, client_id)]


async def _in_loop(call: Callable[[str | None], int], client_id: str | None) -> int:
    return call(client_id)


def _side(answer: bool) -> Side:
    return Side.ANSWER if answer else Side.REQUEST


def _error(error: ErrorCode | str) -> ErrorCode:
    if isinstance(error, ErrorCode):
        return error
    try:
        return ErrorCode[text("an error", error).upper()]
    except KeyError:
        near = get_close_matches(error.upper(), ErrorCode.__members__, 1)
        raise ValueError(f"Kafka has no error {error}" + (f"; did you mean {near[0]}?" if near else "")) from None
