"""What users do with `exactly_once` (SPEC T11), and what it stands; gone on our own broker and on Apache Kafka."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from ottla import (
    AbortableTransactionError,
    Admin,
    IllegalStateError,
    NewTopic,
    Producer,
    ProducerFencedError,
    TopicPartition,
    exactly_once,
)
from tests.client import exactly_once_victim
from tests.client.journeys import PATIENCE_S, fresh, make_topic, read_all
from tests.house.tree import ROOT

_COUNT = 20


def _source(servers: str, partitions: int = 1) -> str:
    """A topic with the numbers below `_COUNT`."""
    topic = make_topic(servers, partitions, prefix="t11-in")
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(_COUNT):
            producer.send(topic, b"%d" % number, partition=number % partitions)
    return topic


def _copy(
    servers: str,
    source: str,
    sink: str,
    more: Mapping[str, object] | None = None,
    *,
    worker: str = "1",
    until_end: bool = True,
) -> exactly_once:
    config = {"bootstrap.servers": servers, "group.id": sink, "max.poll.records": 5, **(more or {})}
    return exactly_once(source, sink, f"{sink}-{worker}", config, until_end=until_end)


def _copied(servers: str, sink: str) -> list[int]:
    return [int(record.value) for record in read_all(servers, sink)]


def _committed(servers: str, sink: str, source: str) -> int | None:
    with Admin({"bootstrap.servers": servers}) as admin:
        found = admin.list_group_offsets(sink, [TopicPartition(source, 0)])
    return found[TopicPartition(source, 0)].offset if found else None


def _finish(servers: str, source: str, sink: str, more: Mapping[str, object] | None = None) -> None:
    """Another process goes on until the end."""
    with _copy(servers, source, sink, more) as work:
        for batch in work:
            for record in batch:
                batch.send(record.value)


def t11_a_topic_is_copied_once_with_its_offsets(servers: str) -> None:
    source, sink, other = _source(servers, 2), make_topic(servers), make_topic(servers)
    with _copy(servers, source, sink) as work:
        for batch in work:
            assert 0 < len(batch) <= 5
            for record in batch:
                batch.send(record.value, key=b"k", headers=[("h", None)])
            batch.send(b"%d" % len(batch), topic=other, partition=0)
    assert sorted(_copied(servers, sink)) == list(range(_COUNT))
    assert sum(_copied(servers, other)) == _COUNT
    assert {(record.key, record.headers) for record in read_all(servers, sink)} == {(b"k", (("h", None),))}
    with Admin({"bootstrap.servers": servers}) as admin:
        assert [lag.offsets for lag in admin.list_group_lags(sink).values()] == [0, 0]
    _finish(servers, source, sink)
    assert len(_copied(servers, sink)) == _COUNT, "a second run has nothing to do"


def t11_with_asyncio(servers: str) -> None:
    source, sink = _source(servers), make_topic(servers)

    async def copy() -> None:
        async with _copy(servers, source, sink) as work:
            async for batch in work:
                for record in batch.records:
                    await batch.send(record.value)
                await batch.flush()

    asyncio.run(copy())
    assert _copied(servers, sink) == list(range(_COUNT))


def t11_what_goes_back_to_the_source_is_refused_and_nothing_is_committed(servers: str) -> None:
    source, sink = _source(servers), make_topic(servers)
    said = f"the topic {source} is a source of this loop: what is written there is worked on again"
    with pytest.raises(ValueError, match=said), _copy(servers, source, sink) as work:
        for batch in work:
            for record in batch:
                batch.send(record.value)
                batch.send(record.value, topic=source)

    async def copy() -> None:
        async with _copy(servers, source, sink) as work:
            async for batch in work:
                for record in batch:
                    await batch.send(record.value, topic=source)

    with pytest.raises(ValueError, match=said):
        asyncio.run(copy())
    assert _committed(servers, sink, source) is None
    assert len(read_all(servers, source)) == _COUNT
    assert _copied(servers, sink) == []


def t11_a_record_is_tried_again_by_way_of_the_source_where_that_is_said(servers: str) -> None:
    source, sink = _source(servers), make_topic(servers)
    with _copy(servers, source, sink) as work:
        for batch in work:
            for record in batch:
                if record.headers or int(record.value) % 5:
                    batch.send(record.value)
                else:
                    batch.send(record.value, topic=source, headers=[("tries", b"1")], to_source=True)
    assert sorted(_copied(servers, sink)) == list(range(_COUNT))
    assert len(read_all(servers, source)) == _COUNT + _COUNT // 5


def t11_a_wait_that_is_cancelled_loses_nothing(servers: str) -> None:
    """While it waits for records a call may be cancelled; when a transaction is ending, nobody can go on after that."""
    source, sink = _source(servers), make_topic(servers)

    async def copy() -> None:
        async with _copy(servers, source, sink) as work:
            done = 0
            while done < _COUNT:
                waiting = asyncio.ensure_future(anext(work))
                await asyncio.wait({waiting}, timeout=0.01 if done == 0 else None)
                if not waiting.done() and waiting.cancel():
                    await asyncio.wait({waiting})
                    continue
                for record in (batch := waiting.result()):
                    await batch.send(record.value)
                done += len(batch)

    asyncio.run(copy())
    assert _copied(servers, sink) == list(range(_COUNT))


def t11_a_commit_that_is_cancelled_ends_the_work(servers: str) -> None:
    source, sink = _source(servers), make_topic(servers)

    async def copy() -> None:
        async with _copy(servers, source, sink) as work:
            batch = await anext(work)
            for record in batch:
                await batch.send(record.value)
            following = asyncio.ensure_future(anext(work))
            await asyncio.sleep(0)
            following.cancel()
            await asyncio.wait({following})
            with pytest.raises(IllegalStateError, match="was interrupted while a transaction began or ended"):
                await anext(work)

    asyncio.run(copy())
    _finish(servers, source, sink)
    assert _copied(servers, sink) == list(range(_COUNT))


def t11_a_block_that_raises_leaves_nothing(servers: str) -> None:
    source, sink = _source(servers), make_topic(servers)
    with pytest.raises(ZeroDivisionError), _copy(servers, source, sink) as work:
        for batch in work:
            for record in batch:
                batch.send(record.value)
                batch.flush()
                _ = 1 / (int(record.value) - 7)
    assert (_copied(servers, sink), _committed(servers, sink, source)) == ([0, 1, 2, 3, 4], 5)
    _finish(servers, source, sink)
    assert _copied(servers, sink) == list(range(_COUNT))


def t11_a_loop_that_is_left_commits_what_was_taken_whole(servers: str) -> None:
    source, sink = _source(servers), make_topic(servers)
    with _copy(servers, source, sink) as work:
        for batch in work:
            for record in batch:
                batch.send(record.value)
            break
    assert (_copied(servers, sink), _committed(servers, sink, source)) == ([0, 1, 2, 3, 4], 5)
    with _copy(servers, source, sink) as work:
        for batch in work:
            batch.send(next(iter(batch)).value)
            break
    assert (_copied(servers, sink), _committed(servers, sink, source)) == ([0, 1, 2, 3, 4], 5)
    with pytest.raises(IllegalStateError, match="this batch is over"):
        batch.send(b"late")


def t11_a_record_that_was_left_out_is_told(servers: str) -> None:
    source, sink = _source(servers), make_topic(servers)
    told = rf"offset 2 of {source}-0 was not taken, and would be lost"
    with pytest.raises(IllegalStateError, match=told), _copy(servers, source, sink) as work:
        for batch in work:
            for record in batch:
                batch.send(record.value)
                if record.value == b"1":
                    break
    assert (_copied(servers, sink), _committed(servers, sink, source)) == ([], None)
    with _copy(servers, source, sink) as work:
        for batch in work:
            batch.send(next(iter(batch)).value)
            batch.skip_rest()
    assert (_copied(servers, sink), _committed(servers, sink, source)) == ([0, 5, 10, 15], _COUNT)


def t11_an_aborted_batch_comes_again(servers: str) -> None:
    source, sink = _source(servers), make_topic(servers)
    seen: list[list[bytes]] = []
    with _copy(servers, source, sink) as work:
        for batch in work:
            seen.append([record.value for record in batch])
            for value in seen[-1]:
                batch.send(value)
            if len(seen) == 2:
                batch.flush()
                batch.abort()
                with pytest.raises(IllegalStateError, match="it was aborted"):
                    batch.send(b"late")
    assert seen[1] == seen[2]
    assert _copied(servers, sink) == list(range(_COUNT))


def t11_a_stop_ends_the_loop_after_the_batch(servers: str) -> None:
    source, sink = _source(servers), make_topic(servers)
    once = _copy(servers, source, sink, until_end=False)
    with once as work:
        for batch in work:
            for record in batch:
                batch.send(record.value)
            work.stop()
    with pytest.raises(IllegalStateError, match="was entered before: make a new one"), once:
        raise AssertionError("it cannot be used twice")
    with pytest.raises(IllegalStateError, match="closed"):
        next(work)
    assert (_copied(servers, sink), _committed(servers, sink, source)) == ([0, 1, 2, 3, 4], 5)


def t11_a_member_that_was_expelled_commits_nothing_and_goes_on(servers: str, protocol: str) -> None:
    source, sink = _source(servers), make_topic(servers)
    seen: list[list[bytes]] = []
    more = {"group.protocol": protocol}
    with Admin({"bootstrap.servers": servers}) as admin, _copy(servers, source, sink, more) as work:
        for batch in work:
            seen.append([record.value for record in batch])
            for value in seen[-1]:
                batch.send(value)
            if len(seen) == 2:
                assert len(admin.remove_members(sink)) == 1
    assert seen[1][0] == seen[2][0], "its records came again"
    assert _copied(servers, sink) == list(range(_COUNT))


def t11_a_process_that_was_fenced_gives_up(servers: str) -> None:
    source, sink = _source(servers), make_topic(servers)
    told = rf"another process has taken over transactional\.id {sink}-1"
    static = {"group.instance.id": "one"}
    with pytest.raises(ProducerFencedError, match=told), _copy(servers, source, sink, static) as zombie:
        for batch in zombie:
            for record in batch:
                batch.send(record.value)
            batch.flush()
            _finish(servers, source, sink, static)
    assert _copied(servers, sink) == list(range(_COUNT))


def t11_what_no_repetition_can_mend_is_raised(servers: str) -> None:
    source, sink = _source(servers), fresh("t11-small")
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(sink, 1, configs={"max.message.bytes": "1000"})])
    with pytest.raises(AbortableTransactionError, match="MESSAGE_TOO_LARGE"), _copy(servers, source, sink) as work:
        for batch in work:
            for record in batch:
                batch.send(record.value * 5_000)
    assert _committed(servers, sink, source) is None
    _finish(servers, source, sink)
    assert _copied(servers, sink) == list(range(_COUNT))


def t11_workers_share_a_group_and_each_record_is_copied_once(servers: str, protocol: str) -> None:
    source, sink = _source(servers, 4), make_topic(servers)
    more: dict[str, object] = {"group.protocol": protocol, "max.poll.records": 1}
    if protocol == "classic":
        more |= {"heartbeat.interval.ms": 100, "session.timeout.ms": 10_000}

    async def worker(name: str, begun: asyncio.Event) -> None:
        async with _copy(servers, source, sink, more, worker=name) as work:
            async for batch in work:
                for record in batch:
                    await batch.send(record.value)
                begun.set()

    async def all_of_them() -> None:
        async with asyncio.timeout(3 * PATIENCE_S), asyncio.TaskGroup() as group:
            begun = [asyncio.Event() for _ in range(3)]
            for number, each in enumerate(begun):
                group.create_task(worker(str(number), each))
                if number == 0:
                    await each.wait()

    asyncio.run(all_of_them())
    assert sorted(_copied(servers, sink)) == list(range(_COUNT))


def t11_a_process_that_is_killed_at_a_step(servers: str, step: str) -> None:
    source, sink = _source(servers), make_topic(servers)

    def run(dies_at: str) -> int:
        command = [sys.executable, "-m", "tests.client.exactly_once_victim", servers, source, sink, dies_at]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode

    assert run(step) == -signal.SIGKILL
    first = [0, 1, 2, 3, 4] if step == "committed" else []
    assert run("never") == 0
    assert (_copied(servers, sink), _committed(servers, sink, source)) == (list(range(_COUNT)), _COUNT)
    assert _copied(servers, sink)[: len(first)] == first


def _named(journey: Callable[..., None], *arguments: str) -> Callable[[str], None]:
    made = partial(_swapped, journey, arguments)
    made.__name__ = "_".join([journey.__name__, *arguments])  # type: ignore[attr-defined]
    return made


def _swapped(journey: Callable[..., None], arguments: tuple[str, ...], servers: str) -> None:
    journey(servers, *arguments)


ALL: list[Callable[[str], None]] = [
    t11_a_topic_is_copied_once_with_its_offsets,
    t11_with_asyncio,
    t11_what_goes_back_to_the_source_is_refused_and_nothing_is_committed,
    t11_a_record_is_tried_again_by_way_of_the_source_where_that_is_said,
    t11_a_wait_that_is_cancelled_loses_nothing,
    t11_a_commit_that_is_cancelled_ends_the_work,
    t11_a_block_that_raises_leaves_nothing,
    t11_a_loop_that_is_left_commits_what_was_taken_whole,
    t11_a_record_that_was_left_out_is_told,
    t11_an_aborted_batch_comes_again,
    t11_a_stop_ends_the_loop_after_the_batch,
    *(_named(t11_a_member_that_was_expelled_commits_nothing_and_goes_on, each) for each in ("classic", "consumer")),
    t11_a_process_that_was_fenced_gives_up,
    t11_what_no_repetition_can_mend_is_raised,
    *(_named(t11_workers_share_a_group_and_each_record_is_copied_once, each) for each in ("classic", "consumer")),
    *(_named(t11_a_process_that_is_killed_at_a_step, each) for each in exactly_once_victim.STEPS),
]
