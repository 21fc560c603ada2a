"""Where the lines come from."""

from __future__ import annotations

from pathlib import Path

from ottla.cli.common import CommandError


def reference_lines() -> list[str]:
    """Every line of the reference texts that Python ships for `help()`: about eleven thousand."""
    from pydoc_data.topics import topics

    return [line for _name, text in sorted(topics.items()) for line in text.split("\n")]


def input_lines(path: Path) -> list[str]:
    """Every line of a text file, or of all files below a folder in the order of their names.

    CommandError when the path does not exist, a file is not UTF-8, or there is nothing in it.
    """
    if not path.exists():
        raise CommandError(f"--input {path} does not exist; name a text file or a folder with text files")
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    lines = [line for file in files for line in _lines_of(file)]
    if not lines:
        what = "holds no text" if path.is_dir() else "is empty"
        raise CommandError(f"--input {path} {what}; name a text file or a folder with text files")
    return lines


def _lines_of(file: Path) -> list[str]:
    content = file.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        raise CommandError(
            f"{file}, line {line}: byte 0x{content[fault.start]:02x} is not UTF-8; convert the file first, "
            f"for example with `iconv -f latin1 -t utf-8`"
        ) from None
    # Lines end with \n alone: what else Unicode calls a line break stays inside its line.
    return text.removesuffix("\n").split("\n") if text else []


def repeated(lines: list[str], at_least: int) -> list[str]:
    """`lines` as often as it takes to have `at_least` of them, the last time whole as well."""
    return lines * max(1, -(-at_least // len(lines)))
