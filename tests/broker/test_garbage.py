"""The broker leaves nothing of its own to the full collection, so that it can do without (`broker.garbage`)."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.broker.kept_errors_program import ACTS


def _said(module: str, *args: str) -> Any:
    return json.loads(subprocess.run([sys.executable, "-m", module, *args], stdout=subprocess.PIPE, check=True).stdout)


def test_a_broker_leaves_nothing_of_its_own_to_the_full_collection() -> None:
    assert _said("tests.broker.garbage_program") == {}


def test_what_is_left_to_it_nevertheless_does_not_grow_while_clients_are_served_and_what_is_kept_costs_once() -> None:
    assert _said("tests.broker.busy_garbage_program") == {
        "few": [True],
        "many": [False, False],
        "kept": [True],
        "short": [True, True],
    }


@pytest.mark.parametrize("act", ACTS)
def test_an_error_that_is_kept_is_in_no_cycle(act: str) -> None:
    assert _said("tests.broker.kept_errors_program", act) == []
