"""The search for secrets at the end of a run can find them, and every secret of the tests can be found by it."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.authentication.token_issuer import Issuer
from tests.house.tree import ROOT
from tests.marked import MARK, leaks_below, leaks_in

#: Where a test writes a secret that goes over a network or into a configuration; then the secret.
_GIVEN = re.compile(
    r"""(?:sasl[._](?:plain_)?password|client[._][sS]ecret|clientSecret|key[._]password|\buser_\w+|\bpassword)"""
    r"""(?:["']\s*:|\s*=)\s*\\?["']([^"'{}\\]{4,})\\?["']"""
)
_TEST = """
import logging, sys, traceback
def test_a(tmp_path):
    secret = "{secret}"
    {leak}
"""
_WAYS = {
    "printed": "print(f'its password is {secret}')",
    "said on standard error": "print(secret, file=sys.stderr)",
    "logged": "logging.getLogger('x').warning('wrong: %s', secret)",
    "in a file": "(tmp_path / 'spark.log').write_text('sasl.password -> ' + secret)",
    "in a traceback": """
    try:
        raise ValueError(secret)
    except ValueError:
        traceback.print_exc()""",
    "in base64": "import base64; print(base64.b64encode(b'n,,n=alice,' + secret.encode()))",
    "a key": "print('-----BEGIN PRIVATE KEY-----\\nMIIE')",
}


@pytest.fixture
def apart() -> Iterator[Path]:
    """A directory in which the search at the end of this run does not look."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def _run(directory: Path, leak: str) -> subprocess.CompletedProcess[str]:
    test = directory / "test_planted.py"
    # put together there, so that no line of the planted test is taken for a leak
    test.write_text(_TEST.format(secret=f'" "alice-{MARK[:3]}" "{MARK[3:]}', leak=leak))
    options = ("-p", "tests.leaks", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(directory))
    where = ("--basetemp", str(directory / "run"))
    command = [sys.executable, "-m", "pytest", "-q", *options, *where, str(test)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("way", _WAYS)
def test_negative_control_a_planted_secret_fails_a_run_that_else_passes(apart: Path, way: str) -> None:
    done = _run(apart, _WAYS[way])
    assert (done.returncode, "1 passed" in done.stdout) == (1, True), done.stdout
    assert "secrets in what was written" in done.stdout


def test_a_run_without_secrets_passes(apart: Path) -> None:
    done = _run(apart, "(tmp_path / 'client.properties').write_text(secret); print('[hidden]')")
    assert (done.returncode, "secrets in" in done.stdout) == (0, False), done.stdout


@pytest.mark.parametrize("before", range(7))
def test_the_mark_is_found_in_base64_wherever_it_begins(before: int) -> None:
    for after in range(4):
        assert leaks_in(base64.b64encode(b"x" * before + MARK.encode() + b"y" * after), "there")
    assert not leaks_in(base64.b64encode(b"x" * 60), "there")


def test_a_token_of_the_tests_is_found() -> None:
    header, claims, _ = Issuer().token().split(".")
    assert leaks_in(claims.encode(), "there")
    assert not leaks_in(header.encode(), "there")


def test_a_secret_is_found_where_two_reads_of_a_file_meet(apart: Path) -> None:
    for place in (0, (8 << 20) - 3, 20 << 20):
        (apart / "broker.log").write_bytes(b"." * place + MARK.encode() + b"." * 100)
        (found,) = leaks_below(apart)
        assert found.where.endswith("broker.log")


def test_every_secret_of_the_tests_has_the_mark() -> None:
    unmarked = {
        f"{path.relative_to(ROOT)}:{number}: {secret}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for secret in _GIVEN.findall(line)
        if MARK not in secret
    }
    assert not unmarked
