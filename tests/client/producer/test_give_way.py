"""A thread that sends large batches waits for a loop that is behind, and for no other."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla import AsyncProducer, Producer
from ottla.base.limits import LARGE_BATCH_BYTES
from ottla.client.blocking.loop_thread import LoopThread
from ottla.testing import Broker

_FOR_EVER_S = 600.0
#: Two of these are not in one batch.
_VALUE = bytes(LARGE_BATCH_BYTES * 2 // 3)
_SETTINGS = {"batch.size": LARGE_BATCH_BYTES, "linger.ms": 60_000}


@pytest.fixture
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@contextmanager
def _held(thread: LoopThread) -> Iterator[threading.Event]:
    """The loop does nothing until the event is set; it is set at the end."""
    is_held, go_on = threading.Event(), threading.Event()

    async def hold() -> None:
        is_held.set()
        go_on.wait()

    holding = thread.submit(hold())
    is_held.wait()
    try:
        yield go_on
    finally:
        go_on.set()
        holding.result()


@contextmanager
def _producer(servers: str) -> Iterator[tuple[AsyncProducer, LoopThread]]:
    thread = LoopThread("producer")
    producer = AsyncProducer({"bootstrap.servers": servers, **_SETTINGS})
    try:
        thread.run(producer.start())
        thread.run(producer.ensure_topic("t"))
        yield producer, thread
    finally:
        thread.run(producer.close())
        thread.stop()


def _begin(producer: AsyncProducer) -> None:
    """A record that begins a batch."""
    assert producer.try_send("t", _VALUE, None, 0, None, (), None) is not None


async def _nothing() -> None:
    """The loop has done what came before."""


def test_it_waits_until_the_loop_has_heard(servers: str) -> None:
    with _producer(servers) as (producer, thread):
        _begin(producer)
        thread.run(_nothing())  # of this one
        _waits(producer, thread)


def _waits(producer: AsyncProducer, thread: LoopThread) -> None:
    with _held(thread) as go_on:
        _begin(producer)
        _begin(producer)
        was_behind = []

        def wait() -> None:
            producer.give_way(LARGE_BATCH_BYTES, _FOR_EVER_S)
            was_behind.append(producer._is_behind)

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert producer._is_behind
        go_on.set()
        waiting.join()
        assert was_behind == [False]


def test_it_does_not_wait_for_small_batches(servers: str) -> None:
    with _producer(servers) as (producer, thread), _held(thread):
        _begin(producer)
        _begin(producer)
        producer.give_way(LARGE_BATCH_BYTES - 1, _FOR_EVER_S)


def test_nor_where_the_loop_had_heard_of_the_batch_before(servers: str) -> None:
    with _producer(servers) as (producer, thread), _held(thread):
        _begin(producer)
        producer.give_way(LARGE_BATCH_BYTES, _FOR_EVER_S)


def test_nor_in_the_thread_of_the_loop(servers: str) -> None:
    with _producer(servers) as (producer, thread):

        async def send() -> None:
            _begin(producer)
            _begin(producer)
            producer.give_way(LARGE_BATCH_BYTES, _FOR_EVER_S)

        thread.run(send())


def test_a_loop_that_does_nothing_keeps_nobody(servers: str) -> None:
    with Producer({"bootstrap.servers": servers, **_SETTINGS}) as producer:
        producer.partitions_for("t")
        with _held(producer._thread):
            for _ in range(3):
                producer.send("t", _VALUE)
        producer.flush()
