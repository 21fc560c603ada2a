"""The interpreted run takes the package's source, and nothing else's, wherever the checkout lies."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.house.tree import ROOT

_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
_PROGRAM = """
import sys
from pathlib import Path
from tests.interpreted import pass_over_compiled
checkout = Path(sys.argv[1])
pass_over_compiled(checkout / "src" / "ottla")
sys.path[:0] = [str(checkout / "src"), str(checkout / ".venv")]
import ottla.inner
print(ottla.inner.WHICH)
try:
    import library
except ImportError as error:
    print(error)
"""


def test_only_the_package_is_interpreted_in_a_checkout_that_is_named_like_it(tmp_path: Path) -> None:
    package, environment = tmp_path / "ottla" / "src" / "ottla", tmp_path / "ottla" / ".venv"
    package.mkdir(parents=True)
    environment.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text("WHICH = 'source'")
    for compiled in (package / f"inner{_SUFFIX}", environment / f"library{_SUFFIX}"):
        compiled.write_bytes(b"no library")
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path / "ottla")]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == "source"
    assert f"library{_SUFFIX}" in said[1], "the library's own file was looked at"
