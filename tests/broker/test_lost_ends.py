"""A loss of power takes the end of a log that clients have read; others write there again, and further. Who reads on is
told of that by the leader epoch (KIP-320), and reads nothing from the middle of the other records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as Librdkafka

from ottla import Consumer, LogTruncatedError, Producer
from ottla.testing import Broker
from ottla.wire.batch import iter_headers

_LOG = Path("t-0") / f"{0:020}.log"
#: So many records are read, so many of them are there after the loss, so many others are written behind these.
_READ, _LEFT, _OTHERS = 10, 5, 20
_OTHER = [b"other %d" % number for number in range(_OTHERS)]
#: No poll of these clients takes that long.
_PATIENCE_S = 20.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    """With a topic `t` that has been read."""
    with Broker({"auto.create.topics.enable": "false"}) as running:
        running.create_topics("t")
        _write(running, [b"old %d" % number for number in range(_READ)])
        yield running


def _write(broker: Broker, values: list[bytes]) -> None:
    """A batch for each."""
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for value in values:
            producer.send("t", value).result(_PATIENCE_S)


def _lose_the_end(broker: Broker) -> None:
    """The broker dies, and its log ends earlier when it is back; others are written further than it was read."""
    broker.kill()
    path = broker.data_dir / _LOG
    content = path.read_bytes()
    (end,) = [position for position, header in iter_headers(content) if header.base_offset == _LEFT]
    path.write_bytes(content[:end])
    broker.start()
    _write(broker, _OTHER)


def _consumer(broker: Broker, **options: str) -> Consumer:
    config = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    return Consumer({"bootstrap.servers": broker.bootstrap_servers, **config, **options})


def _values(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        records = consumer.poll(_PATIENCE_S)
        assert records
        values += [record.value or b"" for record in records]
    return values


@pytest.mark.parametrize("goes_on", ["position", "commit"])
def test_c5_a_consumer_reads_from_where_the_log_was_cut(broker: Broker, goes_on: str) -> None:
    with _consumer(broker) as consumer:
        consumer.subscribe(["t"])
        assert len(_values(consumer, _READ)) == _READ
        consumer.commit()
        if goes_on == "position":
            _lose_the_end(broker)
            assert _values(consumer, _OTHERS) == _OTHER
            return
    _lose_the_end(broker)
    with _consumer(broker) as consumer:
        consumer.subscribe(["t"])
        assert _values(consumer, _OTHERS) == _OTHER


def test_c5_a_consumer_without_a_policy_is_told(broker: Broker) -> None:
    with _consumer(broker) as consumer:
        consumer.subscribe(["t"])
        assert len(_values(consumer, _READ)) == _READ
        consumer.commit()
    _lose_the_end(broker)
    with _consumer(broker, **{"auto.offset.reset": "none"}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(LogTruncatedError, match=r"cut at offset 5: offsets 5 to 9"):
            _values(consumer, 1)


def _polled(consumer: Any, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        message = consumer.poll(_PATIENCE_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append((message.offset(), message.value()))
    return found


def test_librdkafka_does_not_read_on_in_the_middle_of_other_records(broker: Broker) -> None:
    """It goes on where the log was cut. (Behind an offset that a group has committed it does not ask.)"""
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Librdkafka({**config, "enable.auto.commit": False, "log_level": 2})
    consumer.subscribe(["t"])
    assert len(_polled(consumer, _READ)) == _READ
    _lose_the_end(broker)
    found = _polled(consumer, _OTHERS)
    assert [offset for offset, _ in found] == list(range(_LEFT, _LEFT + _OTHERS))
    assert [value for _, value in found] == _OTHER
    consumer.close()
