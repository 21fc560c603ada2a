"""The shell around a core: it gives events to the core, and carries out the core's intents.

The core gets one event at a time, in the order in which they come. When an intent causes another event at once, that
event is queued. The lock is held while the core works and its intents are taken, never while they are carried out.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from ottla.base.topic_names import topic_name_problem
from ottla.client.core import intents
from ottla.client.core.intents import Core, NotSentError
from ottla.client.errors import ClientError, DisconnectedError
from ottla.client.net.cluster import Cluster
from ottla.client.net.connection import Connection, Heard
from ottla.client.net.coordinators import Coordinators
from ottla.client.net.supervisor import Supervisor
from ottla.client.shell.beside import Beside


class Driver:
    """Drives one core. Only `time` may be called outside the event loop in which this was made."""

    def __init__(
        self,
        core: Core,
        cluster: Cluster,
        supervisor: Supervisor,
        log: logging.Logger,
        *,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """`lock`, if given, is held during every call of the core. Other threads may call it under the same lock."""
        self._core = core
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._supervisor = supervisor
        self._log = log
        self._lock = lock if lock is not None else nullcontext()
        self._loop = asyncio.get_running_loop()
        self._events: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        #: Tasks that find the broker for a request and wait for its answer, by the identity of the request's ticket.
        self._asking: dict[int, asyncio.Task[None]] = {}
        #: The tickets' identities of other requests to coordinators: who is not there any more was given up.
        self._unheard: set[int] = set()
        self._beside = Beside()
        self._working: set[asyncio.Future[Any]] = set()
        self._feeding = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self._it_is_time = supervisor.guarded(self._woken)
        self._ask_large = supervisor.guarded(self._in_its_turn)
        self._handlers: dict[type, Callable[[Any], object]] = {
            intents.Ask: self._ask,
            intents.AskVersions: lambda i: supervisor.spawn(self._ask_versions(i.ticket), "ottla-versions"),
            intents.Connect: self._connect,
            intents.Finish: _finish,
            intents.GiveUp: self._give_up,
            intents.ForgetCoordinator: lambda i: self._coordinators.forget(i.kind, i.key),
            intents.LearnLeader: self._learn_leader,
            intents.LearnTopics: lambda i: cluster.learn_topics(i.topic_ids),
            intents.RefreshMetadata: self._refresh,
            intents.Say: lambda i: log.log(i.level, i.text, *i.arguments),
            intents.Track: self._track,
            intents.Untrack: lambda i: cluster.untrack(i.topics, by=self),
            intents.Work: self._work,
        }
        self._detach = (
            cluster.on_update(lambda before, after: self.feed(core.metadata, before, after)),
            cluster.on_disconnect(lambda node_id, channel: self.feed(core.disconnected, node_id, channel)),
            cluster.supervisor.on_crash(supervisor.crash),
            lambda: cluster.leave(self),
        )

    def time(self) -> float:
        """The time that events get, in seconds. May be called in any thread."""
        return self._loop.time()

    def handle(self, intent: type, handler: Callable[[Any], object]) -> None:
        """Let `handler` carry out intents of this type."""
        self._handlers[intent] = handler

    def feed(self, event: Callable[..., None], *arguments: Any) -> None:
        """Give an event (a method of the core) to the core, and carry out its intents. An exception there is a crash.

        After a crash the intents that the core has collected are still carried out: they may end calls that wait.
        """
        self._events.append((event, arguments))
        self._feed()

    def _feed(self) -> None:
        if self._feeding or self._stopped:
            return
        self._feeding = True
        wake_at_s = None
        try:
            while self._events and not self._stopped:
                event, arguments = self._events.popleft()
                fault: Exception | None = None
                with self._lock:
                    try:
                        event(*arguments, self._loop.time())
                    except Exception as error:  # noqa: BLE001  no exception is expected here
                        fault = error
                    intended = self._core.take_intents()
                    wake_at_s = self._core.wake_at_s
                if fault is not None:
                    self._supervisor.crash(fault)
                for intent in intended:
                    try:
                        self._handlers[intent.__class__](intent)
                    except Exception as error:  # noqa: BLE001  nor here
                        self._supervisor.crash(error)
            self._arm(wake_at_s)
        finally:
            self._feeding = False

    async def call(self, event: Callable[..., None], *arguments: Any) -> Any:
        """Give a user's call to the core, `event(call, *arguments, now_s)`, and wait for the `Finish` that ends it."""
        self._supervisor.check()
        future = self._supervisor.future()
        self.feed(event, future, *arguments)
        try:
            return await future
        except asyncio.CancelledError:
            self.feed(self._core.abandoned, future)
            raise

    def stop(self) -> None:
        """Give the core no more events, and send no more requests. Idempotent."""
        self._stopped = True
        self._events.clear()
        self._handlers |= dict.fromkeys(_REQUESTS, lambda intent: None)
        for detach in self._detach:
            detach()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for future in tuple(self._working):
            future.cancel()

    # time

    def _arm(self, at_s: float | None) -> None:
        """Set the one timer. It may fire too early, never too late: the core then says again when to wake it."""
        if at_s is None or self._stopped:
            return
        if self._timer is not None:
            if self._timer_at_s <= at_s:
                return
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = self._loop.call_at(at_s, self._it_is_time)

    def _woken(self) -> None:
        self._timer = None
        self.feed(self._core.woken)

    # requests

    def _ask(self, ask: intents.Ask) -> None:
        if ask.is_large:
            self._loop.call_soon(self._ask_large, ask._replace(is_large=False))
        elif isinstance(ask.to, intents.Broker):
            connection = self._cluster.open_connection(ask.to.node_id, ask.to.channel)
            if connection is None:
                self._not_sent(ask, NotSentError(f"broker {ask.to.node_id} is not connected"))
            else:
                self._send(connection, ask)
        elif isinstance(ask.to, intents.Coordinator) and (known := self._connection_to(ask.to)):
            self._ask_coordinator(known, ask.to, ask)
        else:
            name = f"ottla-{ask.api.name.lower().replace('_', '-')}"
            task = self._asking[id(ask.ticket)] = self._supervisor.spawn(self._find_and_ask(ask), name)
            task.add_done_callback(lambda _: self._asking.pop(id(ask.ticket), None))

    def _in_its_turn(self, ask: intents.Ask) -> None:
        if not self._stopped:
            self._ask(ask)
            self._feed()  # it may not have been sent

    def _connection_to(self, coordinator: intents.Coordinator) -> Connection | None:
        """The open connection to a coordinator that is known, while no earlier request may be overtaken."""
        return None if self._asking else self._coordinators.open_connection(*coordinator)

    def _ask_coordinator(self, connection: Connection, coordinator: intents.Coordinator, ask: intents.Ask) -> None:
        """What `_find_and_ask` does, without a task: it is known where to, and the connection is open."""
        ticket = ask.ticket

        def heard(answer: Any, error: Exception | None) -> None:
            if id(ticket) in self._unheard:
                self._unheard.discard(id(ticket))
                if error is not None:
                    self._coordinators.failed(coordinator, error)
                self._heard(ticket, answer, error)

        self._unheard.add(id(ticket))
        self._send(connection, ask, heard)

    def _give_up(self, intent: intents.GiveUp) -> None:
        self._unheard.discard(id(intent.ticket))
        # it may have failed at once
        self._events = deque(event for event in self._events if not any(each is intent.ticket for each in event[1]))
        task = self._asking.get(id(intent.ticket))
        if task is not None:
            task.cancel()

    def _send(self, connection: Connection, ask: intents.Ask, heard: Heard | None = None) -> None:
        try:
            version = connection.choose(ask.api, ask.cap, ask.least)
        except ClientError as error:
            self._not_sent(ask, error)
            return
        message = ask.message if isinstance(ask.message, tuple) else ask.message()
        if not ask.has_answer:
            try:
                connection.send_without_answer(ask.api, version, message)
            except ClientError as error:
                self._not_sent(ask, NotSentError(str(error)))
                return
            if connection.is_writable:
                self._events.append((self._core.answered, (ask.ticket, None)))
            else:
                self._supervisor.spawn(self._drained(connection, ask), "ottla-drained")
            return
        connection.ask(ask.api, version, message, ask.timeout_ms, heard or partial(self._heard, ask.ticket))

    def _work(self, intent: intents.Work) -> None:
        future = self._loop.run_in_executor(self._beside, intent.work)
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        future.add_done_callback(partial(self._worked, intent.ticket))

    async def _ask_versions(self, ticket: Any) -> None:
        try:
            versions = await self._cluster.versions()
        except ClientError as error:
            self.feed(self._core.failed, ticket, error)
        else:
            self.feed(self._core.answered, ticket, versions)

    def _not_sent(self, ask: intents.Ask, error: ClientError) -> None:
        self._unheard.discard(id(ask.ticket))
        self._events.append((self._core.failed, (ask.ticket, error)))

    async def _drained(self, connection: Connection, ask: intents.Ask) -> None:
        await connection.drained()
        self.feed(self._core.answered, ask.ticket, None)

    def _worked(self, ticket: Any, future: "asyncio.Future[Any]") -> None:
        if not future.cancelled():
            error = future.exception()
            self._heard(ticket, None if error is not None else future.result(), error)

    def _heard(self, ticket: Any, answer: Any, error: BaseException | None) -> None:
        if error is None:
            self.feed(self._core.answered, ticket, answer)
        elif isinstance(error, ClientError):
            self.feed(self._core.failed, ticket, error)
        else:
            self._supervisor.crash(error)

    async def _find_and_ask(self, ask: intents.Ask) -> None:
        message = ask.message if isinstance(ask.message, tuple) else ask.message()
        fault: ClientError | None = None
        try:
            if isinstance(ask.to, intents.Coordinator):
                kind, key, channel = ask.to
                answer = await self._coordinators.request(
                    kind,
                    key,
                    ask.api,
                    message,
                    timeout_ms=ask.timeout_ms,
                    cap=ask.cap,
                    least=ask.least,
                    channel=channel,
                )
            else:
                answer = await self._cluster.request_any(ask.api, message, timeout_ms=ask.timeout_ms, cap=ask.cap)
        except ClientError as error:
            answer, fault = None, error
        self._asking.pop(id(ask.ticket), None)  # before the core asks for more
        self._heard(ask.ticket, answer, fault)

    # connections and metadata

    def _connect(self, intent: intents.Connect) -> None:
        node_id, channel = intent
        if self._cluster.open_connection(node_id, channel) is not None:
            self._events.append((self._core.connected, (node_id, channel)))
        else:
            self._supervisor.spawn(self._open(node_id, channel), f"ottla-connect-{node_id}-{channel.value}")

    async def _open(self, node_id: int, channel: intents.Channel) -> None:
        try:
            await self._cluster.connection(node_id, channel)
            if self._cluster.open_connection(node_id, channel) is None:
                raise DisconnectedError(f"the connection to broker {node_id} was lost as soon as it was open")
        except ClientError as error:
            self.feed(self._core.unreachable, node_id, channel, error)
        else:
            self.feed(self._core.connected, node_id, channel)

    def _refresh(self, intent: intents.RefreshMetadata) -> None:
        if intent.ticket is None:
            self._cluster.request_update()
        else:
            self._supervisor.spawn(self._refreshed(intent), "ottla-refresh")

    async def _refreshed(self, intent: intents.RefreshMetadata) -> None:
        try:
            await self._cluster.refreshed(intent.timeout_ms)
        except ClientError as error:
            self.feed(self._core.failed, intent.ticket, error)
        else:
            self.feed(self._core.answered, intent.ticket, None)

    def _track(self, intent: intents.Track) -> None:
        """Names from the user were checked before. Names from other members of a group may be anything."""
        topics = [topic for topic in intent.topics if topic_name_problem(topic) is None]
        self._cluster.track(topics, by=self)

    def _learn_leader(self, intent: intents.LearnLeader) -> None:
        snapshot = self._cluster.snapshot.with_leader(*intent)
        if snapshot is not self._cluster.snapshot:
            self._cluster.learn(snapshot)


#: Intents that need the cluster, or change what is known of it. `stop` ends these. The others only tell somebody
#: something (the end of a call, for example), and are still carried out.
_REQUESTS = (
    intents.Ask,
    intents.AskVersions,
    intents.Connect,
    intents.ForgetCoordinator,
    intents.LearnLeader,
    intents.LearnTopics,
    intents.RefreshMetadata,
    intents.Track,
    intents.Untrack,
    intents.Work,
)


def _finish(intent: intents.Finish) -> None:
    future: asyncio.Future[Any] = intent.call
    if future.done():  # the caller has stopped waiting
        return
    if intent.error is not None:
        future.set_exception(intent.error)
    else:
        future.set_result(intent.value)
