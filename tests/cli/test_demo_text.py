"""What the demo reads, and the sentences it says about files it cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.common import CommandError
from ottla.cli.demo.text import input_lines, reference_lines, repeated


def test_reference_texts_are_repeated_whole_to_the_wanted_number() -> None:
    lines = reference_lines()
    many = repeated(lines, 200_000)
    assert len(many) >= 200_000
    assert len(many) % len(lines) == 0
    assert many[: len(lines)] == many[-len(lines) :] == lines


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"three\r\nfour\xe2\x80\xa8five\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_bytes(b"one\n\ntwo")
    assert input_lines(tmp_path) == ["one", "", "two", "three\r", "four\u2028five"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty; name a text file or a folder"),
        (b"fine\nalso fine\nnot \xff fine\n", "line 3: byte 0xff is not UTF-8; convert the file first"),
        (None, "does not exist; name a text file or a folder"),
    ],
)
def test_what_cannot_be_read_gets_a_clear_error(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    path = tmp_path / "input.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandError) as fault:
        input_lines(path)
    assert sentence in str(fault.value)


def test_an_empty_folder_gets_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="holds no text; name a text file"):
        input_lines(tmp_path)
