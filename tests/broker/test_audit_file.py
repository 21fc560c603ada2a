"""The audit log in a file of its own."""

import json
import logging
from pathlib import Path
from queue import Queue

import pytest

from ottla.broker.access.audit import AUDIT
from ottla.broker.audit_file import Waiting, audit_to
from ottla.testing import Broker
from ottla.wire.apis import ApiKey
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from tests.broker.guarded import GUARDED
from tests.broker.wire_client import WireClient


async def test_a_broker_writes_who_was_refused_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"older": true}\n')
    with Broker({**GUARDED, "audit.log.path": str(path)}) as broker:
        async with WireClient(broker) as client:
            await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(True))
        broker.stop()
    older, line = map(json.loads, path.read_text().splitlines())
    assert older == {"older": True}
    assert (line["result"], line["api"], line["resource_name"]) == ("DENIED", "DescribeCluster", "kafka-cluster")


def test_meanwhile_nothing_of_it_goes_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.log"
    AUDIT.setLevel(logging.INFO)
    with audit_to(str(path)):
        for number in range(1000):
            AUDIT.info("%s", json.dumps({"number": number}))
    AUDIT.info("afterwards")
    assert [json.loads(line)["number"] for line in path.read_text().splitlines()] == list(range(1000))
    assert [each.getMessage() for each in caplog.records] == ["afterwards"]


def test_nobody_else_can_read_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with audit_to(str(path)):
        assert path.stat().st_mode & 0o777 == 0o600
        path.rename(tmp_path / "audit.log.1")
        AUDIT.info("in a new file")
    assert path.read_text() == "in a new file\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"), audit_to(str(tmp_path / "nowhere" / "audit.log")):
        pass
    assert AUDIT.propagate
    assert AUDIT.handlers == []


def test_lines_that_are_lost_are_counted() -> None:
    lines: Queue[logging.LogRecord] = Queue(2)
    waiting = Waiting(lines)
    say = [logging.makeLogRecord({"msg": str(number), "created": 1.5}) for number in range(6)]
    for each in say[:5]:
        waiting.emit(each)
    assert [lines.get_nowait().getMessage() for _ in range(2)] == ["0", "1"]
    waiting.emit(say[5])
    lost, last = (lines.get_nowait().getMessage() for _ in range(2))
    assert json.loads(lost) == {"time_ms": 1500, "result": "LOST", "lines": 3}
    assert last == "5"
