"""The broker dies at every durable step of coordinators, log and cleaner: before, in the middle of, and after it (T13).

A first life, which nothing kills, shows which steps there are. Then each is the death of a life, beside a load:
transactions, a reader that commits, keys of a compacted topic, topics that come and go. Some lives have a directory
together, which is judged behind the last of them. (On one directory for all, a start would take longer each time.)
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import TopicPartition
from ottla.testing import History
from tests.chaos.load import PARTITIONS, Churn, Keys, Reader, Worker, judge, make_small, none_is_open
from tests.chaos.mortal.broker import MortalBroker
from tests.chaos.mortal.steps import Death, Moment, has_half
from tests.chaos.outages import chaos_seeds
from tests.recording.final import assert_good, note_logs, note_positions

pytestmark = pytest.mark.chaos

_CONFIG = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "10",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.retention.check.interval.ms": "500",
    "log.flush.interval.ms": "200",
    "log.flush.scheduler.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
_SMALL = {"internal.segment.bytes": "20000"}
_COMPACTED = {
    "internal.segment.bytes": "4000",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "100",
}
#: How long a life goes on that does not come to its death; and where every step has to be come to at last.
_LIFE_S, _LONG_LIFE_S = 10.0, 90.0
#: How many lives a directory has.
_LIVES = 30
#: Steps that a run has to know: one for each that may lose or tear something. (Others are found; these must be.)
_KNOWN = {
    "pwritev __transaction_state/.log",
    "pwritev __consumer_offsets/.log",
    "pwritev __cluster_metadata/.log",
    "pwritev t/.log",
    "pwritev t/.txnindex",
    "open t/.log",
    "replace t/.snapshot.tmp",
    "fdatasync t/.log",
    "replace /recovery-point-offset-checkpoint.tmp",
    "replace /ottla-manifest.tmp",
    "replace /cleaner-offset-checkpoint.tmp",
    "open keys/.log.cleaned",
    "pwritev keys/.log.cleaned",
    "replace keys/.log.cleaned",
    "replace keys/.log.swap",
    "unlink keys/.log",
    "replace __transaction_state/.log.swap",
    "mkdir churn/",
    "unlink churn/.log",
    "rmdir churn/",
}


class _Load:
    """Everybody who uses the broker, until the end."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap, self._history = bootstrap, History()
        self._ended, self._stop = threading.Semaphore(0), threading.Event()
        self._workers = [Worker(n, bootstrap, seed, self._ended, self._stop, self._history) for n in range(3)]
        self._keys, self._churn = Keys(bootstrap, self._stop), Churn(bootstrap, self._stop)
        self._reader = Reader(bootstrap, self._history)
        loops = [*(each.run for each in self._workers), self._keys.run, self._churn.run]
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in loops]

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Meanwhile they work."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()

    def wait_for_transactions(self, count: int) -> None:
        """So many more have ended."""
        for _ in range(count):
            assert self._ended.acquire(timeout=60), "no transaction has ended for a minute"

    def judge(self) -> None:
        """Hold what they were told against what is there."""
        for thread in self._threads:
            thread.join()
        none_is_open(self._workers)
        partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
        logs = note_logs(self._history, self._bootstrap, {"t": PARTITIONS})
        self._reader.finish({tp.partition: max(r.offset for r in log if r.visible) for tp, log in logs.items()})
        self._history.drained(self._reader.group, partitions)
        note_positions(self._history, self._bootstrap, self._reader.group)
        assert_good(self._history)
        judge(self._workers, self._bootstrap)
        self._keys.judge()
        self._churn.judge()


def _deaths(steps: Counter[str], draw: random.Random, chosen: Sequence[str] | None) -> list[Death]:
    """One for each step and each moment, in a drawn order."""
    deaths = []
    for step, count in sorted(steps.items()):
        if chosen is None or step in chosen:
            moments = list(Moment) if has_half(step) else [Moment.BEFORE, Moment.AFTER]
            deaths += [Death(step, draw.randint(1, min(count, 8)), moment) for moment in moments]
    draw.shuffle(deaths)
    return deaths


def _first_life(broker: MortalBroker, load: _Load) -> Counter[str]:
    """The steps of a life that nothing ends but the operator, and of the start after it.

    What comes once in the life of a directory is not among them: topics are made by others, too (`Churn`).
    """
    once = broker.steps()
    for _ in range(100):
        load.wait_for_transactions(20)
        if broker.steps().keys() >= _KNOWN:
            break
    broker.stop()
    steps = broker.steps()
    assert steps.keys() >= _KNOWN, f"the load does not come to {sorted(_KNOWN - steps.keys())}"
    assert broker.begin_life(None)
    load.wait_for_transactions(30)
    broker.stop()
    return steps - once + broker.steps()


def _all_lives(broker: MortalBroker, deaths: Sequence[Death], life_s: float = _LIFE_S) -> Counter[str]:
    """Let it die at each of them; how often it has died at which step."""
    died: Counter[str] = Counter()
    for number, death in enumerate(deaths, 1):
        has_come_up = broker.begin_life(death)
        if not has_come_up or broker.wait_for_death(life_s):
            died[death.step] += 1
        else:
            broker.stop()  # some steps are those of a shutdown
            died[death.step] += broker.has_died
        print(f"{number} of {len(deaths)}: {death}{'' if broker.has_died else ', but did not come to it'}")
    return died


@contextmanager
def _directory(folder: Path, seed: int) -> Iterator[tuple[MortalBroker, _Load]]:
    """A new one, with a broker that runs and everybody who uses it. It is judged at the end, by a last life."""
    (folder / "traces").mkdir(parents=True)
    broker = MortalBroker(_CONFIG, folder / "traces", folder / "data")
    assert broker.begin_life(None)
    with _closed(broker):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        topics = [NewTopic("t", PARTITIONS, 1, config=_SMALL), NewTopic("keys", 1, 1, config=_COMPACTED)]
        for made in admin.create_topics(topics).values():
            made.result()
        load = _Load(broker.bootstrap_servers, seed)
        with load.going_on():
            load.wait_for_transactions(10)
            make_small(admin, "__transaction_state", "__consumer_offsets")
            yield broker, load
            assert broker.begin_life(None)
            load.wait_for_transactions(10)
        load.judge()


def _some_lives(folder: Path, seed: int, deaths: Sequence[Death], life_s: float = _LIFE_S) -> Counter[str]:
    """Lives on several directories, each of which is judged behind its last one."""
    died: Counter[str] = Counter()
    for begin in range(0, len(deaths), _LIVES):
        print(f"{begin} of {len(deaths)} lives are judged")
        with _directory(folder / str(begin), seed) as (broker, load):
            load.wait_for_transactions(20)
            broker.stop()
            died += _all_lives(broker, deaths[begin : begin + _LIVES], life_s)
    return died


@chaos_seeds(1, slow=[2])
def test_t13_the_broker_dies_at_its_durable_steps(tmp_path: Path, seed: int, pytestconfig: pytest.Config) -> None:
    draw = random.Random(seed)
    is_short = "not slow" in pytestconfig.getoption("-m")
    with _directory(tmp_path / "0", seed) as (broker, load):
        steps = _first_life(broker, load)
        deaths = _deaths(steps, draw, draw.sample(sorted(_KNOWN), 5) if is_short else None)
        died = _all_lives(broker, deaths[:_LIVES])
    died += _some_lives(tmp_path / "more", seed, deaths[_LIVES:])
    # A busy machine does not come to the eighth time of a step in a life: then its first time will do, in a longer one.
    missed = [death for death in deaths if not died[death.step]]
    died += _some_lives(tmp_path / "again", seed, [death._replace(nth=1) for death in missed], _LONG_LIFE_S)
    never = {death.step for death in deaths} - {step for step, times in died.items() if times}
    print(f"{sum(died.values())} deaths of {len(deaths)} lives; nobody died at {sorted(never)}")
    assert not never & _KNOWN, f"no life has died at {sorted(never)}"


@contextmanager
def _closed(broker: MortalBroker) -> Iterator[None]:
    """It is gone at the end, whatever happens."""
    try:
        yield
    finally:
        broker.close()
