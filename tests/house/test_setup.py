"""What sets a checkout up: scripts that parse, requirements that are pinned with hashes and complete."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.tree import ROOT


@pytest.mark.parametrize("script", ["tools/setup.sh", ".ci/run"])
def test_scripts_parse_and_may_be_run(script: str) -> None:
    assert (ROOT / script).stat().st_mode & 0o100, "not executable"
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


def _pinned(name: str) -> dict[str, str]:
    """Package → the rest of its entry, continuation lines joined."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if line.strip():
            package, _, rest = line.partition("==")
            found[package.strip().lower().replace("_", "-")] = rest
    return found


@pytest.mark.parametrize("name", ["build", "dev"])
def test_every_requirement_is_pinned_with_hashes(name: str) -> None:
    unpinned = [package for package, rest in _pinned(name).items() if "--hash=sha256:" not in rest]
    assert not unpinned


def test_what_the_package_needs_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *(each for extra in project["project"]["optional-dependencies"].values() for each in extra),
    ]
    names = {match.group().lower() for each in wanted if (match := re.match(r"[A-Za-z0-9-]+", each))} - {"ottla"}
    missing = names - set(_pinned("dev"))
    assert not missing, "run `make requirements`"
    build = {match.group().lower() for each in project["build-system"]["requires"] if (match := re.match(r"\w+", each))}
    assert build <= set(_pinned("build"))


def test_without_a_compiler_the_build_goes_on_with_nothing_compiled(tmp_path: Path) -> None:
    shutil.copy(ROOT / "setup.py", tmp_path)
    source = shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so"))
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    environment = {**os.environ, "CC": "no-such-compiler"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list(source.rglob("*.so"))


def test_the_package_has_the_demos_pipeline_and_no_c_files(tmp_path: Path) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so"))
    (tmp_path / "src/ottla/wire/generated.c").touch()
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "built"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    built = tmp_path / "built" / "ottla"
    assert (built / "cli/demo/wordcount.py").read_text() == (ROOT / "examples/wordcount.py").read_text()
    assert (built / "py.typed").exists()
    assert not [each.name for each in built.rglob("*") if each.suffix in {".c", ".pxd"}]


def test_every_module_that_is_to_be_compiled_is_where_one_is() -> None:
    """Each may fail to build without a word: `optional`, for machines without a compiler. Then all are source."""
    listed = re.search(r"^COMPILED = \[\n(.*?)^\]", (ROOT / "setup.py").read_text(), re.M | re.S)
    assert listed is not None
    names = re.findall(r'"([\w.]+)"', listed[1])
    assert "ottla.log.cleaner.offset_map" in names
    built = {name for name in names if list((ROOT / "src").glob(f"{name.replace('.', '/')}.*.so"))}
    assert built in (set(), set(names)), f"not compiled: {sorted(set(names) - built)}"
