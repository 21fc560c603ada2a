"""The broker is killed again and again under three transactional producers; a reader that is not ours counts (T13).

Committed records are read once, aborted ones never. An end whose outcome the client could not learn may be either, but
not a part of it.
"""

from __future__ import annotations

import threading

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import TopicPartition
from ottla.testing import Broker, History
from tests.chaos.load import PARTITIONS, Reader, Worker, judge
from tests.chaos.outages import chaos_seeds, drawn
from tests.recording.final import assert_good, note_logs, note_positions

pytestmark = pytest.mark.chaos

_KILLS = 8


@chaos_seeds(1, 2)
def test_t13_transactions_are_whole_over_kills_of_the_broker(seed: int) -> None:
    ended, stop, history = threading.Semaphore(0), threading.Event(), History()
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result()
        workers = [Worker(number, broker.bootstrap_servers, seed, ended, stop, history) for number in range(3)]
        reader = Reader(broker.bootstrap_servers, history)
        threads = [threading.Thread(target=worker.run) for worker in workers]
        for thread in threads:
            thread.start()
        for fault in drawn(seed, _KILLS, 300):
            for _ in range(fault.after_steps):
                assert ended.acquire(timeout=60), "no transaction ended for a minute"
            broker.kill()
            broker.start()
        assert ended.acquire(timeout=60)
        stop.set()
        for thread in threads:
            thread.join()
        judge(workers, broker.bootstrap_servers)
        partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
        logs = note_logs(history, broker.bootstrap_servers, {"t": PARTITIONS})
        reader.finish({tp.partition: max(r.offset for r in log if r.visible) for tp, log in logs.items()})
        history.drained(reader.group, partitions)
        note_positions(history, broker.bootstrap_servers, reader.group)
        assert_good(history)
