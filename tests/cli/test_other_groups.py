"""Groups that `ottla groups` cannot describe: share and streams groups of Apache Kafka. They are there all the same."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from ottla.cli.main import main
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_describe as consumer
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from tests.client.scripted_broker import ScriptedBroker, instead

_LISTED = (ListedGroup("s", "share", "Stable", "share"), ListedGroup("k", "streams", "Empty", "streams"))


class Said(NamedTuple):
    """The exit code and standard error."""

    code: int
    err: str


async def _typed(capfd: pytest.CaptureFixture[str], *arguments: str) -> Said:
    """`ottla ARGUMENTS…` against a broker that has the groups s and k, and describes neither."""
    not_found = DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "not a classic group", "s", "Dead")
    no_consumers = consumer.DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "not a consumer group", "s")
    async with ScriptedBroker({"t": 1}) as broker:
        broker.always(ApiKey.DESCRIBE_GROUPS, instead(DescribeGroupsResponse(groups=(not_found,))))
        broker.always(
            ApiKey.CONSUMER_GROUP_DESCRIBE, instead(consumer.ConsumerGroupDescribeResponse(groups=(no_consumers,)))
        )
        broker.always(ApiKey.LIST_GROUPS, instead(ListGroupsResponse(groups=_LISTED)))
        address = str(broker.config()["bootstrap.servers"])
        code = await asyncio.to_thread(main, (*arguments, "--bootstrap", address))
    out, err = capfd.readouterr()
    assert out == ""
    return Said(code, err)


@pytest.mark.parametrize(
    "command",
    [
        ("groups", "describe", "s"),
        ("groups", "offsets", "s"),
        ("groups", "reset", "s", "t", "--to", "earliest", "--execute"),
        ("groups", "watch", "s", "--every", "1", "--for", "0"),
        ("groups", "remove-members", "s", "--all"),
        ("assign", "--group", "s"),
    ],
)
async def test_g18_a_group_of_another_type_is_named_as_one(
    capfd: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    said = await _typed(capfd, *command)
    assert said == (
        1,
        "ottla: s is a share group, and Ottla's commands only know classic and consumer groups; Apache Kafka's "
        "kafka-share-groups.sh knows it\n",
    )


async def test_g18_a_streams_group_has_a_tool_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert "kafka-streams-groups.sh knows it\n" in (await _typed(capfd, "groups", "describe", "k")).err


async def test_g18_a_group_that_is_in_no_list_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    said = await _typed(capfd, "groups", "describe", "z")
    assert said == (1, "ottla: there is no group z; `ottla groups list` shows which there are\n")
