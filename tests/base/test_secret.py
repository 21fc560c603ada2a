"""A secret shows itself in nothing but `reveal`."""

import copy
import json
import pickle
from dataclasses import dataclass

import pytest

from ottla.base.secret import Secret


@dataclass
class _Holder:
    password: Secret


def test_a_secret_is_hidden_wherever_it_is_shown() -> None:
    secret = Secret("hunter2")
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret!s:>20}", repr(_Holder(secret)), "%s" % secret):  # noqa: UP031
        assert "hunter2" not in shown
        assert "[hidden]" in shown
    assert secret.reveal() == "hunter2"


def test_a_secret_goes_nowhere_by_itself() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(_Holder(Secret("hunter2")))
    with pytest.raises(TypeError, match="not pickled"):
        copy.deepcopy(Secret("hunter2"))
    with pytest.raises(TypeError):
        json.dumps(Secret("hunter2"))


def test_secrets_are_equal_by_their_text() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
