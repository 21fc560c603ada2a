"""What the pages for newcomers show is typed here, block after block, and prints what they say that it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.testing import Broker
from tests.house.tree import ROOT

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: In the pages the broker is where `ottla serve` puts it by default.
_ADDRESS = "127.0.0.1:9092"
#: Times, and which partition a key falls to, are of their moment; the rest is not.
_VARIES = re.compile(r"\d{13}")


class Example(NamedTuple):
    """A script or command of a page, and what stands below it."""

    language: str
    code: str
    shown: str


def _blocks(page: str) -> list[tuple[str, str]]:
    return [(found[1], found[2]) for found in _BLOCK.finditer((ROOT / page).read_text())]


def _scripts(page: str) -> Iterator[Example]:
    """Python programs (what imports ottla), each with the block below when that is plain: what it prints."""
    blocks = [*_blocks(page), ("", "")]
    for (language, code), (below, shown) in pairwise(blocks):
        if language == "python" and "from ottla import" in code:
            yield Example(language, code, shown if not below and not shown.startswith("$") else "")


def _commands(page: str) -> Iterator[Example]:
    """`$ ottla …` with what it prints, or bare `ottla …`; never `serve`, which has been typed already."""
    for language, text in _blocks(page):
        if language:
            continue
        prompted = "$ " in text
        parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if prompted else text.splitlines()
        for part in parts:
            command, _, shown = part.partition("\n")
            if re.match(r"(echo|printf) .*\| ottla |ottla (?!serve|run|--help)", command):
                yield Example("sh", command, shown)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A directory in which `./data` is a broker's, and the broker's address."""
    directory = tmp_path_factory.mktemp("docs")
    with Broker({"num.partitions": 4}, data_dir=directory / "data") as broker:
        yield directory, broker.bootstrap_servers


def _type(example: Example, directory: Path, address: str) -> str:
    code = example.code.replace(_ADDRESS, address)
    shell = [sys.executable, "-c", code] if example.language == "python" else ["bash", "-c", f"set -o pipefail; {code}"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        shell,
        cwd=directory,
        env={**os.environ, "PATH": path, "OTTLA_BOOTSTRAP": address},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{example.code}\n{done.stdout}"
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/getting-started.md", "docs/assignors.md", "docs/exactly-once.md"])
def test_what_the_page_shows_works_as_typed(page: str, place: tuple[Path, str]) -> None:
    examples = [
        each for each in [*_commands(page), *_scripts(page)] if not each.code.startswith(("pip ", "make ", "ottla run"))
    ]
    assert len(examples) > 3
    for example in examples:
        printed = _type(example, *place)
        if example.shown:
            assert _VARIES.sub("N", printed) == _VARIES.sub("N", example.shown), example.code
