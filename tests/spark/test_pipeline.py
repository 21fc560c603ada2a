"""SPEC S3: the source's offsets, out of the checkpoint, to be committed with the output."""

import json
from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.spark.errors import PipelineError
from ottla.spark.pipeline import batch_offsets, offsets_of_log
from ottla.spark.plan import SourceOffset

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
OURS = json.dumps(SourceOffset({A0: 1}, {A0: 5, A1: 9}, "g").to_json())
NO_GROUP = json.dumps(SourceOffset({}, {A0: 5}).to_json())


def log(*sources: str) -> str:
    return "\n".join(["v1", '{"batchWatermarkMs":0}', *sources])


def test_s3_the_group_of_the_source_gets_the_end_of_the_batch() -> None:
    assert offsets_of_log(log(OURS), None) == {"g": {"a": {0: 5, 1: 9}}}


def test_s3_sources_without_a_group_or_of_others_are_left_out() -> None:
    assert offsets_of_log(log(NO_GROUP, "-", '{"lines":{"0":7}}', "12", "[1]"), None) == {}


def test_s3_the_sink_may_name_the_group() -> None:
    assert offsets_of_log(log(NO_GROUP), "h") == {"h": {"a": {0: 5}}}


def test_s3_an_unknown_form_of_the_log_is_an_error() -> None:
    with pytest.raises(PipelineError, match="unknown form"):
        offsets_of_log("{}", None)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_s3_offsets_are_read_from_the_checkpoint(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text(log(OURS))
    assert batch_offsets(f"{scheme}{tmp_path}/", 7, None) == {"g": {"a": {0: 5, 1: 9}}}


def test_s3_a_group_that_was_asked_for_must_get_its_offsets(tmp_path: Path) -> None:
    assert batch_offsets(str(tmp_path), 7, None) == {}
    for checkpoint in (str(tmp_path), None):
        with pytest.raises(PipelineError, match=r"kafka\.group\.id g: the batch's offsets cannot be read"):
            batch_offsets(checkpoint, 7, "g")
