"""Assignors of the server's side: finding those that are configured, and running them beside the event loop.

An assignor that a user wrote may be slow, or hang. So it runs in a thread with a time limit, and groups go on with the
target that they have. A call that is over time gets an exception in its thread, which ends a loop without an end: it
would take the event loop's time for ever. Python cannot end one that waits outside of Python code, for a lock or a
socket say: it keeps its thread until it comes back. It takes no place from others, but an assignor with too many such
calls is not called again until one of them is back, which the log says each time. The end of the process does not wait
for them.
"""

import asyncio
import ctypes
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from importlib import import_module
from typing import Final, ParamSpec, TypeVar, cast

from ottla.assign.server import BUILT_IN, AssignorError, GroupSpec, Partitions, ServerAssignor, checked, unfit
from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import ConfigError
from ottla.base.limits import MAX_ASSIGNOR_THREADS, MAX_ASSIGNOR_TIME_S, MAX_LOST_ASSIGNOR_CALLS
from ottla.base.words import one_line
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.quiet import Quiet
from ottla.broker.runtime.partitions import Partitions as LogPartitions
from ottla.broker.runtime.shard import ShardRunner
from ottla.coordinator.decision import AssignPartitions, Effect, ReportFault
from ottla.coordinator.group.shard import GroupShard

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")

_KEY: Final = "group.consumer.assignors"
#: What an assignor may say of itself.
_SETTINGS: Final = ("wants_lags", "every_partition")
#: Apache Kafka's classes, which its `server.properties` may name.
_JAVA: Final[Mapping[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def server_assignors(names: Iterable[str]) -> dict[str, ServerAssignor]:
    """The configured assignors by their own names, in order: `uniform`, `range`, or `module:Class` in Python.

    Raises ConfigError that says which one cannot be used and why.
    """
    found: dict[str, ServerAssignor] = {}
    for name in names:
        known = BUILT_IN.get(_JAVA.get(name, name))
        assignor = known() if known is not None else _load(name)
        if assignor.name in found:
            raise ConfigError(f"{_KEY}: two assignors have the name {assignor.name!r}")
        found[assignor.name] = assignor
    return found


def _load(name: str) -> ServerAssignor:
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise ConfigError(
            f"{_KEY}: no assignor {name!r}; there are {', '.join(BUILT_IN)}, and module:Class for one in Python"
        )
    try:
        made = getattr(import_module(module), attribute)()
        problem = unfit(made)
        for setting in _SETTINGS:  # properties that raise are told now, and not in the middle of a group's change
            getattr(made, setting, None)
    except (Exception, SystemExit) as fault:
        text = f"{_KEY}: {name} cannot be used: {_words(fault)}"
        if isinstance(fault, ModuleNotFoundError) and f"{module}.".startswith(f"{fault.name}."):
            text += "; install it, or put its directory on the broker's PYTHONPATH"
        raise ConfigError(text) from fault
    if problem is not None:
        raise ConfigError(f"{_KEY}: {name} {problem}")
    return cast(ServerAssignor, made)


class _OverTimeError(BaseException):
    """What a call that is over time gets in its thread. No `except Exception` of an assignor stops it."""


class _Call(Executor):
    """Runs one call in a thread of its own, for which the end of the process does not wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The thread, as long as the call may be ended.
        self._at_work: int | None = None
        self._is_over = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        done: Future[_T] = Future()

        def run() -> None:
            try:
                with self._lock:
                    if self._is_over:
                        raise _OverTimeError
                    self._at_work = threading.get_ident()
                try:
                    computed = fn(*args, **kwargs)
                finally:
                    with self._lock:  # from here on nobody interrupts
                        self._at_work = None
            except BaseException as fault:  # noqa: BLE001 - whoever waits gets it
                done.set_exception(fault)
            else:
                done.set_result(computed)

        threading.Thread(target=run, name="assignor", daemon=True).start()
        return done

    def end(self) -> None:
        """Let the call end at its next step in Python code, if it is still at work."""
        with self._lock:
            self._is_over = True
            if self._at_work is not None:
                thread = ctypes.c_ulong(self._at_work)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_OverTimeError))


class Assigning:
    """Carries out `AssignPartitions`. A call of an assignor may take `limit_s` seconds."""

    def __init__(
        self,
        image: MetadataImage,
        partitions: LogPartitions,
        *,
        limit_s: float = MAX_ASSIGNOR_TIME_S,
        clock: Clock | None = None,
    ) -> None:
        self._image = image
        self._partitions = partitions
        self.limit_s = limit_s
        #: Any client may have a group whose generation is too large for the log, and as many groups as it likes.
        self._quiet = Quiet(clock or SystemClock())
        self._places = asyncio.Semaphore(MAX_ASSIGNOR_THREADS)
        #: Calls that are over time and have not come back, by the assignor's name.
        self._lost: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, runner: ShardRunner[GroupShard], effect: Effect) -> None:
        """Compute the assignment; the shard is told when it is done, or why it is not. A fault is logged."""
        if isinstance(effect, ReportFault):
            more = self._quiet.turn(type(effect.fault).__name__)
            if more is not None:
                _log.error("%s%s", one_line(effect.what), more, exc_info=effect.fault)
            return
        assert isinstance(effect, AssignPartitions)
        if getattr(effect.assignor, "wants_lags", False):
            effect = effect._replace(spec=effect.spec._replace(lags=self._lags(runner.shard, effect)))
        task = asyncio.get_running_loop().create_task(self._run(runner, effect), name=f"assign {effect.group_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, runner: ShardRunner[GroupShard], job: AssignPartitions) -> None:
        computed: Mapping[str, Partitions] | None = None
        try:
            async with self._places:
                computed = await self._computed(job)
        except AssignorError as fault:
            self._tell(job, str(fault))
        except Exception as fault:  # noqa: BLE001 - logged; it is the user's code
            self._tell(job, _words(fault), fault)
        runner.tell(lambda now_ms: runner.shard.assigned(job, computed, now_ms))

    async def _computed(self, job: AssignPartitions) -> Mapping[str, Partitions]:
        """What the assignor answers in time; AssignorError when it does not, or when it is not asked any more."""
        name = job.assignor.name
        if self._lost[name] >= MAX_LOST_ASSIGNOR_CALLS:
            raise AssignorError(
                f"it is not called, because {self._lost[name]} calls of it have not come back; it is called again when "
                "one of them is back, or when the broker starts again"
            )
        call = _Call()
        work = asyncio.get_running_loop().run_in_executor(call, _compute, job.assignor, job.spec)
        done, _ = await asyncio.wait((work,), timeout=self.limit_s)
        if not done:
            self._lost[name] += 1
            work.add_done_callback(lambda back: self._came_back(name, back))
            call.end()
            raise AssignorError(f"it took more than {self.limit_s} s")
        return work.result()

    def _came_back(self, name: str, work: asyncio.Future[Mapping[str, Partitions]]) -> None:
        self._lost[name] -= 1
        if not work.cancelled():
            work.exception()  # it is too late for what came out, and for what went wrong

    def _tell(self, job: AssignPartitions, problem: str, fault: BaseException | None = None) -> None:
        _log.error(
            "group %s keeps the target assignment that it has: assignor %s failed for epoch %d: %s",
            job.group_id,
            job.assignor.name,
            job.epoch,
            problem,
            exc_info=fault,
        )

    def _lags(self, shard: GroupShard, job: AssignPartitions) -> dict[bytes, dict[int, int]]:
        """How far the group is behind in each partition that it has committed an offset for."""
        lags: dict[bytes, dict[int, int]] = {}
        for topic, offsets in shard.committed(job.group_id).items():
            topic_id = self._image.topic_id(topic)
            for number, offset in offsets.items():
                partition = self._partitions.find(topic, number)
                if topic_id is not None and partition is not None:
                    lags.setdefault(topic_id, {})[number] = max(partition.log.end_offset - offset, 0)
        return lags


def _compute(assignor: ServerAssignor, spec: GroupSpec) -> Mapping[str, Partitions]:
    """In a thread: ask the assignor, and check what it answers."""
    # It may do with its own what it wants. Members that subscribe alike have one list of topics together.
    members = {each: member._replace(topic_ids=list(member.topic_ids)) for each, member in spec.members.items()}
    own = spec._replace(members=members, topics=dict(spec.topics))
    try:
        return checked(assignor, spec, assignor.assign(own))
    except BaseException as fault:
        if isinstance(fault, Exception) and not isinstance(fault, StopIteration):
            raise
        # These would end the event loop, or could not be handed to it.
        raise AssignorError(f"it raised {type(fault).__name__}") from fault


def _words(fault: BaseException) -> str:
    """What a fault of the user's code says, in a text that this code makes, too."""
    try:
        return f"{type(fault).__name__}: {fault}"
    except BaseException:  # noqa: BLE001 - a group would wait for its target for ever
        return f"{type(fault).__name__}, whose text cannot be made"
