"""Requests for the admin client and the Spark link: each goes to the right broker, and is repeated until it succeeds.

These two have no core: each of their calls is one question and its answer. A call waits in the caller's own task,
inside the scope of a supervisor. So it ends when its client is closed, or when a fault has ended the cluster object.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.core.backoff import short_backoff
from ottla.client.core.intents import CoordinatorKind
from ottla.client.core.metadata import NO_LEADER
from ottla.client.errors import ClientError, IncompleteAnswerError, KafkaError
from ottla.client.net.cluster import Cluster
from ottla.client.net.coordinators import Coordinators
from ottla.client.net.retry import Deadline, repeat
from ottla.client.net.supervisor import Supervisor
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

T = TypeVar("T")
#: Errors that say: metadata may name the wrong leader.
_LED_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        # with acks=all, also from a leader that was deposed and does not know it: nobody copies from it
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)


class Requests:
    """The requests of one client, on a cluster that it may share with others. Belongs to one event loop."""

    def __init__(self, cluster: Cluster, name: str, timeout_ms: float) -> None:
        """`name` stands in log lines and error messages: "the admin client". `timeout_ms` is for calls without one."""
        self.cluster = cluster
        self.coordinators = Coordinators(cluster)
        self._timeout_ms = timeout_ms
        self._supervisor = Supervisor(name)
        self._detach = cluster.supervisor.on_crash(self._supervisor.crash)

    @property
    def failure(self) -> ClientError | None:
        """Why this client has ended; None while it has not."""
        return self._supervisor.failure or self.cluster.supervisor.failure

    async def start(self, timeout_ms: float | None = None) -> None:
        """Wait until the cluster is known. May be called again. Raises RequestTimeoutError, or `failure`."""
        async with self.ready(timeout_ms):
            pass

    @asynccontextmanager
    async def ready(self, timeout_ms: float | None = None) -> AsyncIterator[Deadline]:
        """A block in which the cluster is known. It ends when the client ends. Raises what `start` raises.

        Its value is the deadline of the call. Waiting for the cluster has already used a part of `timeout_ms`.
        """
        deadline = Deadline(self._timeout_ms if timeout_ms is None else timeout_ms)
        async with self._supervisor.scope():
            await self.cluster.start()
            await self.cluster.ensure_metadata(deadline.left_ms)
            yield deadline

    async def close(self, reason: ClientError) -> None:
        """Every call that waits, and every later call, fails with `reason`. The cluster stays open. Idempotent."""
        self._detach()
        await self._supervisor.close(reason)

    async def repeat(
        self,
        attempt: Callable[[], Awaitable[T]],
        what: str,
        timeout_ms: float | None = None,
        *,
        soon: bool = False,
    ) -> T:
        """Call `attempt` until it succeeds, for `timeout_ms` at most. After a failure ask for metadata again.

        With `soon` the pauses are short, for errors that are over in milliseconds. Raises an error that is not
        retriable, and RequestTimeoutError.
        """
        async with self.ready(timeout_ms) as deadline:
            return await repeat(
                attempt,
                what=what,
                deadline=deadline,
                backoff=short_backoff(self.cluster.rng) if soon else self.cluster.backoff(),
                failed=self._look_again if soon else lambda error: self.cluster.request_update(),
            )

    # one attempt each

    async def ask_controller(self, api: ApiKey, message: tuple[Any, ...]) -> Any:
        """The controller's answer. When the controller is not known, any broker will do: it forwards the request
        (KIP-590)."""
        snapshot = self.cluster.snapshot
        known = snapshot.controller_id in snapshot.nodes
        node_id = snapshot.controller_id if known else self.cluster.least_loaded()
        return await self.cluster.request(node_id, api, message)

    async def ask_coordinator(
        self, kind: CoordinatorKind, key: str, api: ApiKey, message: tuple[Any, ...], *, cap: int | None = None
    ) -> Any:
        """The answer of a group's or a transactional id's coordinator. The caller has to give its error codes to
        `coordinators.check`."""
        return await self.coordinators.request(kind, key, api, message, cap=cap)

    async def ask_all_brokers(self, api: ApiKey, message: tuple[Any, ...]) -> list[Any]:
        """Every broker's answer."""
        return await together(self.cluster.request(node_id, api, message) for node_id in self.cluster.snapshot.nodes)

    async def leader(self, tp: TopicPartition) -> int:
        """Node id of a partition's leader. Raises a retriable error while there is none."""
        with self.cluster.tracking([tp.topic]):
            if self.cluster.snapshot.leader(tp) == NO_LEADER:
                await self.cluster.refreshed()
            leader = self.cluster.snapshot.leader(tp)
            if leader == NO_LEADER:
                code = self.cluster.snapshot.topic_errors.get(tp.topic, ErrorCode.LEADER_NOT_AVAILABLE)
                raise KafkaError.of(code, str(tp))
            return leader

    # inside

    def _look_again(self, error: ClientError) -> None:
        # No broker has answered, or one that does not lead the partition, whether it knows that or not: perhaps the
        # cluster has changed. Coordinators are looked up elsewhere.
        if not isinstance(error, KafkaError) or error.code in _LED_ELSEWHERE:
            self.cluster.request_update()


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all calls at once; their results, in order. When one call fails, cancel the others and raise its error.

    In a task of its own: Python 3.11's group leaves the cancellation by which it has ended on the task it runs in, and
    a caller's `asyncio.timeout` would take that for one from outside.
    """
    return await asyncio.get_running_loop().create_task(_together(calls))


async def _together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    first: Exception
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failed:
        first = failed.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise first


def only(answers: Sequence[T], what: str) -> T:
    """The first of `answers`; a request about one thing has one. Raises IncompleteAnswerError if there is none."""
    if not answers:
        raise IncompleteAnswerError(f"the broker's answer says nothing about {what}")
    return answers[0]
