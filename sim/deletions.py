"""Records that are deleted in a world, by DeleteRecords or by retention: which may go, which must, and what they were.

What may go is reckoned here, from what users ask for and from the files and settings of a topic, whatever the broker
says of it. What has gone by right is kept: the checkers of what was written judge it as if it were still there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

from ottla.base.types import TopicPartition
from ottla.log.checking import ANY_OFFSET
from ottla.log.config import LogConfig
from ottla.log.names import LOG, SNAPSHOT, base_offset, file_name
from ottla.log.partition import PartitionLog
from ottla.testing.history.facts import Deleted, Deleting
from sim.check import Anomaly
from sim.cluster.log import Entry
from sim.damage import Damage, sound_entries
from sim.disk import SimDisk
from sim.history import History

#: The name of the user who deletes records. A world whose plan leaves this user out has no retention, either.
DELETER = "d0"


class Deletions:
    """Of one world."""

    def __init__(self, history: History) -> None:
        self._history = history
        #: Records below these offsets may be gone; and must be, because somebody was told so.
        self.asked: defaultdict[TopicPartition, int] = defaultdict(int)
        self.done: defaultdict[TopicPartition, int] = defaultdict(int)
        #: Where each log began when its broker died, and what retention has taken since then.
        self.began: dict[TopicPartition, int] = {}
        #: Batches that may be gone, by base offset.
        self._kept: defaultdict[TopicPartition, dict[int, Entry]] = defaultdict(dict)

    def ask(self, who: str, tp: TopicPartition, offset: int) -> None:
        """Somebody is about to ask for DeleteRecords, or retention has retired what is below."""
        self.asked[tp] = max(self.asked[tp], offset)
        self._history.add(who, "deletes", f"{tp} below {offset}", Deleting(tp, offset))

    def answered(self, who: str, tp: TopicPartition, offset: int) -> None:
        """Somebody was told that what is below is gone."""
        self.done[tp] = max(self.done[tp], offset)
        self._history.add(who, "deleted", f"{tp} below {offset}", Deleted(tp, offset))

    def keep(self, tp: TopicPartition, read: Callable[[], Iterable[Entry]]) -> None:
        """Remember those of the log's batches that may go."""
        asked = self.asked.get(tp, 0)
        if asked:
            self._kept[tp].update((entry.base_offset, entry) for entry in read() if entry.last_offset < asked)

    def done_below(self, tp: TopicPartition, start: int) -> int:
        """Up to where the log was deleted, when a loss of power has left one that begins at `start`.

        Of a deletion that nobody was told of, nothing may be left: the records may be there again. If they are gone,
        others get their offsets.
        """
        start = min(start, self.began.get(tp, 0))
        for base in [base for base, entry in self._kept[tp].items() if entry.last_offset >= start]:
            del self._kept[tp][base]
        return start

    def forget(self, log: PartitionLog, damage: Damage, *, is_told: bool) -> list[Entry]:
        """Of a log that has this damage, remember no longer those deleted batches that it does not know any more.

        Who had no answer may write them again, if a file that knew it is hurt; or their offsets are used again, because
        the log ends before them, and a line names the partition.
        """
        if not damage.name.endswith((LOG, SNAPSHOT)):
            return []
        may_end = damage.name.endswith(LOG) and is_told
        kept, known = self._kept[log.tp], {each.producer_id for each in log.producers.active()}
        unknown = [
            entry
            for entry in kept.values()
            if entry.header.producer_id not in known or (may_end and entry.base_offset >= log.end_offset)
        ]
        for entry in unknown:
            del kept[entry.base_offset]
        return unknown

    def forget_unknown(self, log: PartitionLog) -> None:
        """After a loss of power that may take records: it may have taken what the log knew of producers, too.

        Who had no answer for a record that was then deleted may write it again.
        """
        known = {each.producer_id: (each.producer_epoch, each.last_sequence) for each in log.producers.active()}
        kept = self._kept[log.tp]
        for base, header in [(base, entry.header) for base, entry in kept.items()]:
            if (header.producer_epoch, header.last_sequence) > known.get(header.producer_id, (-1, -1)):
                del kept[base]

    def with_deleted(self, tp: TopicPartition, entries: Iterable[Entry]) -> list[Entry]:
        """These batches of a log, and what was deleted before them by right."""
        if tp not in self._kept:
            return list(entries)
        there = {entry.base_offset: entry for entry in entries}
        first = min(there, default=self.deleted_below(tp))
        before = {base: entry for base, entry in self._kept[tp].items() if entry.last_offset < first}
        return [entry for _, entry in sorted({**before, **there}.items())]

    def deleted_below(self, tp: TopicPartition) -> int:
        """Records below this offset may have been deleted."""
        return self.asked.get(tp, 0)

    def dies(self, logs: Iterable[PartitionLog]) -> None:
        """The broker dies: where its logs begin now."""
        self.began.update((log.tp, log.log_start_offset) for log in logs)

    def expected(self, tp: TopicPartition, entries: Iterable[Entry]) -> list[Entry]:
        """Of the batches that the dead broker has left, those that have to be there when the next one has started."""
        return [entry for entry in entries if entry.last_offset >= self.began.get(tp, 0)]

    def check(self, logs: Iterable[PartitionLog]) -> list[Anomaly]:
        """No log begins before what somebody was told to be deleted."""
        return [
            Anomaly("undeleted", f"{log.tp} begins at {log.log_start_offset}, and all below {end} was deleted")
            for log in logs
            if log.log_start_offset < (end := self.done.get(log.tp, 0))
        ]

    def watch(self, log: PartitionLog, disk: SimDisk) -> None:
        """Hear of what retention takes out of the log, before anybody can find it gone. What may go, is kept."""
        retire = log.retire

        def watched(now_ms: int) -> bool:
            files = files_of(disk, log.tp)
            may = max(
                self.deleted_below(log.tp), retirable(files, log.log_start_offset, log.end_offset, log.config, now_ms)
            )
            before = log.log_start_offset
            more = retire(now_ms)  # files that are retired are deleted later
            if log.log_start_offset > before:
                self.ask("broker", log.tp, min(log.log_start_offset, may))
                self.began[log.tp] = min(log.log_start_offset, may)
            if more:
                self.keep(log.tp, lambda: (entry for file in files for entry in file.entries))
            return more

        log.retire = watched  # type: ignore[method-assign]


@dataclass
class LogFile:
    """A file of a log. Its batches are looked at when somebody asks for them."""

    base_offset: int
    #: Where the next file begins. The broker serves nothing of a batch that says to be behind it.
    limit_offset: int
    size_bytes: int
    read: Callable[[], bytes]

    @cached_property
    def entries(self) -> list[Entry]:
        """Its batches."""
        return [entry for _, entry in sound_entries(self.read(), self.base_offset, self.limit_offset)]

    @property
    def newest_ms(self) -> int:
        """The newest timestamp of its records."""
        return max((entry.header.max_timestamp_ms for entry in self.entries), default=-1)


def files_of(disk: SimDisk, tp: TopicPartition, damage: Damage | None = None) -> list[LogFile]:
    """The log files of a partition, in order; as they were before this damage."""
    folder = str(tp)
    sizes = disk.sizes(folder)
    if damage is not None and damage.folder == folder:
        sizes[damage.name] = len(damage.before)
    bases = sorted(base for base in (base_offset(name, LOG) for name in sizes) if base is not None)
    files = []
    for base, limit in pairwise([*bases, ANY_OFFSET]):
        name = file_name(base, LOG)
        read = partial(disk.content, folder, name)
        if damage is not None and (damage.folder, damage.name) == (folder, name):
            read = partial(bytes, damage.before)
        files.append(LogFile(base, limit, sizes[name], read))
    return files


def retirable(files: Sequence[LogFile], start: int, end: int, config: LogConfig, now_ms: int) -> int:
    """Up to which offset `retention.bytes` and `retention.ms` allow to delete: the oldest files that are too much."""
    ends = [*(each.base_offset for each in files[1:]), end]
    left = [(each, below) for each, below in zip(files, ends, strict=True) if below > start]
    size, at = sum(each.size_bytes for each, _ in left), start
    for each, below in left:
        is_too_much = 0 <= config.retention_bytes <= size - each.size_bytes
        is_too_old = config.retention_ms >= 0 and now_ms - each.newest_ms > config.retention_ms
        if not (is_too_much or is_too_old):
            break
        size, at = size - each.size_bytes, below
    return at
