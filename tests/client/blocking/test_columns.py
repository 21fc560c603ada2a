"""`send_arrow` of the blocking producer."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from ottla import IllegalStateError, Producer
from ottla.client.blocking.loop_thread import FORKED, LoopThread
from ottla.testing import Broker
from tests.client.journeys import PATIENCE_S, make_topic
from tests.counted_calls import calls

pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_rows_for_a_topic_that_is_known_do_not_wait_for_the_loops_thread(servers: str) -> None:
    topic, rows = make_topic(servers), pa.record_batch({"value": [b"a", b"b"]})
    with Producer({"bootstrap.servers": servers}) as producer:
        assert calls(lambda: producer.send_arrow(topic, rows), LoopThread.run.__code__) == 1
        assert calls(lambda: producer.send_arrow(topic, rows), LoopThread.run.__code__) == 0
        producer.flush(PATIENCE_S)


def test_a_producer_that_is_closed_takes_no_rows_for_a_topic_that_it_knew(servers: str) -> None:
    topic, rows = make_topic(servers), pa.record_batch({"value": [b"a", b"b"]})
    producer = Producer({"bootstrap.servers": servers})
    producer.send_arrow(topic, rows)
    producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send_arrow(topic, rows)


def test_a_forked_process_sends_no_rows_with_its_parents_producer(servers: str) -> None:
    topic = make_topic(servers)
    program = """if True:
        import os, sys
        import pyarrow as pa
        from ottla import IllegalStateError, Producer
        rows = pa.record_batch({"value": [b"a", b"b"]})
        with Producer({"bootstrap.servers": sys.argv[1]}) as producer:
            producer.send_arrow(sys.argv[2], rows)
            child = os.fork()
            if child == 0:
                try:
                    producer.send_arrow(sys.argv[2], rows)
                except IllegalStateError as error:
                    os.write(1, str(error).encode())
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
    """
    options = ["-W", "ignore::DeprecationWarning"]  # Python's, for a fork beside threads
    done = subprocess.run([sys.executable, *options, "-c", program, servers, topic], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, FORKED, "")
