"""Where the lines come from."""

from __future__ import annotations

import json
from pathlib import Path

from ottla.cli.common import CommandError

#: What `max.request.size` and `message.max.bytes` (1 MiB) leave for key and value.
_RECORD_BYTES = 1_048_576 - 1_024
#: A line below this length cannot be too large: a word is written twice, and JSON may need six bytes for a character.
_WORST_CASE = 12


def reference_lines() -> list[str]:
    """Every line of the reference texts that Python ships for `help()`: about eleven thousand."""
    from pydoc_data.topics import topics

    return [line for _name, text in sorted(topics.items()) for line in text.split("\n")]


def input_lines(name: str) -> list[str]:
    """Every line of a text file, or of all files below a folder in the order of their names.

    CommandError when the path does not exist or is something else, such as a pipe, when a file cannot be read or is not
    UTF-8, and when there is nothing in it.
    """
    if not name:
        raise CommandError("--input is empty; name a text file or a folder with text files, or leave it away")
    path = Path(name)
    if not path.exists():
        raise CommandError(f"--input {shown(path)} does not exist; name a text file or a folder with text files")
    if not path.is_dir() and not path.is_file():  # for example a pipe: reading it could wait for ever
        raise CommandError(f"--input {shown(path)} is neither a file nor a folder; write the text to a file first")
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    lines = [line for file in files for line in _lines_of(file)]
    if not lines:
        what = "holds no text" if path.is_dir() else "is empty"
        raise CommandError(f"--input {shown(path)} {what}; name a text file or a folder with text files")
    return lines


def require_countable(lines: list[str]) -> None:
    """CommandError when there are no words, or a line or a word is too large for a record of the pipeline."""
    if not any(line and not line.isspace() for line in lines):
        raise CommandError("the input holds no words, so there is nothing to count")
    for number, line in enumerate(lines, 1):
        if len(line) * _WORST_CASE < _RECORD_BYTES:
            continue
        if len(line.encode()) > _RECORD_BYTES:
            raise CommandError(f"line {number} has {len(line):,} characters, more than a record may hold; break it up")
        # The pipeline writes a word twice, as the key and, in JSON, in the value.
        word = max(line.split(), key=len, default="")
        if len(word.encode()) + len(json.dumps(word, ensure_ascii=False).encode()) > _RECORD_BYTES:
            raise CommandError(
                f"line {number} has a word of {len(word):,} characters; its record would be larger than a broker "
                "takes (message.max.bytes, 1 MiB)"
            )


def shown(path: Path) -> str:
    """The name of a file for a message, whatever bytes are in it."""
    return str(path) if str(path).isprintable() else ascii(str(path))


def _lines_of(file: Path) -> list[str]:
    try:
        content = file.read_bytes()
    except OSError as fault:
        raise CommandError(f"{shown(file)} cannot be read: {fault.strerror}") from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        raise CommandError(
            f"{shown(file)}, line {line}: byte 0x{content[fault.start]:02x} is not UTF-8; convert the file first, "
            f"for example with `iconv -f latin1 -t utf-8`"
        ) from None
    # Lines end with \n alone: what else Unicode calls a line break stays inside its line.
    return text.removesuffix("\n").split("\n") if text else []


def repeated(lines: list[str], at_least: int) -> list[str]:
    """`lines` repeated until there are `at_least` of them. The last repetition is complete too."""
    return lines * max(1, -(-at_least // len(lines)))
