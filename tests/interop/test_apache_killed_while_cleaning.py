"""T10: a directory changes hands in the middle of Apache Kafka's own cleaning, and goes back.

The judge is Apache Kafka, on a copy of the same files. `apache_cleaning` says how the states are caught. A directory
with a quorum's metadata cannot be served by our broker: so partitions change hands, not the whole directory, with what
the cleaner's checkpoint said of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.base.errors import CorruptDataError
from ottla.base.types import TopicPartition
from ottla.broker.runtime.manifest import MANIFEST
from ottla.broker.storage import DirectoryStorage
from ottla.cli.main import main
from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER, CLEANER_OFFSET_CHECKPOINT, decode_offsets, encode_offsets
from ottla.log.config import LogConfig
from ottla.log.names import CLEANED, DELETED, LOG, PARTITION_METADATA, SWAP
from ottla.log.partition import PartitionLog
from ottla.testing import Broker
from tests.interop.apache import ApacheKafka
from tests.interop.apache_cleaning import (
    BROKER,
    PARTITIONS,
    SETTINGS,
    SINGLE,
    Catcher,
    State,
    Traffic,
    kinds_of,
    rest_of,
)
from tests.log.cleaner.passes import clean_all

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars"), pytest.mark.slow]

_CLEANED, _STATES = "cleaned", "states"
#: Partitions that wait for a state each.
_MOST_STATES = 64
_WAIT_S = 240
_IDLE = {"log.cleaner.enable": "false"}
_EAGER = {"log.cleaner.backoff.ms": "50", "log.initial.task.delay.ms": "100"}
_CONFIG = LogConfig(
    segment_bytes=2_000,
    segment_index_bytes=2_048,
    index_interval_bytes=0,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
)

#: Of a record: offset, key, value, headers, kind of timestamp and timestamp.
_Row = tuple[int, bytes | None, bytes | None, object, object]
#: By partition.
_Served = dict[int, list[_Row]]


def _served(bootstrap: str, count: int, isolation: str) -> _Served:
    """What a reader is shown of each state."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([Assigned(_STATES, number, 0) for number in range(count)])
    rows: _Served = {number: [] for number in range(count)}
    waiting = set(rows)
    while waiting:
        message = consumer.poll(60)
        assert message is not None, (bootstrap, "went silent", waiting)
        if message.error() is None:
            row = (message.offset(), message.key(), message.value(), message.headers(), message.timestamp())
            rows[message.partition()].append(row)
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            waiting.discard(message.partition())
    consumer.close()
    return rows


def _both(bootstrap: str, count: int) -> tuple[_Served, _Served]:
    return _served(bootstrap, count, "read_committed"), _served(bootstrap, count, "read_uncommitted")


def _latest(rows: Sequence[_Row]) -> dict[bytes | None, _Row]:
    return {row[1]: row for row in rows}


def _fill(data_dir: Path, sources: Sequence[Path], cleaned: Mapping[int, int | None]) -> None:
    """Put the files of each source into a partition of `_STATES`; the broker of the directory is not running."""
    for number, source in enumerate(sources):
        folder = data_dir / f"{_STATES}-{number}"
        for path in folder.iterdir():
            if path.name != PARTITION_METADATA:
                path.unlink()
        for path in source.iterdir():
            if path.name != PARTITION_METADATA:
                shutil.copy2(path, folder)
    offsets = {TopicPartition(_STATES, number): offset for number, offset in cleaned.items() if offset is not None}
    (data_dir / CLEANER_OFFSET_CHECKPOINT).write_bytes(encode_offsets(offsets))
    for name in (MANIFEST, CLEAN_SHUTDOWN_MARKER):
        (data_dir / name).unlink(missing_ok=True)


def _create(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=SETTINGS)])[name].result(60)


def _await_cleaned(data_dir: Path, wanted: Mapping[int, int], tick: Callable[[], object]) -> None:
    deadline, cleaned = time.monotonic() + _WAIT_S, dict[TopicPartition, int]()
    while missing := {n: at for n, at in wanted.items() if cleaned.get(TopicPartition(_STATES, n), -1) < at}:
        assert time.monotonic() < deadline, (data_dir, missing, cleaned)
        tick()
        with suppress(OSError, CorruptDataError):
            cleaned = decode_offsets((data_dir / CLEANER_OFFSET_CHECKPOINT).read_bytes())


def _end_of_cleaning(state: State, into: Path) -> int:
    """Up to where a cleaner that starts with this state can clean it."""
    shutil.copytree(state.folder, into)
    now_ms = int(time.time() * 1000)
    log = PartitionLog.open(TopicPartition(_CLEANED, 0), DirectoryStorage(into), _CONFIG, now_ms)
    log.compaction.cleaned_offset = state.cleaned_offset
    clean_all(log, now_ms)
    end = log.compaction.cleaned_offset
    log.close(sync=False)
    return end or 0


def _caught(tmp_path: Path, kafka: ApacheKafka) -> list[State]:
    """States that Apache Kafka leaves; afterwards it is killed, and has an empty partition for each of them."""
    with kafka:
        _create(kafka.bootstrap, _CLEANED, PARTITIONS)
        _create(kafka.bootstrap, _STATES, _MOST_STATES)
        folders = [kafka.data_dir / f"{_STATES}-{number}" for number in range(_MOST_STATES)]
        while not all((folder / PARTITION_METADATA).exists() for folder in folders):
            kafka.tick()
        traffic = Traffic(kafka.bootstrap, _CLEANED)
        catcher = Catcher(kafka, _CLEANED, traffic, tmp_path)
        try:
            catcher.catch()
        finally:
            kafka.kill9()
            traffic.end()
    print(f"caught: {[(sorted(kinds), count) for kinds, count in catcher.seen.items()]}")
    assert CLEANED in frozenset().union(*(each.kinds for each in catcher.states[-PARTITIONS:])), "of the kill"
    swap = next(each for each in catcher.states if SINGLE in each.kinds)
    states = [*catcher.states, *rest_of(swap, tmp_path)]
    assert len(states) > len(catcher.states) + 6
    assert {CLEANED, SWAP, DELETED} <= frozenset().union(*(each.kinds for each in states))
    assert any(each.cleaned_offset is not None for each in states)
    assert len(states) <= _MOST_STATES
    sizes = [sum(path.suffix == LOG for path in each.folder.iterdir()) for each in states]
    print(f"{len(states)} states, of {min(sizes)} to {max(sizes)} segments")
    assert max(sizes) > 5
    return states


def _write_more(bootstrap: str, count: int) -> None:
    """A record outside of transactions and one of each outcome, to each state."""
    for number in range(16):  # the first ids are those of producers that wrote the logs in another cluster
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"fresh {number}"})
        producer.init_transactions(60)
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        plain.produce(_STATES, b"ours", b"key 0", partition=number)
    assert plain.flush(60) == 0
    for commit in (True, False):
        producer.begin_transaction()
        for number in range(count):
            producer.produce(_STATES, b"ours %d" % commit, b"key 1", partition=number)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    # The answer comes before the markers are in the partitions; the next initialisation waits for them.
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "fresh 15"}).init_transactions(60)


def test_we_go_on_where_apache_kafkas_cleaner_was_killed_and_it_goes_on_after_us(tmp_path: Path) -> None:
    kafka, own = ApacheKafka(tmp_path / "kafka", BROKER), tmp_path / "ours"
    states = _caught(tmp_path / "states", kafka)
    count, sources = len(states), [each.folder for each in states]
    cleaned = {number: each.cleaned_offset for number, each in enumerate(states)}
    wanted = {n: _end_of_cleaning(each, tmp_path / "ends" / str(n)) for n, each in enumerate(states)}
    assert sum(wanted[n] > (cleaned[n] or 0) for n in wanted) > count // 2

    kafka.config = dict(_IDLE)
    _fill(kafka.data_dir, sources, cleaned)
    with kafka:
        expected = _both(kafka.bootstrap, count)
    with Broker(_IDLE, data_dir=own) as broker:
        _create(broker.bootstrap_servers, _STATES, count)
        broker.stop()
    _fill(own, sources, cleaned)
    with Broker(_IDLE, data_dir=own) as broker:
        _assert_same(_both(broker.bootstrap_servers, count), expected, states)
        for number, state in enumerate(states):
            left = kinds_of([path.name for path in (own / f"{_STATES}-{number}").iterdir()])
            assert not left, (state, left)
        broker.kill()

    kafka.config = dict(_EAGER)
    with kafka:
        _await_cleaned(kafka.data_dir, wanted, kafka.tick)
        expected_after = _both(kafka.bootstrap, count)
    with Broker(_EAGER, data_dir=own) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        _await_cleaned(own, wanted, lambda: admin.list_topics(timeout=60))
        after = _both(broker.bootstrap_servers, count)
        _assert_same(after, expected_after, states)
        for number, state in enumerate(states):
            assert _latest(after[0][number]) == _latest(expected[0][number]), state
            for ours, before in zip(after, expected, strict=True):
                assert {row[0] for row in ours[number]} <= {row[0] for row in before[number]}, state
        assert sum(map(len, after[0].values())) < sum(map(len, expected[0].values()))
        _write_more(broker.bootstrap_servers, count)
        broker.kill()
    with Broker(_IDLE, data_dir=own) as broker:
        ours_at_last = _both(broker.bootstrap_servers, count)
        broker.stop()
    assert main(["storage", "check", str(own)]) == 0
    _go_back(kafka, own, ours_at_last, states)


def _assert_same(ours: tuple[_Served, _Served], theirs: tuple[_Served, _Served], states: Sequence[State]) -> None:
    for number, state in enumerate(states):
        for own_rows, their_rows in zip(ours, theirs, strict=True):
            assert own_rows[number] == their_rows[number], (number, state)


def _go_back(kafka: ApacheKafka, own: Path, ours: tuple[_Served, _Served], states: Sequence[State]) -> None:
    """Apache Kafka serves what we served, and its cleaner goes on."""
    count = len(states)
    known = decode_offsets((own / CLEANER_OFFSET_CHECKPOINT).read_bytes())
    cleaned = {number: known.get(TopicPartition(_STATES, number)) for number in range(count)}
    kafka.config = dict(_IDLE)
    _fill(kafka.data_dir, [own / f"{_STATES}-{number}" for number in range(count)], cleaned)
    with kafka:
        _assert_same(_both(kafka.bootstrap, count), ours, states)
        kafka.kill9()
    latest = {number: _latest(rows) for number, rows in ours[0].items()}
    ends = [rows[b"key 1"][2] for rows in latest.values() if b"key 1" in rows]  # not behind an open transaction
    assert b"ours 1" in ends
    assert b"ours 0" not in ends
    wanted = {
        n: _end_of_cleaning(State(own / f"{_STATES}-{n}", frozenset(), cleaned[n]), own / f"e{n}") for n in latest
    }
    kafka.config = dict(_EAGER)
    with kafka:
        _await_cleaned(kafka.data_dir, wanted, kafka.tick)
        committed = _served(kafka.bootstrap, count, "read_committed")
    assert {number: _latest(rows) for number, rows in committed.items()} == latest
