"""SPEC S3: the source's offsets, out of the checkpoint, to be committed with the output."""

import json
import os
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.spark.errors import PipelineError
from ottla.spark.pipeline import checkpoint_of, foreach_batch, group_offsets, of_this_cluster, planned, sources_of_log
from ottla.spark.plan import SourceOffset

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
OURS = json.dumps(SourceOffset({A0: 1}, {A0: 5, A1: 9}, "g", {"a": "A"}).to_json())
NO_GROUP = json.dumps(SourceOffset({}, {A0: 5}).to_json())


def log(*sources: str) -> str:
    return "\n".join(["v1", '{"batchWatermarkMs":0}', *sources])


def test_s3_the_group_of_the_source_gets_the_end_of_the_batch() -> None:
    assert group_offsets(sources_of_log(log(OURS)), None) == {"g": {"a": {0: 5, 1: 9}}}


def test_s3_sources_without_a_group_or_of_others_are_left_out() -> None:
    assert group_offsets(sources_of_log(log(NO_GROUP, "-", '{"lines":{"0":7}}', "12", "[1]")), None) == {}


def test_s3_the_sink_may_name_the_group() -> None:
    assert group_offsets(sources_of_log(log(NO_GROUP)), "h") == {"h": {"a": {0: 5}}}


@pytest.mark.parametrize("group", [None, "h"])
def test_s3_two_sources_of_one_topic_and_group_commit_what_both_have_read(group: str | None) -> None:
    """Whichever comes last: each has a limit of its own, and may be behind."""
    fast = SourceOffset({}, {A0: 50, A1: 3}, "g")
    slow = SourceOffset({}, {A0: 7, A1: 9, TopicPartition("b", 0): 1}, "g")
    for sources in ((fast, slow), (slow, fast)):
        assert group_offsets(sources, group) == {group or "g": {"a": {0: 7, 1: 3}, "b": {0: 1}}}


def test_s3_the_second_form_of_the_log_names_its_sources() -> None:
    text = "\n".join(["v2", "{}", f"0:{OURS}", "1:-", 'lines:{"lines":{"0":7}}', "x"])
    assert group_offsets(sources_of_log(text), None) == {"g": {"a": {0: 5, 1: 9}}}


def test_s3_offsets_are_committed_for_topics_of_the_sink_s_cluster_alone() -> None:
    offsets = {"g": {"a": {0: 5}, "mirrored": {0: 7}, "gone": {1: 9}, "old": {0: 2}}, "h": {"gone": {0: 1}}}
    here = {"a": "A", "mirrored": "other", "old": "", "more": "M"}
    kept, others = of_this_cluster(offsets, {"a": "A", "mirrored": "M", "gone": "G", "old": "O"}, here)
    assert (kept, others) == ({"g": {"a": {0: 5}, "old": {0: 2}}}, ["gone", "mirrored"])
    assert of_this_cluster({"g": {"a": {0: 5}}}, {}, here) == ({"g": {"a": {0: 5}}}, []), "the checkpoint has no ids"


@pytest.mark.parametrize("text", ["{}", "v3\n{}\n" + OURS, "v1"])
def test_s3_an_unknown_form_of_the_log_is_an_error(text: str) -> None:
    with pytest.raises(PipelineError, match="unknown form"):
        sources_of_log(text)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_s3_offsets_are_read_from_the_checkpoint(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text(log(OURS))
    found = planned(f"{scheme}{tmp_path}/", 7, None)
    assert (found.offsets, found.ids) == ({"g": {"a": {0: 5, 1: 9}}}, {"a": "A"})


def test_s2_a_plan_is_known_by_the_bytes_of_its_file(tmp_path: Path) -> None:
    offsets = tmp_path / "with a space" / "offsets"
    offsets.mkdir(parents=True)
    digests = []
    for text in (log(OURS), log(OURS), log(NO_GROUP), log(OURS).replace("0}", "1}", 1)):
        (offsets / "7").write_text(text)
        digests.append(planned(f"file:{offsets.parent}", 7, None).digest)
    (offsets / "7").write_text("of a form that is not known")
    assert planned(str(offsets.parent), 7, None).digest is not None
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("where", ["unknown://a/b", "hdfs://127.0.0.1:1/a", "/nowhere"])
def test_s2_a_checkpoint_that_cannot_be_read_tells_nothing(where: str) -> None:
    assert planned(where, 7, None)[:2] == (None, {})


def test_s2_a_checkpoint_that_does_not_answer_is_not_waited_for_batch_by_batch(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    silent = tmp_path / "offsets" / "7"
    os.mkfifo(silent)  # whoever opens it waits for a writer
    (tmp_path / "offsets" / "8").write_text(log(OURS))
    assert planned(str(tmp_path), 7, None, wait_s=0.1) == (None, {}, f"{silent}: no answer within 0.1 s", {})
    assert planned(str(tmp_path), 8, None) == (None, {}, f"{silent}: no answer within 0.1 s", {})
    with pytest.raises(PipelineError, match="no answer within"):
        planned(str(tmp_path), 7, "g", wait_s=0.1)
    found = planned(str(tmp_path), 8, None, needed=True)
    assert found.offsets == {"g": {"a": {0: 5, 1: 9}}}
    assert planned(str(tmp_path), 8, None) == found  # it may be asked again
    os.close(os.open(silent, os.O_RDWR))  # lets the threads go on


@pytest.mark.parametrize(
    ("option", "session", "name", "where"),
    [
        ("o", "s", "n", "o"),
        (None, "s/", "n", "s/n"),
        (None, "s", None, None),
        (None, None, "n", None),
    ],
)
def test_s3_the_checkpoint_is_where_spark_puts_it(
    option: str | None, session: str | None, name: str | None, where: str | None
) -> None:
    assert checkpoint_of(option, session, name) == where


def test_s3_a_group_that_was_asked_for_must_get_its_offsets(tmp_path: Path) -> None:
    assert planned(str(tmp_path), 7, None)[:2] == (None, {})
    for checkpoint in (str(tmp_path), None):
        with pytest.raises(PipelineError, match=r"kafka\.group\.id g: the batch's offsets cannot be read"):
            planned(checkpoint, 7, "g")


def test_s2_foreach_batch_tells_that_spark_connect_does_not_have_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the query is made, and in the process of a Connect server that runs its batches."""
    pytest.importorskip("pyspark")
    sink = {"kafka.bootstrap.servers": "a:1", "topic": "t", "sink.id": "s"}
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    write = foreach_batch(sink)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    for call in (lambda: foreach_batch(sink), lambda: write(None, 0)):
        with pytest.raises(PipelineError, match=r"foreach_batch .* Spark Connect .*ottla run --master"):
            call()
