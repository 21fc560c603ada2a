"""The real broker in a simulated world: one process on one machine, which is killed, frozen, and loses its power."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import NoReturn

from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.broker.app import BrokerApp
from ottla.broker.config import BrokerConfig
from ottla.broker.metadata.names import GROUP_TOPIC, TRANSACTION_TOPIC
from ottla.broker.ports.topics import NewTopic
from ottla.broker.runtime.partition import Partition
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.txn.shard import TransactionShard
from ottla.log.checkpoint import RECOVERY_POINT_CHECKPOINT, decode_offsets
from ottla.log.names import LOG, file_name
from ottla.log.partition import PartitionLog
from ottla.wire.errors import ErrorCode
from sim import settings
from sim.check import Anomaly, LogRecord, Told, committed_records, records_of
from sim.clock import MachineClock
from sim.cluster.log import Entry
from sim.commits import Lives, positions_in, watch
from sim.damage import Damage, Heard, listening
from sim.deletions import Deletions, files_of
from sim.disk import SimDisk
from sim.epochs import Epochs
from sim.history import History
from sim.loop import HOST, SimLoop
from sim.losses import Losses, missing, new_records, taken_by_power
from sim.network import Network
from sim.recall import Shard, forgotten, watch_loads
from sim.repairs import Operator
from sim.steps import Fuse, Place, ProcessDied

MACHINE = "b1"
_PORT = 9092
INTERNAL = (GROUP_TOPIC, TRANSACTION_TOPIC)
#: Files that are changed seldom.
_SELDOM = (".cleaned", ".swap", ".snapshot", "index", "checkpoint", "manifest", ".deleted", "acknowledged")


class House:
    """See the module."""

    def __init__(self, loop: SimLoop, network: Network, history: History, rng: random.Random) -> None:
        self.loop = loop
        self.network = network
        self.history = history
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.disk = SimDisk()
        self.disk.rng = rng
        self.clock = MachineClock(loop)
        self.life = 0
        self.config = settings.of_the_broker(rng, MACHINE, _PORT)
        self.app: BrokerApp | None = None
        self._dead: list[BrokerApp] = []
        #: Records that a loss of power has taken, by value.
        self.lost: set[str] = set()
        self._topic_configs: dict[str, str] = {}
        self._known = Lives()
        self._epochs = Epochs()
        #: The coordinators' shards that have read their logs.
        self._group_shards: dict[TopicPartition, GroupShard] = {}
        self._transaction_shards: dict[TopicPartition, TransactionShard] = {}
        self.anomalies: list[Anomaly] = []
        self._before: dict[TopicPartition, list[LogRecord]] = {}
        #: Whether everything is on the device before it is acknowledged.
        self.keeps_all = False
        #: Whether the machine may lose its power, and its disk may refuse what is in the log already.
        self.loses_power = False
        #: Whether files are damaged here: then their batches are read as far as they are whole.
        self.has_damage = False
        self.damages: list[Damage] = []
        self.losses = Losses()
        self.deletions = Deletions(history)
        self._cluster_id: str | None = None
        self._has_refused = False
        self._operator = Operator(self.losses)
        #: Done when the process has died at a step (`arm`).
        self.died: asyncio.Future[None] = loop.create_future()
        #: Whether a dead process may have left half a batch, which no start has cut off yet.
        self._is_torn = False

    def flush_before_answers(self, messages: str | None) -> None:
        """Let `log.flush.interval.messages` be so many. With 1, no loss of power takes what was acknowledged."""
        if messages is not None:
            self.config["log.flush.interval.messages"] = messages
        self.keeps_all = messages == "1"

    def clean(self, rng: random.Random) -> None:
        """Let the coordinators' logs be cleaned, often or seldom; not where a start must find all that was there."""
        self.config |= {"log.cleaner.enable": "false"} if self.has_damage else settings.of_the_cleaner(rng)

    def compact(self, rng: random.Random) -> None:
        """Let the users' topics be compacted, in some worlds; each record has a key of its own, and stays."""
        if rng.random() < 0.5:
            self._topic_configs = settings.of_a_compacted_topic(rng)

    def delete(self, rng: random.Random) -> Deletions:
        """Let users delete records, and retention in some worlds."""
        self.config["log.retention.check.interval.ms"] = rng.choice(("500", "5000"))
        self._topic_configs = settings.of_a_short_topic(rng)
        return self.deletions

    def deleted_below(self, tp: TopicPartition) -> int:
        """Records below this offset may have been deleted."""
        return self.deletions.deleted_below(tp)

    @property
    def compacts(self) -> bool:
        """See `compact`."""
        return self._topic_configs.get("cleanup.policy") == "compact"

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers`."""
        return f"{MACHINE}:{_PORT}"

    @property
    def host(self) -> str:
        """The process that runs now."""
        return f"{MACHINE}.{self.life}"

    @property
    def rules(self) -> str:
        """What is told of this world in its table."""
        return ", ".join(f"{key}={value}" for key, value in {**self.config, **self._topic_configs}.items())

    def note(self, what: str, text: str = "") -> None:
        """Something happened to the broker."""
        self.counts[what] += 1
        self.history.add("broker", what, text)

    async def start(self) -> None:
        """Start the process."""
        if self.has_damage:
            await self._start_watched(None)
        else:
            await self._start()

    async def _start(self) -> None:
        self.life += 1
        context = copy_context()
        context.run(HOST.set, self.host)
        self.app = BrokerApp(
            BrokerConfig(self.config), self.clock, disk=self.disk, rng=random.Random(f"{self.rng.random()}")
        )
        await asyncio.create_task(self._loaded(self.app), context=context, name=self.host)

    async def _loaded(self, app: BrokerApp) -> None:
        content = self.disk.own_files().read(RECOVERY_POINT_CHECKPOINT)
        checkpointed = decode_offsets(content) if content and not self.has_damage else {}
        await app.start()
        self._watch_logs()
        if app.node is not None:
            watch(app.node.groups, partial(self.history.add, "broker"), self._known)
            if not (self.has_damage or self.loses_power):
                watch_loads(app.node.groups, self._group_shards, self._recall)
                watch_loads(app.node.transactions, self._transaction_shards, self._recall)
        await app.loaded()
        self._is_torn = False
        self.note("ready", f"life {self.life}")
        self.anomalies += self.deletions.check(self._logs())
        self.anomalies += self._epochs.look(() if self.has_damage else self._partitions(), self._entries)
        self._compare(checkpointed)

    def arm(self, rng: random.Random) -> None:
        """Let the process die at one of the next steps of its disk; perhaps with its machine, if that loses power."""
        place = rng.choice(tuple(Place))
        dies_with_machine = self.loses_power and place is not Place.WITHIN and rng.random() < 0.5
        died = self.died = self.loop.create_future()

        def die(fuse: Fuse) -> NoReturn:
            self.note("died at a step", str(fuse))
            self.disarm()
            died.set_result(None)
            self._is_torn = True
            (self.lose_power if dies_with_machine else self.kill)()
            raise ProcessDied(str(fuse))

        about = rng.choice(_SELDOM) if rng.random() < 0.5 else ""
        steps = rng.choice((1, 2, 3)) if about else rng.choice((1, 2, 3, 5, 10, 20, 50))
        self.disk.fuse = Fuse(steps, place, rng.random(), about, die)

    def disarm(self) -> None:
        """No step kills the process any more."""
        self.disk.fuse = None

    async def start_or_die(self) -> None:
        """Start the process; `arm` may let it die meanwhile, but not later: then there is no `app`."""
        start = asyncio.ensure_future(self._start())
        await asyncio.wait((start, self.died), return_when=asyncio.FIRST_COMPLETED)
        self.disarm()
        if self.app is None:
            start.cancel()  # what it waits for is dead
        else:
            await start

    def _recall(self, tp: TopicPartition, former: Shard, now: Shard) -> None:
        if HOST.get() != self.host:
            return  # the world is over, and what was killed runs once more (`SimLoop.run_killed_hosts`)
        entries = self._entries(tp)
        for text in forgotten(former, now, entries[-1] if entries else None):
            self.anomalies.append(Anomaly("forgotten", f"{tp}: {text}"))

    async def create_topic(self, name: str, partitions: int) -> None:
        """A topic of the users'."""
        assert self.app is not None
        assert self.app.node is not None
        await self.app.node.topics.create_all([NewTopic(name, partitions, self._topic_configs)])
        self._watch_logs()

    async def add_partition(self, name: str, partitions: int) -> bool:
        """Let the topic have so many partitions. Whether it has them."""
        node = None if self.app is None else self.app.node
        if node is None:
            return False
        refused = await node.topics.grow_all({name: partitions})
        self._watch_logs()
        if not refused:
            self.note("partition added", f"{name} has {partitions}")
        return not refused

    def calm(self) -> None:
        """The faults are over; what the machine's clock says stays."""
        self._end_hanging()

    def healed(self) -> None:
        """Nothing waits for that here."""

    def _end_hanging(self) -> None:
        for text in self._operator.aborts(self.app.node if self.app is not None else None):
            self.note("hanging", text)

    # faults

    def kill(self) -> None:
        """kill -9."""
        self.note("kill")
        self._die()
        self.disk = self.disk.after_kill()

    def lose_power(self) -> None:
        """The machine stops; what it had not synced may be gone."""
        self.note("power lost")
        self._die()
        if not self._before:  # else no start since the last loss of power has come to its end
            # With what was deleted: a file whose name is gone, and not yet on the device, is there again.
            self._before = {
                tp: records_of(self.deletions.with_deleted(tp, self._entries(tp))) for tp in self._partitions()
            }
        self.disk = self.disk.after_power_loss(self.rng)

    async def stop(self) -> None:
        """Stop in order."""
        self.note("stop")
        context = copy_context()
        context.run(HOST.set, self.host)
        if self.app is not None:
            with suppress(StorageError):  # then it is no clean stop
                await asyncio.create_task(self.app.stop(), context=context, name=self.host)
        self._die()
        self.disk = self.disk.after_kill()

    async def start_damaged(self, damage: Damage) -> None:
        """Start on a damaged file. If the broker refuses, the file is put back.

        If it tells that a coordinator's log has lost something, everything is put back. So no client may reach it
        before that is known.
        """
        self.note("damage", str(damage))
        self.damages.append(damage)
        await self._start_watched(damage)

    async def _start_watched(self, damage: Damage | None) -> None:
        before = {tp: self._entries(tp, damage) for tp in self._partitions(internal=True)}
        saved = self.disk.after_kill()
        if damage is not None:
            saved.change(damage.folder, damage.name, damage.before)
        self.network.freeze(MACHINE)
        with listening() as heard:
            await self._start_or_mend(damage)
        self._told(heard)
        self._judge_own(damage, heard)
        hurt = self._explain(before, heard, damage)
        if hurt:
            self.note("put back", ", ".join(map(str, hurt)))
            self._die()
            self.disk = saved
            with listening() as heard:
                await self._start()
            self._told(heard)
        else:
            self._operator.looks(self.app.node if self.app is not None else None)
            self._end_hanging()
        self.network.thaw(MACHINE)

    async def _start_or_mend(self, damage: Damage | None) -> None:
        self._has_refused = False
        try:
            await self._start()
        except StorageError as refusal:
            self._has_refused = True
            self.note("refused to start", str(refusal))
            if damage is None or not damage.is_named_in(str(refusal)):
                self.anomalies.append(Anomaly("silent-damage", f"{damage}: no file is named in: {refusal}"))
            if damage is None:
                raise
            self._die()
            self.disk = self.disk.after_kill()
            self.disk.change(damage.folder, damage.name, damage.before)
            await self._start()

    def _judge_own(self, damage: Damage | None, heard: Heard) -> None:
        """A damaged file of the directory's own is named, and the cluster is the one that it was."""
        found = None if self.app is None or self.app.node is None else self.app.node.identity.cluster_id
        self._cluster_id = self._cluster_id or found
        if found != self._cluster_id:
            text = f"{damage}: the broker says it is of cluster {found}, and was of {self._cluster_id}"
            self.anomalies.append(Anomaly("silent-damage", text))
        told = any(damage.name in line for line in heard.lines) if damage is not None else True
        if damage is not None and damage.must_be_told and not told and not self._has_refused:
            self.anomalies.append(Anomaly("silent-damage", f"{damage}: no line names the file"))

    def _told(self, heard: Heard) -> None:
        for line in heard.lines:
            self.note("log", line)
        for text in heard.tracebacks:
            self.anomalies.append(Anomaly("unexpected-exception", text))

    def _explain(
        self, before: Mapping[TopicPartition, list[Entry]], heard: Heard, damage: Damage | None
    ) -> list[TopicPartition]:
        """What is gone is told; nothing is there that was not there. Returns the hurt ones of the coordinators.

        Users' partitions may lose batches without a line if their own bytes were changed: who reads them is told.
        """
        hurt = []
        for tp, there in before.items():
            internal, after = tp.topic in INTERNAL, self._served(tp)
            strange = [] if internal else new_records(there, after)
            for record in strange:
                text = f"{record.uid} is at {tp}@{record.offset}, where it was not before the start"
                self.anomalies.append(Anomaly("unknown-record", text, (record.uid,)))
            gone = missing(self.deletions.expected(tp, there), after)
            is_told = any(str(tp) in line for line in heard.lines)
            if any("cannot be read" in line and str(tp) in line for line in heard.lines) or (gone and internal):
                hurt.append(tp)
            silent = [e for e in gone if internal or not any(d.hurts(str(tp), e.base_offset) for d in self.damages)]
            if silent and not is_told:
                text = f"the batch at {tp}@{silent[0].base_offset} is gone, and no line names the partition"
                self.anomalies.append(Anomaly("silent-damage", text))
            if gone:
                self.note("batches lost", f"{tp}: {len(gone)} from {gone[0].base_offset} on")
        if not hurt:
            self.losses.begin()
            for tp, there in before.items():
                if tp.topic not in INTERNAL:
                    gone, partition = missing(self.deletions.expected(tp, there), self._served(tp)), self._find(tp)
                    known = self.deletions.with_deleted(tp, there)  # transactions begin there, too
                    is_told = any(str(tp) in line for line in heard.lines)
                    if partition and damage and damage.folder == str(tp) and not self._has_refused:
                        gone += self.deletions.forget(partition.log, damage, is_told=is_told)
                    self.losses.add(tp, known, gone)
                    if partition is not None and is_told:
                        self.losses.refuse(tp, partition.log.findings.damaged)
        return hurt

    def _watch_logs(self) -> None:
        for log in self._logs():
            self.deletions.watch(log, self.disk)

    def _find(self, tp: TopicPartition) -> Partition | None:
        return None if self.app is None or self.app.node is None else self.app.node.partitions.find(*tp)

    def _logs(self) -> list[PartitionLog]:
        """The logs of users' partitions."""
        return [part.log for tp in self._partitions() if (part := self._find(tp)) is not None]

    def _die(self) -> None:
        self.anomalies += self._epochs.look(() if self.has_damage else self._partitions(), self._entries)
        for tp in self._partitions():
            self.deletions.keep(tp, partial(self._entries, tp))
        self.deletions.dies(self._logs())
        self.loop.kill(self.host)
        self.network.drop(MACHINE)
        if self.app is not None:
            self._dead.append(self.app)  # so that nothing of it is collected, and says so, before the world's end
            self.app = None

    def freeze(self) -> None:
        """The process stands still."""
        self.note("freeze")
        self.loop.freeze(self.host)
        self.network.freeze(MACHINE)

    def thaw(self) -> None:
        """It goes on, and does not know that time has passed."""
        self.note("thaw")
        self.network.thaw(MACHINE)
        self.loop.thaw(self.host)

    def _partitions(self, *, internal: bool = False) -> list[TopicPartition]:
        """Every partition that has a folder; with `internal` those of the coordinators too."""
        found = []
        for folder in self.disk.folders():
            topic, _, number = folder.name.rpartition("-")
            if number.isdecimal() and (not topic.startswith("__") or (internal and topic in INTERNAL)):
                found.append(TopicPartition(topic, int(number)))
        return found

    def _compare(self, checkpointed: Mapping[TopicPartition, int]) -> None:
        """After a loss of power nothing is in a log that was not there, and all that the recovery point covers."""
        for tp, before in self._before.items():
            after, partition = records_of(self._entries(tp)), self._find(tp)
            start = self.deletions.done_below(tp, 0 if partition is None else partition.log.log_start_offset)
            gone, anomalies = taken_by_power(tp, before, after, start=start, recovery_point=checkpointed.get(tp, 0))
            self.anomalies += anomalies
            if not self.keeps_all:
                self.lost |= {record.uid for record in gone}
                if partition is not None:
                    self.deletions.forget_unknown(partition.log)
            if gone:
                self.note("records lost", f"{tp}: {len(gone)} from {gone[0].offset} on")
        self._before = {}

    # evidence

    def records(self, tp: TopicPartition) -> list[LogRecord]:
        """What a reader finds in the partition in the end.

        Sound batches between damaged ones are not served. Their records may be there once more: who had not been told
        that they were written has sent them again.
        """
        partition = self._find(tp)
        if self.compacts and partition is not None:
            return committed_records(partition.log)
        self.deletions.keep(tp, partial(self._entries, tp))
        return records_of(self.losses.but_sent_again(tp, self.deletions.with_deleted(tp, self._served(tp))))

    def _entries(self, tp: TopicPartition, damage: Damage | None = None) -> list[Entry]:
        """The batches in the partition's files; or those that were there before the damage."""
        entries: list[Entry] = []
        for file in files_of(self.disk, tp, damage):
            found = file.entries
            if not (self.has_damage or self._is_torn) and sum(len(each.payload) for each in found) < file.size_bytes:
                text = f"{tp}/{file_name(file.base_offset, LOG)}: there are bytes between or behind its batches"
                self.anomalies.append(Anomaly("unreadable-log", text))
            # What was saved from a damaged file is in the next one too, and counts there.
            base = file.base_offset
            entries = [entry for entry in entries if entry.last_offset < base or not self.has_damage] + found
        return entries

    def _served(self, tp: TopicPartition) -> list[Entry]:
        """The batches that the broker lets anybody read: none that is deleted, or in what it has told to be gone."""
        partition = self._find(tp)
        holes = () if partition is None else partition.log.findings.damaged
        start = 0 if partition is None else partition.log.log_start_offset
        there = [entry for entry in self._entries(tp) if entry.last_offset >= start]
        return [e for e in there if not any(first <= e.base_offset < end for first, end in holes)]

    def judge(self, facts: Sequence[Told]) -> list[Anomaly]:
        """What the checkers find, less what damaged files explain."""
        self.anomalies += self.deletions.check(self._logs())
        return self.losses.judge(facts)

    def behind_loss(self, tp: TopicPartition, offset: int) -> int | None:
        """What the operator reads in the broker's log, and tells a reader."""
        partition = self._find(tp)
        if tp not in self.losses.offsets:
            return None
        holes = () if partition is None else partition.log.findings.damaged
        return max((end for first, end in holes if first <= offset < end), default=offset + 1)

    def hanging(self, tp: TopicPartition) -> int | None:
        """Where a transaction is open in the end."""
        partition = self._find(tp)
        if partition is None or partition.log.last_stable_offset == partition.log.end_offset:
            return None
        return partition.log.last_stable_offset

    def generation(self, group: str) -> int | None:
        """The group's generation, or epoch, as its coordinator had it last."""
        return self._known.generations.get(group)

    def positions(self, group: str) -> dict[TopicPartition, int] | None:
        """The group's committed offsets in the end."""
        runner = None if self.app is None or self.app.node is None else self.app.node.groups.find(group)
        if runner is None or isinstance(runner, ErrorCode):
            return None
        return positions_in(runner.shard, group)
