"""The crash matrix (T13): kill -9 of programs, of the broker at a durable step, and of its cleaner.

The cells are {idempotent, transactional, consume–transform–produce} × {confluent-kafka, Java, ours}. In each of them
everybody is killed, and the cleaner works, on a compacted topic beside and on the coordinators' own. A reader that is
not ours counts. The long form writes and copies 1,000,000 records.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import Admin
from tests.chaos.load import Keys, make_small, markers_are_written, values_of
from tests.chaos.matrix.lives import Lives, TransactionalMessageCopier, VerifiableProducer
from tests.chaos.matrix.programs import A_LIFE, GROUP, PARTITIONS, SINK, SOURCE, TXN_RECORDS
from tests.chaos.mortal.broker import MortalBroker
from tests.chaos.mortal.steps import Death, Moment, has_half
from tests.chaos.outages import chaos_seeds

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("apache_jars")]

_CONFIG = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "10",
    "log.cleaner.min.cleanable.ratio": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
_COMPACTED = {"internal.segment.bytes": "4000", "cleanup.policy": "compact", "delete.retention.ms": "100"}
#: The short form has the second half.
_CELLS = (
    "confluent_idempotent",
    "ours_idempotent",
    "ours_transactional",
    "confluent_copier",
    "java_idempotent",
    "confluent_transactional",
    "ours_copier",
    "java_copier",
)
#: Records of a cell, and faults, in the long form and in the short one.
_LONG, _SHORT = (125_000, 18), (1_500, 3)
#: Steps at which a broker dies; the last two only where there are transactions, or groups.
_BROKER_STEPS = (
    "pwritev out/.log",
    "fdatasync out/.log",
    "replace /recovery-point-offset-checkpoint.tmp",
    "pwritev __transaction_state/.log",
    "pwritev __consumer_offsets/.log",
)
_CLEANER_STEPS = (
    "pwritev keys/.log.cleaned",
    "replace keys/.log.cleaned",
    "replace keys/.log.swap",
    "unlink keys/.log",
)
_DEATH_S, _STALLED_S = 15.0, 300.0


class _Cell:
    """One cell: its broker, its programs, and the faults that come upon them."""

    def __init__(self, cell: str, records: int, faults: int, seed: int, folder: Path) -> None:
        self.cell, self.records = cell, records
        self._faults, self._draw = faults, random.Random(f"{cell} {seed}")
        self._folder = folder
        (folder / "traces").mkdir()
        self.broker = MortalBroker(_CONFIG, folder / "traces", folder / "data")
        assert self.broker.begin_life(None)
        self.bootstrap = self.broker.bootstrap_servers
        self._stop = threading.Event()
        self.keys = Keys(self.bootstrap, self._stop)
        self.programs: list[Lives] = []
        self.deaths: Counter[str] = Counter()

    @property
    def copies(self) -> bool:
        return self.cell.endswith("copier")

    def run(self) -> None:
        """Begin, carry out the faults, let everybody finish."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        ends = [NewTopic(name, PARTITIONS, 1) for name in (SOURCE, SINK)]
        topics = [*ends, NewTopic("keys", 1, 1, config=_COMPACTED)]
        for made in admin.create_topics(topics).values():
            made.result()
        if self.copies:
            self._fill()
        self.programs = self._started()
        others = threading.Thread(target=self.keys.run, daemon=True)
        others.start()
        self._wait_for(1)
        if not self.cell.endswith("idempotent"):
            make_small(admin, "__transaction_state")
        for number in range(1, self._faults + 1):
            self._wait_for(self.records * number // (self._faults + 1))
            self._fault()
        self._wait_for(self.records)
        for program in self.programs:
            program.finish()
        self._stop.set()
        others.join()

    def _started(self) -> list[Lives]:
        match self.cell:
            case "java_idempotent":
                return [VerifiableProducer("VerifiableProducer", self.bootstrap, "java", self._folder)]
            case "java_copier":
                names = [f"java-{number}" for number in range(PARTITIONS)]
                tool = "TransactionalMessageCopier"
                return [TransactionalMessageCopier(tool, self.bootstrap, name, self._folder) for name in names]
            case _:
                return [Lives(self.cell, self.bootstrap, f"{self.cell}-{n}", self._folder) for n in range(2)]

    def _fill(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for value in range(self.records):
            producer.produce(SOURCE, b"%d" % value, partition=value % PARTITIONS)
            if value % 10_000 == 0:
                producer.flush()
        assert producer.flush(60) == 0

    def _fault(self) -> None:
        victim = self._draw.choice(("producer", "broker", "cleaner"))
        if victim == "producer":
            self._draw.choice(self.programs).kill()
            self.deaths[victim] += 1
            return
        step = self._draw.choice(_CLEANER_STEPS if victim == "cleaner" else self._broker_steps)
        moment = self._draw.choice([each for each in Moment if each is not Moment.HALF or has_half(step)])
        self.broker.kill()
        death = Death(step, self._draw.randint(1, 5), moment)
        has_died = not self.broker.begin_life(death) or self.broker.wait_for_death(_DEATH_S)
        self.deaths[f"{victim}{'' if has_died else ', elsewhere'}"] += 1
        self.broker.kill()
        assert self.broker.begin_life(None)

    @property
    def _broker_steps(self) -> Sequence[str]:
        idle = 0 if self.copies else 1 if self.cell.endswith("transactional") else 2
        return _BROKER_STEPS[: len(_BROKER_STEPS) - idle]

    def _wait_for(self, records: int) -> None:
        """Until so many records are written, or copied."""
        last, since_s = -1, time.monotonic()
        while (done := self.done()) < records:
            if done != last:
                last, since_s = done, time.monotonic()
            if time.monotonic() - since_s > _STALLED_S:
                for program in self.programs:
                    program.say_where()
                pytest.fail(f"{self.cell} stands still at {done} of {records}; where its programs stand is above")
            for program in self.programs:
                program.go_on()
            self._stop.wait(0.05)

    def done(self) -> int:
        """Records that are written, or copied. (What a copier was not told of counts, too.)"""
        if self.copies:
            return self._copied()
        told = Counter(what for program in self.programs for what, _ in program.told())
        return told["acked"] + TXN_RECORDS * told["committed"]

    def _copied(self) -> int:
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            return sum(each.offset for each in admin.list_group_offsets(GROUP).values())

    # the count

    def judge(self) -> None:
        """Hold what was told against what a reader of committed records finds."""
        markers_are_written(self.bootstrap)
        found = values_of(self.bootstrap, SINK, PARTITIONS)
        everything = [value.decode() for values in found.values() for value in values]
        twice = [value for value, count in Counter(everything).items() if count > 1]
        assert twice == [], f"written twice: {twice[:5]}"
        told = [each for program in self.programs for each in program.told()]
        if self.copies:
            self._judge_copy(everything)
        elif self.cell.endswith("transactional"):
            self._judge_transactions(everything, told)
            self._judge_order(found)
        else:
            lost = {value for what, value in told if what == "acked"} - set(everything)
            assert lost == set(), f"lost: {sorted(lost)[:5]}"
            self._judge_order(found)
        self.keys.judge()

    def _judge_copy(self, everything: Sequence[str]) -> None:
        """Each record once, those of a partition in their order."""
        for number in range(PARTITIONS):
            copied = [int(value) for value in everything if int(value) % PARTITIONS == number]
            assert copied == list(range(number, self.records, PARTITIONS)), "lost, or not in order"

    def _judge_transactions(self, everything: Sequence[str], told: Sequence[tuple[str, str]]) -> None:
        """What was committed is whole, what was aborted is not there; the rest is whole or not there."""
        whole = Counter(value.rpartition(":")[0] for value in everything)
        outcomes = {txn: what for what, txn in told}
        assert {txn: count for txn, count in whole.items() if count != TXN_RECORDS} == {}, "torn"
        assert {txn for txn, what in outcomes.items() if what == "committed"} - whole.keys() == set(), "lost"
        assert {txn for txn, what in outcomes.items() if what == "aborted"} & whole.keys() == set(), "aborted, and read"

    def _judge_order(self, found: dict[int, list[bytes]]) -> None:
        """What one life has written to a partition is there in the order in which it was sent."""
        for values in found.values():
            by_life: defaultdict[tuple[str, int], list[tuple[int, ...]]] = defaultdict(list)
            for value in values:
                name, *texts = value.decode().replace(".", ":").split(":")
                numbers = tuple(map(int, texts))
                by_life[name, numbers[0] // A_LIFE].append(numbers)
            for life, numbered in by_life.items():
                assert numbered == sorted(numbered), f"what {life} has sent is not in order"


@chaos_seeds(1)
@pytest.mark.parametrize("cell", [*(pytest.param(cell, marks=pytest.mark.slow) for cell in _CELLS[:4]), *_CELLS[4:]])
def test_t13_crash_matrix(cell: str, seed: int, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    records, faults = _SHORT if "not slow" in pytestconfig.getoption("-m") else _LONG
    wanted = _Cell(cell, records, faults, seed, tmp_path)
    try:
        wanted.run()
        wanted.judge()
        lives = {each.name: each.lives for each in wanted.programs}
        print(f"{cell}: {wanted.done()} records; killed: {dict(wanted.deaths)}; lives: {lives}")
    finally:
        for program in wanted.programs:
            program.end()
        wanted.broker.close()
