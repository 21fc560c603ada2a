"""SPEC S1: a log damaged under a query stops it with a sentence that names the place; nothing is passed over."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla.spark.errors import DamagedRecordsError
from ottla.testing import Broker
from ottla.wire.batch import iter_headers
from tests.spark.source_world import World, batch_values


@pytest.mark.parametrize("kind", ["a body", "a header", "cut"])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_s1_damaged_records_are_named_and_not_passed_over(tmp_path: Path, kind: str, fail: str) -> None:
    with Broker(data_dir=tmp_path) as broker:
        world = World(broker.bootstrap_servers, "t")
        for first in range(5):
            if first:
                world.fill(1, first)
            else:
                world.make(1)
        broker.stop()
        log = tmp_path / "t-0" / f"{0:020}.log"
        data = bytearray(log.read_bytes())
        starts = [at for at, _header in iter_headers(data)]
        if kind == "cut":
            del data[starts[3] :]
        elif kind == "a body":
            data[starts[3] + 65] ^= 1
        else:
            data[starts[3] : starts[3] + 61] = bytes(61)
        log.write_bytes(data)
        broker.start()
        reader = World(broker.bootstrap_servers, "t").reader(failOnDataLoss=fail)
        with pytest.raises(DamagedRecordsError, match=r"t-0: what follows from offset [0-3] on is damaged \("):
            batch_values(reader)
