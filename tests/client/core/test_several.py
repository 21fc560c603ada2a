"""Lists of names that users give."""

import pytest

from ottla import Admin
from ottla.client.core.several import several
from ottla.testing import Broker


def test_one_text_is_not_taken_for_its_letters() -> None:
    assert several(iter(("a", "b")), "topics") == ["a", "b"]
    with pytest.raises(TypeError, match=r"a list of topics is needed, not a str: write \['abc'\]"):
        several("abc", "topics")
    with pytest.raises(TypeError, match="topics must be str, not 5"):
        several(["a", 5], "topics")  # type: ignore[list-item]


@pytest.mark.parametrize(
    "call",
    [
        "delete_topics",
        "describe_topics",
        "describe_groups",
        "delete_groups",
        "list_groups",
        "describe_transactions",
        "fence_producers",
        "describe_user_scram_credentials",
    ],
)
def test_every_call_for_several_names_refuses_one_text(call: str, ottla_broker: Broker) -> None:
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as admin:
        with pytest.raises(TypeError, match=r"write \['abc'\]"):
            getattr(admin, call)("abc")
        assert admin.list_topics() is not None, "it goes on"
