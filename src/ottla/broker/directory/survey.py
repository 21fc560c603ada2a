"""Looks at a data directory, and says what is wrong with it. Nothing is changed.

Theory of operation. A start's own recovery runs on an overlay (`overlay`): what it says is what a start would say, and
what the overlay has kept to itself is what a start would change. No rule is written here a second time. Then, if it was
asked for, `log.examination` reads every byte of what recovery has left. So each thing is told once: what a start mends
by recovery, what it does not see by the examination.

Where this broker cannot start, `foreign` looks at each partition by itself.
"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

from ottla.base.clock import Clock
from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.types import TopicPartition
from ottla.broker.config import BrokerConfig
from ottla.broker.directory.foreign import look_around, partition_of
from ottla.broker.directory.overlay import Action, Change, OverlayDisk
from ottla.broker.directory.state import Found, LogState, Owner, Survey, state_of
from ottla.broker.directory.strays import strays
from ottla.broker.disk import Disk
from ottla.broker.metadata.names import GROUP_TOPIC, META_PROPERTIES, METADATA_TOPIC, TRANSACTION_TOPIC
from ottla.broker.metadata.properties import read_properties
from ottla.broker.metadata.quorum import mark_of_apache_kafka
from ottla.broker.recover import Recovered, recover
from ottla.broker.runtime.manifest import sealed_properties
from ottla.broker.told import Kind, Tell, Told
from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER, is_clean_shutdown
from ottla.log.examination import Flaw, FlawKind, examine
from ottla.log.names import LEADER_EPOCH_CHECKPOINT, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX
from ottla.log.storage import Storage

#: Bytes read, bytes in all (0 while that is not known), and the partition that is being read.
Progress: TypeAlias = Callable[[int, int, str], None]

_KINDS: Final = {
    FlawKind.UNREADABLE: Kind.DAMAGE,
    FlawKind.KNOWN: Kind.NOTE,
    FlawKind.CONTRADICTION: Kind.DAMAGE,
    FlawKind.GAP: Kind.GAP,
    FlawKind.DERIVED: Kind.MADE_AGAIN,
}
_INDEXES: Final = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
_WHOSE: Final = {GROUP_TOPIC: "groups", TRANSACTION_TOPIC: "transactions"}


def quiet(done_bytes: int, total_bytes: int, what: str) -> None:
    """Tells nobody about progress."""


def survey(disk: Disk, config: BrokerConfig, clock: Clock, *, deep: bool, progress: Progress = quiet) -> Survey:
    """Look at the directory, which the caller has locked. `deep`: read every byte.

    `config` says what a broker's settings say of topics without their own. StorageError when this is no data directory,
    or when the system refuses to read a file.
    """
    _must_be_one(disk)
    told: dict[Told, None] = {}  # what two ways of looking find alike is told once
    own_files = disk.own_files()
    was_stopped = _was_stopped(own_files)
    found: Found | None = None
    changes: tuple[Change, ...] = ()
    opening = partial(progress, 0, 0)
    overlay = OverlayDisk(disk, clock.now_ms(), opening)
    owner = Owner.OTTLA if mark_of_apache_kafka(disk) is None else Owner.APACHE_KAFKA
    try:
        found, changes = _as_a_start(overlay, config, clock, lambda each: told.setdefault(each))
        if owner is Owner.OTTLA:  # what Apache Kafka leaves need not be as we would leave it
            told |= dict.fromkeys(_silent(changes, [each.text for each in told], was_stopped=was_stopped))
    except StorageError as fault:
        told[Told(Kind.REFUSED, "", f"the broker does not start: {fault}")] = None
    if found is None:
        overlay = OverlayDisk(disk, clock.now_ms(), opening)
        is_theirs = owner is Owner.APACHE_KAFKA
        found = look_around(overlay, config, clock, lambda each: told.setdefault(each), is_theirs=is_theirs)
    told |= dict.fromkeys(strays(disk))
    flaws = tuple(_read_all(overlay, found.logs, progress)) if deep else ()
    told |= dict.fromkeys(_told(tp, flaw) for tp, flaw in flaws)
    return Survey(
        path=str(disk),
        owner=owner,
        properties=read_properties(disk, sealed_properties(own_files)),
        metadata_version=found.metadata_version,
        was_stopped=was_stopped,
        logs=found.logs,
        told=tuple(told),
        changes=changes,
        misfits=tuple((str(tp), flaw.file) for tp, flaw in flaws if flaw.kind is FlawKind.DERIVED),
    )


def _must_be_one(disk: Disk) -> None:
    if META_PROPERTIES not in disk.own_files().names() and not any(map(partition_of, disk.folders())):
        raise StorageError(f"{disk} is no data directory: it has neither {META_PROPERTIES} nor a partition's folder")


def _was_stopped(own_files: Storage) -> bool:
    with suppress(CorruptDataError):  # the start tells it
        return is_clean_shutdown(own_files.read(CLEAN_SHUTDOWN_MARKER))
    return False


def _as_a_start(
    overlay: OverlayDisk, config: BrokerConfig, clock: Clock, tell: Tell
) -> tuple[Found, tuple[Change, ...]]:
    """Start and stop, on the overlay."""
    recovered = recover(config, clock, overlay, random.Random(0), tell)
    logs = tuple(sorted(_states(overlay, recovered, clock.now_ms()), key=lambda each: each.tp))
    recovered.close()
    return Found(recovered.metadata.metadata_version, logs), tuple(overlay.changes())


def _silent(changes: Iterable[Change], texts: Collection[str], *, was_stopped: bool) -> Iterator[Told]:
    """Files that a start makes again without a word: it notices that they do not fit when it uses them.

    After a stop in order that is damage. After a crash they need not fit, and snapshots come and go.
    """
    for change in changes:
        folder, _, name = change.path.rpartition("/")
        made = change.action is Action.MADE and name.endswith(SNAPSHOT)
        changed = change.action in (Action.REPLACED, Action.CUT)
        is_damage = was_stopped and (made or (changed and name == LEADER_EPOCH_CHECKPOINT))
        if is_damage or (changed and name.endswith(_INDEXES)):
            # A sentence on one index of a segment is for both of them.
            if any(folder in text and name.partition(".")[0] in text for text in texts):
                continue
            kind = Kind.MADE_AGAIN if was_stopped else Kind.NOTE
            state = "is gone" if made else "does not fit the log"
            yield Told(kind, change.path, f"{change.path} {state}: a start makes it again")


def _states(overlay: OverlayDisk, recovered: Recovered, now_ms: int) -> Iterator[LogState]:
    metadata = TopicPartition(METADATA_TOPIC, 0)
    yield state_of(metadata, recovered.metadata.log, overlay.open_folder(str(metadata)), now_ms, compacts=False)
    for each in recovered.partitions.all():
        log = each.log
        yield state_of(each.tp, log, overlay.open_folder(str(each.tp)), now_ms, compacts=log.config.compacts)


def _read_all(
    overlay: OverlayDisk, logs: Iterable[LogState], progress: Progress
) -> Iterator[tuple[TopicPartition, Flaw]]:
    total = sum(each.size_bytes for each in logs)
    done = 0

    for each in logs:
        name = str(each.tp)
        progress(done, total, name)

        def advance(size_bytes: int, name: str = name) -> None:
            nonlocal done
            done += size_bytes
            progress(done, total, name)

        for flaw in examine(overlay.open_folder(name), each.scope, advance):
            yield each.tp, flaw


def _told(tp: TopicPartition, flaw: Flaw) -> Told:
    place = f"{tp}/{flaw.file}"
    text = place if flaw.position is None else f"{place} at position {flaw.position}"
    text = f"{text}: {flaw.cause}"
    if flaw.kind is FlawKind.DERIVED:
        text += "; a repair makes it again"
    elif flaw.kind is FlawKind.UNREADABLE and flaw.first_offset != flaw.end_offset:
        whose = _WHOSE.get(tp.topic)
        gone = "who reads there gets an error" if whose is None else f"its {whose} are not available"
        text += f"; {gone}, until the file is put back from a copy"
    return Told(_KINDS[flaw.kind], place, text, flaw.position, flaw.first_offset, flaw.end_offset)
