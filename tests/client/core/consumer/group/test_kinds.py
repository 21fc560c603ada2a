"""SPEC G20: the kinds of groups, and the names of members that name themselves."""

from ottla.client.config.consumer import consumer_config
from ottla.client.core.consumer.group.kinds import MEMBERSHIPS, new_member_id


def test_every_protocol_that_can_be_configured_has_a_membership() -> None:
    for protocol in MEMBERSHIPS:
        given = {"bootstrap.servers": "a:1", "group.id": "g", "group.protocol": protocol}
        assert consumer_config(given).group_protocol == protocol


def test_a_member_that_names_itself_has_a_uuid_that_no_tool_takes_for_an_option() -> None:
    assert new_member_id("consumer", lambda n: bytes(range(n))) == "AAECAwQFBgcICQoLDA0ODw"
    assert new_member_id("consumer", lambda n: b"\xfb" * n)[0] == "_"
    assert new_member_id("classic", lambda n: b"\xfb" * n) == ""
