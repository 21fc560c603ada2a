"""The broker leaves nothing of its own to the full collection, so that it can do without (`broker.garbage`)."""

import json
import subprocess
import sys


def test_a_broker_leaves_nothing_of_its_own_to_the_full_collection() -> None:
    command = [sys.executable, "-m", "tests.broker.garbage_program"]
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout) == {}
