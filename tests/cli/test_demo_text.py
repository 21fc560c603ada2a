"""What the demo reads, and the sentences it says about files it cannot use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.cli.common import CommandError
from ottla.cli.demo.text import input_lines, reference_lines, repeated, require_countable


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
    assert input_lines(str(tmp_path)) == ["one", "", "two", "three\r", "four\u2028five"]


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
        input_lines(str(path))
    assert sentence in str(fault.value)


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_what_is_neither_file_nor_folder_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = Path(os.devnull) if kind == "device" else tmp_path / "pipe"
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(CommandError, match="is neither a file nor a folder"):
        input_lines(str(path))


def test_an_empty_folder_gets_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="holds no text; name a text file"):
        input_lines(str(tmp_path))


@pytest.mark.parametrize("name", [b"with blank.txt", b"new\nline.txt", b"not \xff utf-8.txt"])
def test_names_may_have_any_bytes(tmp_path: Path, name: bytes) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.write_bytes(b"one\n")
    assert input_lines(str(path)) == input_lines(str(tmp_path)) == ["one"]
    path.write_bytes(b"\xff")
    with pytest.raises(CommandError, match="byte 0xff is not UTF-8") as fault:
        input_lines(str(path))
    assert str(fault.value).isprintable()
    str(fault.value).encode()


def test_a_folder_may_hold_what_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CommandError, match="holds no text"):
        input_lines(str(tmp_path))
    (tmp_path / "text").write_text("one\n")
    assert input_lines(str(tmp_path)) == ["one"]
    with pytest.raises(CommandError, match="broken does not exist"):
        input_lines(str(tmp_path / "broken"))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that nobody can read")
def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(CommandError, match="/proc/self/mem cannot be read: "):
        input_lines("/proc/self/mem")


def test_no_name_is_not_the_current_folder() -> None:
    with pytest.raises(CommandError, match="--input is empty"):
        input_lines("")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["", " \t\r"], "holds no words"),
        (["fine", "x" * 900_000], "line 2 has a word of 900,000 characters"),
        (["fine", '"' * 400_000], "line 2 has a word of 400,000 characters"),
        (["fine", "x " * 600_000], "line 2 has 1,200,000 characters"),
    ],
)
def test_what_cannot_be_counted_gets_a_clear_error(lines: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        require_countable(lines)


def test_what_just_fits_is_counted() -> None:
    require_countable(["x " * 500_000, "x" * 500_000])
