"""Clients that nobody closes: dropped, or open when the interpreter ends. Nothing is lost in silence."""

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator

import pytest

from ottla import Admin, AsyncProducer, Consumer, IllegalStateError, Producer
from ottla.client.blocking.loop_thread import LoopThread
from ottla.client.blocking.unclosed import Unclosed
from ottla.testing import Broker
from tests.client.journeys import PATIENCE_S, fresh, make_topic, read_all


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def run(program: str, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def collect(threads_before: set[threading.Thread]) -> None:
    """Have what was dropped collected, and wait until its threads have ended."""
    gc.collect()
    for thread in set(threading.enumerate()) - threads_before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_program_that_ends_without_close_has_sent_its_records(servers: str) -> None:
    topic = make_topic(servers)
    program = """
import sys
from ottla import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 60_000})
for number in range(100):
    producer.send(sys.argv[2], b"%d" % number)
"""
    done = run(program, servers, topic)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [record.value for record in read_all(servers, topic)] == [b"%d" % number for number in range(100)]


def test_a_program_that_ends_in_an_exception_has_sent_its_records(servers: str) -> None:
    topic = make_topic(servers)
    program = """
import sys
from ottla import Producer
def main():
    producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 60_000})
    producer.send(sys.argv[2], b"v")
    raise ValueError("something else")
main()
"""
    assert "ValueError: something else" in run(program, servers, topic).stderr
    assert [record.value for record in read_all(servers, topic)] == [b"v"]


def test_records_that_cannot_be_sent_at_the_end_are_counted_on_stderr() -> None:
    program = """
from ottla import Producer, RequestTimeoutError
from ottla.testing import Broker
with Broker() as broker:
    timeouts = {"request.timeout.ms": 100, "delivery.timeout.ms": 300, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **timeouts})
    written = False
    while not written:  # where the machine stops one of them for 300 ms, it is not written in time
        try:
            written = producer.send("t", b"before").result(30).offset >= 0
        except RequestTimeoutError:
            pass
for _ in range(3):
    producer.send("t", b"after")
"""
    done = run(program)
    assert done.returncode == 0
    why = "t-0: 3 records were not acknowledged within delivery.timeout.ms (300 ms)"
    assert f"unclosed Producer: 3 records were lost: {why}" in done.stderr


def test_an_open_transaction_is_aborted_at_the_end(servers: str) -> None:
    topic = make_topic(servers)
    program = """
import sys
from ottla import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": sys.argv[2]})
producer.init_transactions()
producer.begin_transaction()
producer.send(sys.argv[2], b"never").result(30)
"""
    assert run(program, servers, topic).returncode == 0
    with Admin({"bootstrap.servers": servers}) as admin:
        assert admin.describe_transactions([topic])[topic].state == "CompleteAbort"


def test_where_warnings_are_errors_every_client_still_ends(servers: str) -> None:
    topic = make_topic(servers)
    program = """
import sys
from ottla import Producer
producers = [Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 60_000}) for _ in range(2)]
for producer in producers:
    producer.send(sys.argv[2], b"v")
"""
    done = run(program, servers, topic, options=("-W", "error::ResourceWarning"))
    told = "unclosed Producer at the end of the interpreter: 1 records were not acknowledged yet\n"
    assert (done.returncode, done.stderr) == (0, told * 2)
    assert [record.value for record in read_all(servers, topic)] == [b"v"] * 2


def test_a_child_of_multiprocessing_sends_its_records_too_and_waits_for_its_threads(servers: str) -> None:
    topic = make_topic(servers)
    program = """
import multiprocessing, sys
from concurrent.futures import ThreadPoolExecutor
from ottla import Producer
config = {"bootstrap.servers": sys.argv[1], "linger.ms": 60_000}
def work():
    producer = Producer(config)
    producer.send(sys.argv[2], b"main thread")
    begun = multiprocessing.Event()
    executor = ThreadPoolExecutor(1)
    executor.submit(begun.wait, 30)
    executor.submit(producer.send, sys.argv[2], b"another thread")
    multiprocessing.util.Finalize(None, begun.set, exitpriority=-1_000)  # after everything else
parent = Producer(config)
parent.send(sys.argv[2], b"parent")
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
print(child.exitcode)
"""
    # from 3.12 on Python itself warns of a fork beside threads, as it should
    done = run(program, servers, topic, options=("-W", "ignore::DeprecationWarning"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    values = sorted(record.value or b"" for record in read_all(servers, topic))
    assert values == [b"another thread", b"main thread", b"parent"]


@pytest.mark.parametrize("ending", [AsyncProducer.close, AsyncProducer.abandon])
async def test_what_is_sent_while_a_producer_ends_is_refused(
    servers: str, ending: Callable[[AsyncProducer], Coroutine[None, None, object]]
) -> None:
    topic = await asyncio.to_thread(make_topic, servers)
    producer = AsyncProducer({"bootstrap.servers": servers, "linger.ms": 60_000})
    accepted = await producer.send(topic, b"v")
    end = asyncio.create_task(ending(producer))
    await asyncio.sleep(0)  # it begins, and cannot get far
    with pytest.raises(IllegalStateError, match=r"the producer is closed|nobody closed the producer"):
        await producer.send(topic, b"late")
    assert not await end
    assert (await accepted).offset == 0
    assert [record.value for record in await asyncio.to_thread(read_all, servers, topic)] == [b"v"]


class NeverEnds:
    """A client that has something to lose, and loses it."""

    def unfinished(self) -> str:
        return "7 records were not acknowledged yet"

    async def abandon(self) -> str:
        await asyncio.Event().wait()
        return ""


def test_what_is_left_when_the_interpreter_has_waited_enough_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    thread = LoopThread("never ends")
    facade = threading.Event()  # anything that can be referred to weakly
    unclosed = Unclosed(facade, NeverEnds(), thread)
    with pytest.warns(ResourceWarning, match="unclosed Event at last: 7 records were not acknowledged yet"):
        unclosed.end("at last")
    with caplog.at_level(logging.ERROR):
        unclosed.wait(time.monotonic())
    assert caplog.messages == ["unclosed Event: 7 records were not acknowledged yet, and the interpreter ends"]
    unclosed.closed()
    thread.stop()


def test_a_producer_that_is_dropped_sends_what_it_has_and_ends(servers: str) -> None:
    topic, threads = make_topic(servers), set(threading.enumerate())
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 60_000})
    for number in range(10):
        producer.send(topic, b"%d" % number)
    with pytest.warns(ResourceWarning, match="unclosed Producer was dropped: 10 records were not acknowledged yet"):
        del producer
        collect(threads)
    assert [record.value for record in read_all(servers, topic)] == [b"%d" % number for number in range(10)]


def test_a_consumer_that_is_dropped_leaves_its_group_and_commits_nothing(servers: str) -> None:
    topic, group, threads = make_topic(servers), fresh("dropped"), set(threading.enumerate())
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send(topic, b"v")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    came: list[bytes | None] = []
    while not came:
        came += [record.value for record in consumer.poll(PATIENCE_S)]
    with pytest.warns(ResourceWarning, match="unclosed Consumer was dropped"):
        del consumer
        collect(threads)
    with Admin({"bootstrap.servers": servers}) as admin:
        assert admin.describe_groups([group])[group].state == "Empty"
        assert admin.list_group_offsets(group) == {}


def test_a_consumer_that_is_open_at_the_end_leaves_its_group(servers: str) -> None:
    topic, group = make_topic(servers), fresh("open")
    program = """
import sys
from ottla import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[3]})
consumer.subscribe([sys.argv[2]])
while not consumer.assignment():
    consumer.poll(0.05)
"""
    done = run(program, servers, topic, group)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with Admin({"bootstrap.servers": servers}) as admin:
        assert admin.describe_groups([group])[group].state == "Empty"


def _forget_others(told: pytest.WarningsRecorder) -> None:
    """What tests before this one have left is collected now, and what it says is none of this one's."""
    gc.collect()
    told.clear()


def test_closed_clients_leave_no_warning(servers: str, recwarn: pytest.WarningsRecorder) -> None:
    _forget_others(recwarn)
    threads = set(threading.enumerate())
    config = {"bootstrap.servers": servers}
    producer, consumer, admin = Producer(config), Consumer(config), Admin(config)
    for client in (producer, consumer, admin):
        client.close()
    del producer, consumer, admin, client
    collect(threads)
    assert not [warning for warning in recwarn if "unclosed" in str(warning.message)]


@pytest.mark.parametrize("kept", ["local", "global"])
def test_an_asyncio_producer_that_is_not_closed_says_what_was_never_sent(servers: str, kept: str) -> None:
    program = """
import asyncio, sys
from ottla import AsyncProducer
everything = []
async def main():
    producer = AsyncProducer({"bootstrap.servers": sys.argv[1], "linger.ms": 60_000})
    await producer.send(sys.argv[2], b"v")
    if sys.argv[3] == "global":
        everything.append(producer)
asyncio.run(main())
"""
    done = run(program, servers, make_topic(servers), kept)
    assert done.returncode == 0
    assert "unclosed AsyncProducer: 1 records were not acknowledged yet, and its event loop has ended" in done.stderr


async def test_a_closed_asyncio_producer_says_nothing(servers: str, recwarn: pytest.WarningsRecorder) -> None:
    _forget_others(recwarn)
    producer = AsyncProducer({"bootstrap.servers": servers})
    await producer.send(await asyncio.to_thread(make_topic, servers), b"v")
    await producer.close()
    del producer
    gc.collect()
    assert not [warning for warning in recwarn if "unclosed" in str(warning.message)]
