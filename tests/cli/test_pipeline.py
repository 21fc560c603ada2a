"""`ottla pipeline adopt`: a checkpoint changes hands."""

import json
from pathlib import Path

import pytest

from ottla.spark.plan import SourceOffset, offsets_from_json
from tests.cli.conftest import Ottla

_META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
_OURS = SourceOffset(
    offsets_from_json({"lines": {"0": 5}}), offsets_from_json({"lines": {"0": 20, "1": 31}}), "group"
).to_json()


def _checkpoint(directory: Path, *planned: str, committed: int) -> Path:
    for name in ("offsets", "commits"):
        (directory / name).mkdir()
    for number, line in enumerate(planned):
        (directory / "offsets" / str(number)).write_text(f"v1\n{_META}\n{line}\n-")
        (directory / "offsets" / f".{number}.crc").write_bytes(b"crc")
        if number <= committed:
            (directory / "commits" / str(number)).write_text("v1\n{}")
    return directory


def test_s1_a_committed_checkpoint_goes_on_where_it_is(ottla: Ottla, tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, '{"lines":{"0":5}}', '{"lines":{"0":20,"1":31}}', committed=1)
    said = ottla("pipeline", "adopt", str(checkpoint))
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "Micro-batch 1 is the newest; it is committed.",
        "Source 1 (kafka):",
        "  lines-0 is read up to 20",
        "  lines-1 is read up to 31",
        'Started with format("ottla"), the query goes on there. Nothing is read twice or left out.',
        "Unless a topic was deleted and made again meanwhile: these offsets have no ids of topics. Where one lies "
        "behind an open transaction, the query says so and stops; "
        "with kafka.isolation.level=read_uncommitted it goes on.",
    ]
    assert ottla("pipeline", "adopt", str(checkpoint), "--json").data == {
        "planned": 1,
        "committed": 1,
        "sources": [{"owner": "kafka", "offsets": {"lines": {"0": 20, "1": 31}}}],
    }


def test_s1_a_micro_batch_that_is_not_committed_is_read_again(ottla: Ottla, tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, '{"lines":{"0":5}}', '{"lines":{"0":20,"1":31}}', committed=0)
    said = ottla("pipeline", "adopt", str(checkpoint))
    assert said.code == 0
    assert "  lines-0 from 5 to 20\n  lines-1 from its beginning to 31\n" in said.out
    assert "reads micro-batch 1 again" in said.out


def test_s1_back_the_newest_file_is_written_as_spark_s_own_connector_writes_it(ottla: Ottla, tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, '{"lines":{"0":5}}', json.dumps(_OURS), committed=1)
    old = (checkpoint / "offsets" / "1").read_text()
    said = ottla("pipeline", "adopt", str(checkpoint), "--back", "--yes")
    assert said.code == 0
    assert (checkpoint / "offsets" / "1").read_text() == f'v1\n{_META}\n{{"lines":{{"0":20,"1":31}}}}\n-'
    kept = {file.name: file.read_text() for file in (checkpoint / "offsets").iterdir() if file.name not in ("0", "1")}
    assert kept == {".0.crc": "crc", "1-before-it-was-handed-back": old}
    assert ottla("pipeline", "adopt", str(checkpoint), "--json").data["sources"][0]["owner"] == "kafka"


@pytest.mark.parametrize(
    ("planned", "committed", "options", "why"),
    [
        ((), -1, (), "is no checkpoint of a query that has planned a micro-batch"),
        (('{"lines":{"0":5}}',), -1, (), "its first micro-batch is not committed"),
        (('{"lines":{"0":5}}',) * 3, 0, (), "offsets/2 is its newest plan, and its newest commit is commits/0"),
        ((json.dumps(_OURS),), 0, (), "none of its sources is of Spark's own Kafka connector"),
        (('{"path":"/data"}',), 0, (), "none of its sources is of Spark's own Kafka connector"),
        (("no JSON",), 0, (), "none of its sources is of Spark's own Kafka connector"),
        (("{no JSON",), 0, (), "none of its sources is of Spark's own Kafka connector"),
        (('{"lines":{"0":5}}',), 0, ("--back",), "none of its sources is Ottla's"),
        ((json.dumps(_OURS),) * 2, 0, ("--back",), "micro-batch 1 is not committed"),
    ],
)
def test_s1_what_cannot_change_hands_is_told(
    ottla: Ottla, tmp_path: Path, planned: tuple[str, ...], committed: int, options: tuple[str, ...], why: str
) -> None:
    said = ottla("pipeline", "adopt", str(_checkpoint(tmp_path, *planned, committed=committed)), *options)
    assert said.code == 1
    assert why in said.err
    assert "the query goes on there" not in said.out


def test_s1_nothing_is_handed_back_that_is_not_ours_with_json_neither(ottla: Ottla, tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, '{"logOffset":3}', committed=0)
    before = {file: file.read_bytes() for file in (checkpoint / "offsets").iterdir()}
    said = ottla("pipeline", "adopt", str(checkpoint), "--back", "--yes", "--json")
    assert said.code == 1
    assert "none of its sources is Ottla's" in said.err
    assert {file: file.read_bytes() for file in (checkpoint / "offsets").iterdir()} == before
    assert ottla("pipeline", "adopt", str(checkpoint), "--json").code == 1
