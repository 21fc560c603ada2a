"""`ottla dump-log` has nothing to say against what Apache Kafka writes, stopped or killed."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.main import main
from tests.interop.apache import ApacheKafka
from tests.interop.pipeline import run_pipeline

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("apache_jars")]

_NOW_MS = 1_700_000_000_000


def _produce_old_and_new(bootstrap: str) -> None:
    """Several segments of many batches whose timestamps go up and down."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"index.interval.bytes": "100", "segment.bytes": str(1024 * 1024), "retention.ms": "-1"}
    admin.create_topics([NewTopic("uneven", 1, 1, config=config)])["uneven"].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 3})
    for number in range(3_000):
        timestamp_ms = _NOW_MS + (number if number % 4 else 3_000 - number)
        producer.produce("uneven", bytes(1_000), partition=0, timestamp=timestamp_ms)
    assert producer.flush(60) == 0


def _dumped(kafka: ApacheKafka, capfd: pytest.CaptureFixture[str]) -> str:
    directories = [str(path) for path in sorted(kafka.data_dir.iterdir()) if path.is_dir()]
    capfd.readouterr()  # librdkafka has a say of its own
    code = main(["dump-log", *directories])
    said = capfd.readouterr()
    assert (code, said.err) == (0, "")
    return said.out


def test_every_index_of_apache_kafka_passes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ApacheKafka(tmp_path) as kafka:
        run_pipeline(kafka.bootstrap)
        _produce_old_and_new(kafka.bootstrap)
        kafka.kill9()
        uneven = kafka.data_dir / "uneven-0"
        newest = max(uneven.glob("*.timeindex"))
        assert newest.read_bytes().endswith(bytes(1_200))  # room that it has not used
        assert len(list(uneven.glob("*.log"))) > 2
        killed = _dumped(kafka, capfd)
        assert killed.count(".timeindex:") == killed.count(".log:")
        kafka.start()
        kafka.stop()
        assert newest.stat().st_size < 12 * 3_000
        assert _dumped(kafka, capfd).count("timestamp_ms: ") > killed.count("timestamp_ms: ")
