"""`ottla.wire.compiled` says which form of the hot loops runs."""

import os

import pytest

import ottla.wire


@pytest.mark.skipif(not os.environ.get("OTTLA_INTERPRETED"), reason="only the interpreted run knows what it must be")
def test_the_interpreted_run_is_interpreted() -> None:
    assert not ottla.wire.compiled()
