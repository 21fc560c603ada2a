"""Apache Kafka's cleaner, stopped in the middle of its work.

Clients write transactions to compacted partitions with small segments; four threads of Apache Kafka's cleaner, slowed
down, clean them meanwhile. `catch` looks at the folders until there is a file of an unfinished pass. It stops the
process at once (SIGSTOP), looks again, and copies each folder in which a pass is unfinished: a process that is killed
there leaves these files and no others, because nothing of it runs. Then the process goes on, until each kind of state
was seen; at last it is killed (-9), again in the middle of a pass.

A state that lasts for one call of the system is caught rarely. `rest_of` makes those between two caught ones: it
renames the files of a caught swap one by one, in the order in which Apache Kafka does (`LocalLog.replaceSegments`,
`LogSegment.changeFileSuffixes`): the new segment's to `.swap`; each old segment's to `.deleted`; the new one's to their
own names; a segment's log first, then its indexes.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, Producer

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.log.checkpoint import CLEANER_OFFSET_CHECKPOINT, decode_offsets
from ottla.log.names import CLEANED, DELETED, LOG, OFFSET_INDEX, SWAP, TIME_INDEX, TXN_INDEX, base_offset, file_name
from ottla.wire.batch import iter_headers
from tests.interop.apache import ApacheKafka

PARTITIONS: Final = 4
#: So many that what stays of a partition is several segments, and a pass replaces them one after the other.
_KEYS: Final = 600
#: Transactions before the first state is taken: by then each partition was cleaned at least once.
_FIRST: Final = 60
#: More states than this must follow from a swap that was caught: one that was nearly done gives few.
_KILLS: Final = 6
#: How many states of one kind are taken.
_OF_A_KIND: Final = 4
_WAIT_S: Final = 240
_TRY_S: Final = 5.0
SINGLE: Final = "single"
_KINDS: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

BROKER: Final = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.threads": str(PARTITIONS),
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.io.buffer.size": "16384",
    "log.cleaner.io.max.bytes.per.second": "200000",
    "log.initial.task.delay.ms": "100",
}
SETTINGS: Final = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "2000",
    "segment.index.bytes": "2048",
    "index.interval.bytes": "0",
    "min.cleanable.dirty.ratio": "0.0",
    "file.delete.delay.ms": "3000",
}


class State(NamedTuple):
    """A partition's folder as a kill leaves it."""

    folder: Path
    #: `.cleaned`, `.swap`, `.deleted`: those that are there; `single`: one new segment was about to take the place
    #: of one old one (`rest_of` makes more states of that); `constructed`: the files were renamed by us.
    kinds: frozenset[str]
    #: What the cleaner's checkpoint said of the partition at that moment.
    cleaned_offset: int | None


class Traffic:
    """Transactions of both outcomes, with keys, tombstones, headers and all compressions, until `end`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._rng = random.Random(11)
        self._over = threading.Event()
        #: How many transactions have ended.
        self.count = 0
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "transactional.id": each,
                    "compression.type": each,
                    "log_level": 0,  # the broker is about to be killed
                }
            )
            for each in ("none", "gzip", "snappy", "lz4", "zstd")
        ]
        for producer in self._producers:
            producer.init_transactions(60)
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """No more is written. A fault of the thread is raised here; the broker may be dead by now."""
        self._over.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._transaction(self._rng.choice(self._producers))
                self.count += 1
        except (KafkaException, BufferError) as fault:
            self._fault = fault
        finally:
            for producer in self._producers:
                producer.purge()

    def _transaction(self, producer: Producer) -> None:
        rng = self._rng
        producer.begin_transaction()
        for _ in range(rng.randint(4, 60)):
            producer.produce(
                self._topic,
                None if rng.random() < 0.2 else rng.randbytes(rng.randint(0, 80)),
                b"key %d" % rng.randrange(_KEYS),
                partition=rng.randrange(PARTITIONS),
                headers=[("h", rng.choice((None, b"x")))],
            )
        finish = producer.commit_transaction if rng.random() < 0.7 else producer.abort_transaction
        while True:
            try:
                finish(_TRY_S)
            except KafkaException as fault:
                if self._over.is_set():
                    return
                if not fault.args[0].retriable():
                    raise
            else:
                return


def kinds_of(names: list[str]) -> frozenset[str]:
    """Which files of unfinished work there are."""
    found = {suffix for suffix in (CLEANED, SWAP, DELETED) if any(name.endswith(suffix) for name in names)}
    return frozenset(found)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


class Catcher:
    """Takes states of the partitions of `topic` from a node whose cleaner works; they go below `into`."""

    def __init__(self, kafka: ApacheKafka, topic: str, traffic: Traffic, into: Path) -> None:
        self._kafka = kafka
        self._traffic = traffic
        self._folders = [kafka.data_dir / f"{topic}-{number}" for number in range(PARTITIONS)]
        self._topic = topic
        self._into = into
        self.states: list[State] = []
        self.seen: Counter[frozenset[str]] = Counter()
        self._has_single = False

    def catch(self) -> None:
        """Until `.cleaned`, `.swap` and `.deleted` were caught often enough; then kill -9 in the middle of a pass."""
        self._until(self._has_begun)
        self._until(self._has_enough)
        self._until(self._was_killed)

    def _has_begun(self) -> bool:
        self._kafka.tick()
        return self._traffic.count >= _FIRST and all(each is not None for each in map(self._cleaned, range(PARTITIONS)))

    def _has_enough(self) -> bool:
        """Take the states of this moment if one of them is wanted; whether none is wanted any more."""
        if self._wanted():
            self._kafka.suspend()
            for number in self._wanted():
                self._take(number)
            self._kafka.resume()
        of_kind = {kind: sum(n for kinds, n in self.seen.items() if kind in kinds) for kind in (CLEANED, SWAP, DELETED)}
        return min(of_kind.values()) >= _OF_A_KIND and self._has_single

    def _was_killed(self) -> bool:
        """Kill the node if a pass is in its middle, and take what it leaves of all partitions."""
        if not any(CLEANED in kinds_of(_names(folder)) for folder in self._folders):
            return False
        self._kafka.suspend()
        if not any(CLEANED in kinds_of(_names(folder)) for folder in self._folders):
            self._kafka.resume()
            return False
        self._kafka.kill9()
        for number in range(PARTITIONS):
            self._take(number)
        return True

    def _wanted(self) -> list[int]:
        found = ((number, kinds_of(_names(folder))) for number, folder in enumerate(self._folders))
        return [
            number
            for number, kinds in found
            if kinds and (self.seen[kinds] < _OF_A_KIND or (SWAP in kinds and not self._has_single))
        ]

    def _take(self, number: int) -> None:
        folder = self._into / f"caught-{len(self.states)}"
        shutil.copytree(self._folders[number], folder)
        kinds = kinds_of(_names(folder))
        self.seen[kinds] += 1
        swap = swap_of(folder)
        if swap is not None and swap.kills > _KILLS:
            kinds |= {SINGLE}
            self._has_single = True
        self.states.append(State(folder, kinds, self._cleaned(number)))

    def _cleaned(self, number: int) -> int | None:
        known: dict[TopicPartition, int] = {}
        with suppress(OSError, CorruptDataError):  # it is empty at first
            known = decode_offsets((self._kafka.data_dir / CLEANER_OFFSET_CHECKPOINT).read_bytes())
        return known.get(TopicPartition(self._topic, number))

    def _until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not is_done():
            assert time.monotonic() < deadline, f"seen in {_WAIT_S} s: {self.seen}"


class Swap(NamedTuple):
    """One old segment that was being replaced by a new one with its base offset: the files that either has."""

    new: list[str]
    old: list[str]
    #: Those of `old` that were renamed to `.deleted`.
    done: list[str]

    @property
    def kills(self) -> int:
        """How many other states a kill between its renames can leave (`rest_of`)."""
        return 2 * len(self.new) + len(self.old) - 2


def swap_of(folder: Path) -> Swap | None:
    """The folder's swap of one segment by one, before the new log got its name; None: there is none like that."""
    names = _names(folder)
    for base in (found for found in (base_offset(name, LOG + SWAP) for name in names) if found is not None):
        files = [file_name(base, kind) for kind in _KINDS]
        headers = iter_headers((folder / f"{files[0]}{SWAP}").read_bytes(), strict=True)
        end_offset = max((header.last_offset + 1 for _, header in headers), default=base + 1)
        segments = (base_offset(name.removesuffix(DELETED), LOG) for name in names)
        alone = not any(base < each < end_offset for each in segments if each is not None)
        # An earlier pass may have left a `.txnindex.deleted` of the same name, of which nobody knows whose it is.
        if alone and files[-1] + DELETED not in names:
            old = [name for name in files if name in names or name + DELETED in names]
            return Swap(
                [name for name in files if name + SWAP in names], old, [name for name in old if name not in names]
            )
    return None


def rest_of(state: State, into: Path) -> Iterator[State]:
    """What a kill at each rename of a state's swap leaves, but for the one that was caught."""
    swap = swap_of(state.folder)
    assert swap is not None
    back = [(name + DELETED, name) for name in swap.done]
    for count in range(1, len(swap.new)):
        steps = [*back, *((name + SWAP, name + CLEANED) for name in swap.new[count:])]
        yield _renamed(state, into / f"announced-{count}", steps)
    rest = [(name, name + DELETED) for name in swap.old] + [(name + SWAP, name) for name in swap.new]
    for count in range(len(rest)):
        if count != len(swap.done):
            yield _renamed(state, into / f"replaced-{count}", [*back, *rest[:count]])


def _renamed(state: State, folder: Path, steps: list[tuple[str, str]]) -> State:
    shutil.copytree(state.folder, folder)
    for name, to in steps:
        (folder / name).rename(folder / to)
    return State(folder, kinds_of(_names(folder)) | {"constructed"}, state.cleaned_offset)
