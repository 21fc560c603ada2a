"""What Spark writes of a query whose options hold secrets: logs at DEBUG, plans, progress, web pages, the event log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla import Admin, NewTopic, Producer
from ottla.spark.run import launch
from ottla.testing import Broker
from tests.broker import four_listeners
from tests.hidden import spark_script
from tests.marked import MARK, leaks_below
from tests.spark.conftest import java as java

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _properties(path: Path, config: dict[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    return path


@pytest.mark.usefixtures("java")
def test_x1_spark_writes_no_secret_of_its_options(tmp_path: Path) -> None:
    said, events = tmp_path / "said", tmp_path / "said" / "events"
    events.mkdir(parents=True)
    four_listeners.make_certificates(tmp_path)
    with Broker(four_listeners.settings(tmp_path)) as broker:
        config = four_listeners.client(tmp_path, "SASL_SSL", broker.listener("SASL_SSL"))
        with Admin(config) as admin:
            admin.create_topics([NewTopic(name, 1) for name in ("said", "copied")])
        with Producer(config) as producer:
            producer.send("said", b"one line").result()
        wrong = {**config, "sasl.password": f"wrong-{MARK}", "default.api.timeout.ms": "5000", "max.block.ms": "5000"}
        files = [_properties(tmp_path / "right.properties", config), _properties(tmp_path / "wrong.properties", wrong)]
        argv, env = launch(
            Path(spark_script.__file__),
            [*map(str, files), str(tmp_path / "checkpoint")],
            master="local[2]",
            conf=["spark.eventLog.enabled=true", f"spark.eventLog.dir=file://{events}", "spark.ui.port=0"],
            environ=os.environ,
        )
        done = subprocess.run(argv, env=env, capture_output=True, timeout=500, check=False)
    (said / "spark.out").write_bytes(done.stdout)
    (said / "spark.err").write_bytes(done.stderr)
    told = done.stdout.decode(errors="replace")
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    assert "right: done" in told
    assert "wrong: " in told
    assert "SaslAuthenticationError" in told, "the wrong password was not an error"
    assert " DEBUG " in done.stderr.decode(errors="replace"), "Spark was not at its highest level"
    assert any(each.stat().st_size for each in events.rglob("*") if each.is_file()), "Spark has kept no events"
    assert sys.getsizeof(told) > 100_000, "the web pages were not read"
    assert list(leaks_below(said)) == []
    assert list(leaks_below(tmp_path / "checkpoint")) == []
