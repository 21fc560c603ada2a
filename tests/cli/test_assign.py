"""`ottla assign` on paper and on a live group; A1–A6 as a person types them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla import Admin, Consumer, NewTopic, SubscriptionPattern
from ottla.assign import Assignment, Cluster, RebalanceProtocol, Subscription
from ottla.assign.examples import BroadcastAssignor
from ottla.testing import Broker
from ottla.wire.apis import ApiKey
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.broker.wire_client import WireClient
from tests.cli.conftest import Ottla

TWO = ("assign", "--topics", "t0:3,t1:3", "--member", "C0", "--member", "C1")
_ALL = ["t0-0", "t0-1", "t0-2", "t1-0", "t1-1", "t1-2"]
_JAVA = "org.apache.kafka.clients.consumer"
DEATH = ("assign", "-t", "t0:2,t1:2,t2:2,t3:2", "-m", "C0", "-m", "C1", "-m", "C2", "--kill", "C1")


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("range", {"C0": ["t0-0", "t0-1", "t1-0", "t1-1"], "C1": ["t0-2", "t1-2"]}),
        (f"{_JAVA}.RoundRobinAssignor", {"C0": ["t0-0", "t0-2", "t1-1"], "C1": ["t0-1", "t1-0", "t1-2"]}),
        ("ottla.assign.examples:BroadcastAssignor", {"C0": _ALL, "C1": _ALL}),
    ],
)
def test_a1_strategies_on_paper(ottla: Ottla, strategy: str, expected: dict[str, list[str]]) -> None:
    assert ottla(*TWO, "--strategy", strategy, "--json").data["assignment"] == expected


def test_a5_a_death_explained(ottla: Ottla) -> None:
    said = ottla(*DEATH, "--strategy", "sticky", "--explain")
    assert said.code == 0
    assert "C1 had it and is not in the group any more" in said.out
    assert "5 of 8 partitions stayed where they were (5 could have)." in said.out
    data = ottla(*DEATH, "--json").data
    assert data["assignment"] == {"C0": ["t0-0", "t0-1", "t1-1", "t3-0"], "C2": ["t1-0", "t2-0", "t2-1", "t3-1"]}
    assert data["even"]["is_even"] is True
    assert data["sticky"]["must_move"] == 0


def test_a6_what_json_says_is_what_previous_reads(ottla: Ottla, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(ottla(*TWO, "--strategy", "cooperative-sticky", "--json").out)
    data = ottla("assign", "-t", "t0:3,t1:3", "--previous", str(before), "--add", "C2=t1", "--json").data
    assert len(data["generations"]) == 2
    assert data["subscriptions"]["C2"] == ["t1"]
    moved = [each for each in data["partitions"] if each["move"] == "balance"]
    assert moved
    assert {each["handed_over_in"] for each in moved} == {3}
    said = ottla("assign", "-t", "t0:3,t1:3", "--previous", str(before), "--add", "C2=t1")
    assert "from its owner, and the next one hands it over" in said.out


RACKS = ("--rack", "C0=a", "--rack", "C1=b")


def test_a1_range_looks_at_the_racks_of_topics_and_members(ottla: Ottla) -> None:
    """KIP-881. The first member gets the first partition, unless another one is in its rack."""
    group = ("assign", "-s", "range", "-m", "C0", "-m", "C1", "--json")
    assert ottla(*group, "-t", "t0:2").data["assignment"] == {"C0": ["t0-0"], "C1": ["t0-1"]}
    assert ottla(*group, "-t", "t0:2@b/a", *RACKS).data["assignment"] == {"C0": ["t0-1"], "C1": ["t0-0"]}
    everywhere = ottla(*group, "-t", "t0:2@b+a/a+b", *RACKS).data
    assert everywhere["assignment"] == {"C0": ["t0-0"], "C1": ["t0-1"]}


def test_a7_racks_of_a_member_that_comes_and_of_one_replica_after_the_other(ottla: Ottla) -> None:
    group = ("assign", "-s", "ottla.assign.examples:RackAssignor", "-t", "t0:5@a/b,t1:1", "-m", "C0", *RACKS, "--json")
    data = ottla(*group, "--add", "C1").data
    assert data["assignment"] == {"C0": ["t0-0", "t0-2", "t0-4"], "C1": ["t0-1", "t0-3", "t1-0"]}


def test_what_json_says_of_racks_and_instances_is_what_previous_reads(ottla: Ottla, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text('{"assignment": {"C0": [], "C1": []}, "group_instance_ids": {"C1": "i0"}}')
    group = ("assign", "-s", "range", "--previous", str(before), "--json")
    said = ottla(*group, "-t", "t0:2@b/a,t1:1", "--rack", "C0=b,C1=a")
    data = said.data
    assert data["assignment"] == {"C0": ["t0-0"], "C1": ["t0-1", "t1-0"]}  # a static member is served first
    assert data["racks"] == {"C0": "b", "C1": "a"}
    assert data["group_instance_ids"] == {"C1": "i0"}
    assert data["topic_racks"] == {"t0": [["b"], ["a"]]}
    before.write_text(said.out)
    again = ottla(*group, "-t", "t0:2,t1:1").data
    assert {key: again[key] for key in (*_OF_MEMBERS, "topic_racks")} == {
        key: data[key] for key in (*_OF_MEMBERS, "topic_racks")
    }
    other = ottla(*group, "-t", "t0:2@a/b,t1:1").data
    assert other["assignment"] == {"C0": ["t0-1"], "C1": ["t0-0", "t1-0"]}


_OF_MEMBERS = ("assignment", "racks", "group_instance_ids")


def test_a10_a_consumer_group_on_paper(ottla: Ottla) -> None:
    group = ("assign", "-t", "t0:4", "--protocol", "consumer", "-m", "C0", "-m", "C1")
    data = ottla(*group, "--add", "C2", "--json").data
    assert data["strategy"] == "uniform (on the broker)"
    assert sorted(map(len, data["assignment"].values())) == [1, 1, 2]
    (moved,) = (each for each in data["partitions"] if each["move"] == "balance")
    assert moved["members"] == ["C2"]
    assert moved["moved_because"].endswith("gave it up first, and generation 3 handed it over")
    assert (data["sticky"]["kept"], data["sticky"]["must_move"]) == (3, 1)
    ranged = ottla(*group, "--strategy", "range", "--json").data
    assert ranged["assignment"] == {"C0": ["t0-0", "t0-1"], "C1": ["t0-2", "t0-3"]}
    assert {each["because"] for each in ranged["partitions"][:2]} == {
        "t0 has 4 partitions for 2 members: 2 each; C0 is number 1 and has 2"
    }


def test_a7_an_assignor_in_the_current_directory_is_found(ottla: Ottla, tmp_path: Path) -> None:
    """Of either side: as with `python -m`, whatever directory `ottla` itself lies in."""
    (tmp_path / "divide_here.py").write_text(_OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path / "elsewhere")  # puts sys.path back at the end
        patch.chdir(tmp_path)
        data = ottla(*TWO, "--strategy", "divide_here:First", "--json").data
        assert data["assignment"] == {"C0": _ALL, "C1": []}
        data = ottla(*TWO, "--protocol", "consumer", "--strategy", "divide_here:OnTheBroker", "--json").data
        assert data["assignment"] == {"C0": _ALL, "C1": []}


_OWN = """
from ottla.assign import Assignment, BaseAssignor


class First(BaseAssignor):
    name = "first"

    def assign(self, cluster, subscriptions):
        first = min(subscriptions)
        return {
            member: Assignment(cluster.partitions(said.topics) if member == first else ())
            for member, said in subscriptions.items()
        }


class OnTheBroker:
    name = "first"

    def assign(self, group):
        return {min(group.members): {topic_id: range(topic.partitions) for topic_id, topic in group.topics.items()}}
"""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "there is nothing to assign: give topics"),
        (("-t", "t0"), "'t0' is not TOPIC:PARTITIONS; write for example --topics t0:3,t1:3"),
        (("-t", "t0:1,t0:2"), "t0 is there twice"),
        (("-t", "t0:1"), "the group has no members"),
        (("-t", "t0:1", "-m", "C0=t9"), "C0 wants t9, and there is no such topic (t0)"),
        (("-t", "t0:1", "-m", "=t0"), "'=t0' has no name"),
        (("-t", "t0:1", "-m", "C0", "-m", "C0"), "C0 is there twice"),
        (("-t", "t0:1", "-m", "C0", "--kill", "C1"), "--kill: there is no member C1 (C0)"),
        (("-t", "t0:1", "-m", "C0", "--add", "C0"), "--add: C0 is a member already"),
        (("-t", "t0:1", "-m", "C0", "--rack", "C1=a"), "--rack: there is no member C1 (C0)"),
        (("-t", "t0:1", "-m", "C0", "--rack", "C0"), "'C0' is not MEMBER=RACK"),
        (("-t", "t0:1", "-m", "C0", "--add", "C1", "--rack", "C2=a"), "--rack: there is no member C2 (C0, C1)"),
        (("-t", "t0:1@", "-m", "C0"), "'t0:1@' names no rack for a partition; write for example"),
        (("-t", "t0:2@a//b", "-m", "C0"), "'t0:2@a//b' names no rack for a partition"),
        (("-t", "t0:2@a/b/c", "-m", "C0"), "'t0:2@a/b/c' has racks for 3 partitions, and t0 has 2"),
        (("-t", "t0:1", "-m", "C0", "-s", "rang"), "there is no assignor 'rang'; there are range, roundrobin, sticky"),
        (("-t", "t0:1", "-m", "C0", "--protocol", "new"), "--protocol: 'new' is neither classic nor consumer"),
        (
            ("-t", "t0:1", "-m", "C0", "--protocol", "consumer", "-s", "sticky"),
            "'sticky' on the broker; there are uniform, range",
        ),
        (
            ("-t", "t0:1", "-m", "C0", "-s", "no.such:Thing"),
            "the assignor no.such:Thing cannot be made: No module named 'no'; it is looked for in the current "
            "directory, on PYTHONPATH, and among installed packages",
        ),
        (
            ("-t", "t0:1", "-m", "C0", "--protocol", "consumer", "-s", "ottla.assign.examples:BroadcastAssignor"),
            "BroadcastAssignor is an assignor of the client's side",
        ),
        (("-t", "t0:1", "-m", "C0", "-s", ":Thing"), "the assignor :Thing cannot be made: ValueError"),
        (("-t", "t0:1", "-m", "C0", "-s", "tests.cli.test_assign:Leaving"), "cannot be made: SystemExit(3)"),
        (
            ("-t", "t0:1", "-m", "C0", "-s", "tests.cli.test_assign:Talking"),
            "returned 'words'; bytes or None are needed",
        ),
        (("-t", "t0:\u00b2", "-m", "C0"), "'t0:\u00b2' is not TOPIC:PARTITIONS"),
        (("-t", "t0:99999999999", "-m", "C0"), "'t0:99999999999' is not TOPIC:PARTITIONS"),
        (("-t", "t0:999999,t1:2", "-m", "C0"), "1000001 partitions; at most 1000000 can be rehearsed"),
        (("-t", "t0:1", "-m", "C0", "-s", "json:JSONDecoder"), "json:JSONDecoder is no assignor"),
        (("-t", "t0:1", "-m", "C0", "-s", "tests.cli.test_assign:Forgetful"), "is wrong: it gave t0-0 to nobody"),
        (("-t", "t0:1", "-m", "C0", "-s", "tests.cli.test_assign:Raising"), "failed: KeyError('C7')"),
        (("-t", "t0:1", "--group", "g"), "--group reads topics and members from the cluster"),
        (("-t", "t0:1", "--previous", "no-such-file"), "no-such-file cannot be read: No such file"),
        (("--group", "no-such-group"), "no-such-group"),
    ],
)
def test_bad_input_is_told_in_a_sentence(ottla: Ottla, arguments: tuple[str, ...], sentence: str) -> None:
    said = ottla("assign", *arguments)
    assert said.code == 1
    assert said.out == ""
    assert sentence in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is no JSON"),
        ("[1]", "has to hold what --json prints"),
        ("[" * 100_000, "is no JSON"),
        ('{"C0": ["t0-\u00b2"]}', "has 't0-\u00b2', which is not TOPIC-PARTITION"),
        ('{"C0": ["t0-9999999999"]}', "has 't0-9999999999', which is not TOPIC-PARTITION"),
        ('{"assignment": {"C0": []}, "generation": -1}', "has to hold what --json prints"),
        ('{"assignment": {"C0": []}, "generation": 2147483647}', "has to hold what --json prints"),
        ('{"C0": ["t0-0", "t0-0"]}', "has t0-0 twice for C0"),
        ('{"assignment": {"C0": []}, "generation": true}', "has to hold what --json prints"),
        ('{"assignment": {"C0": []}, "subscriptions": ["t0"]}', "has to hold what --json prints"),
        ('{"assignment": {"C0": []}, "subscriptions": {"C0": "t0"}}', "has to hold what --json prints"),
        ('{"assignment": {"C0": []}, "racks": {"C0": 1}}', "has to hold what --json prints"),
        ('{"assignment": {"C0": []}, "group_instance_ids": ["C0"]}', "has to hold what --json prints"),
        ('{"assignment": {"C0": []}, "topic_racks": {"t0": "a"}}', "has to hold what --json prints"),
        ('{"assignment": {"C0": []}, "topic_racks": {"t0": [[1]]}}', "has to hold what --json prints"),
        ('{"C0": ["t0"]}', "has 't0', which is not TOPIC-PARTITION, for example t0-2"),
    ],
)
def test_a_bad_file_is_told_in_a_sentence(ottla: Ottla, tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "before.json").write_text(content)
    said = ottla("assign", "-t", "t0:1", "--previous", str(tmp_path / "before.json"))
    assert said.code == 1
    assert sentence in said.err


def test_a_partition_that_two_members_claim_is_told_and_counted_once(ottla: Ottla, tmp_path: Path) -> None:
    """It happens in a classic group: a member that was silent for long still says that it has what others got."""
    claims = tmp_path / "claims.json"
    claims.write_text('{"C0": ["t-0", "t-1"], "C1": ["t-1", "t-2"]}')
    group = ("assign", "-t", "t:3", "--previous", str(claims))
    said = ottla(*group)
    assert said.out.count("Generation 2 takes t-1 from its owners, and the next one hands it over.") == 1
    assert "3 of 3 partitions stayed where they were (3 could have).\n" in said.out
    three = ottla(*group, "--kill", "C0", "--kill", "C1", "--add", "C2", "--json").data
    assert (three["sticky"]["moved"], three["sticky"]["could_stay"]) == (3, 0)
    data = ottla(*group, "--json").data["sticky"]
    assert {key: data[key] for key in ("kept", "could_stay", "moved", "must_move")} == {
        "kept": 3,
        "could_stay": 3,
        "moved": 0,
        "must_move": None,
    }
    refused = ottla(*group, "--protocol", "consumer")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        f"ottla: --previous: {claims} gives t-1 to C0 and C1, and in a consumer group a partition has one owner: leave "
        "it to one of them, or rehearse a classic group\n"
    )


def test_what_nobody_ever_had_has_not_moved(ottla: Ottla) -> None:
    data = ottla("assign", "-t", "t0:1", "-m", "C0", "-s", "tests.cli.test_assign:LeavesOut", "--json").data
    assert [each["move"] for each in data["partitions"]] == ["nobody"]
    assert data["sticky"]["moved"] == 0


def test_a_file_that_a_spreadsheet_or_an_editor_has_saved_is_read(ottla: Ottla, tmp_path: Path) -> None:
    (tmp_path / "before.json").write_text('{"C0": ["t0-0"]}', encoding="utf-8-sig")
    data = ottla("assign", "-t", "t0:1", "--previous", str(tmp_path / "before.json"), "--json").data
    assert data["assignment"] == {"C0": ["t0-0"]}


class Forgetful:
    """Gives nothing to anybody."""

    name = "forgetful"
    protocols = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return None

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        return {member: Assignment(()) for member in subscriptions}

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        pass


class LeavesOut(Forgetful):
    """Gives nothing to anybody, on purpose."""

    every_partition = False


class Raising(Forgetful):
    """Raises."""

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        raise KeyError("C7")


class Leaving(Forgetful):
    """Ends whoever makes one."""

    def __init__(self) -> None:
        raise SystemExit(3)


class Talking(Forgetful):
    """Sends what is no bytes."""

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return "words"  # type: ignore[return-value]


def test_what_nobody_reads_is_told(ottla: Ottla, tmp_path: Path) -> None:
    assert "Nobody reads t1-0." in ottla("assign", "-t", "t0:2,t1:1", "-m", "C0=t0").out
    gone = ottla("assign", "-t", "t0:2", "-m", "C0", "--kill", "C0", "--json").data
    assert gone["unread"] == ["t0-0", "t0-1"]
    odd = tmp_path / "odd.json"
    odd.write_text('{"assignment": {"C0": ["t0-0", "t9-0"]}, "subscriptions": {"C0": [["t0"], "t0"]}, "generation": 4}')
    assert ottla("assign", "-t", "t0:1", "--previous", str(odd), "--json").data["unread"] == []


def test_a_live_group_is_rehearsed_and_left_alone(ottla: Ottla, ottla_broker: Broker) -> None:
    servers = {"bootstrap.servers": ottla_broker.bootstrap_servers}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("cli-assign", 4), NewTopic("cli-other", 1)])
    settings = {**servers, "group.id": "cli-assign", "partition.assignment.strategy": "sticky", "client.rack": "a"}
    with Consumer(settings) as consumer:
        consumer.subscribe(["cli-assign"])
        while len(consumer.assignment()) < 4:
            consumer.poll(0.1)
        (member,) = ottla("groups", "describe", "cli-assign", "--json").data["members"]
        data = ottla("assign", "--group", "cli-assign", "--add", "one-more", "--json").data
        assert data["strategy"] == "sticky"
        assert {who: len(given) for who, given in data["assignment"].items()} == {member["member"]: 2, "one-more": 2}
        assert data["sticky"]["moved"] == 2
        assert data["racks"] == {member["member"]: "a"}
        near = ("assign", "--group", "cli-assign", "--add", "one-more", "--json", "--rack")
        assert ottla(*near, "one-more=b").data["racks"] == {member["member"]: "a", "one-more": "b"}
        has_one = ottla(*near, f"{member['member']}=b")
        assert "--rack: with --group, for members that --add brings (one-more)" in has_one.err
        other = ottla("assign", "--group", "cli-assign", "--add", "two=cli-other", "--json").data
        assert other["assignment"]["two"] == ["cli-other-0"]
        missing = ottla("assign", "--group", "cli-assign", "--add", "two=cli-none")
        assert (missing.code, missing.out) == (1, "")
        assert "--add: two wants cli-none, and there is no such topic; `ottla topics list` shows which" in missing.err
        killed = ottla("assign", "--group", "cli-assign", "--kill", member["member"][:-3], "--add", "B", "--json").data
        assert killed["assignment"] == {"B": [f"cli-assign-{number}" for number in range(4)]}
        again = ottla("groups", "describe", "cli-assign", "--json").data
        assert again["members"] == [member]
    with Consumer({**servers, "group.id": "cli-assign-848", "group.protocol": "consumer"}) as consumer:
        consumer.subscribe(["cli-assign"])
        while len(consumer.assignment()) < 4:
            consumer.poll(0.1)
        data = ottla("assign", "--group", "cli-assign-848", "--add", "one-more", "--json").data
        assert data["strategy"] == "uniform (on the broker)"
        assert sorted(map(len, data["assignment"].values())) == [2, 2]
    empty = ottla("assign", "--group", "cli-assign")
    assert empty.code == 1
    assert "the group cli-assign has no members now (Empty)" in empty.err


def test_a_member_that_waits_behind_a_pattern_is_rehearsed_too(ottla: Ottla, ottla_broker: Broker) -> None:
    """It shows no topic and has no partition; and the ids of a consumer group's members say nothing to a person."""
    servers = {"bootstrap.servers": ottla_broker.bootstrap_servers}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("cli-pattern", 1)])
    settings = {**servers, "group.id": "cli-pattern", "group.protocol": "consumer"}
    with Consumer({**settings, "client.id": "one"}) as one, Consumer({**settings, "client.id": "two"}) as two:
        pair = {"one": one, "two": two}
        for consumer in pair.values():
            consumer.subscribe(SubscriptionPattern("cli-patt.*"))
        while not any(consumer.assignment() for consumer in pair.values()):
            for consumer in pair.values():
                consumer.poll(0.1)
        while len(ottla("groups", "describe", "cli-pattern", "--json").data["members"]) < 2:
            for consumer in pair.values():
                consumer.poll(0.1)
        (owner,) = (name for name, consumer in pair.items() if consumer.assignment())
        data = ottla("assign", "--group", "cli-pattern", "--kill", owner, "--json").data
        assert list(data["assignment"].values()) == [["cli-pattern-0"]]
        assert data["unread"] == []


def test_a_live_group_that_cannot_be_rehearsed_says_why(ottla: Ottla, ottla_broker: Broker) -> None:
    servers = {"bootstrap.servers": ottla_broker.bootstrap_servers, "enable.auto.commit": False}
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic("cli-own", 1)])
    own = {**servers, "group.id": "cli-own", "partition.assignment.strategy": [BroadcastAssignor()]}
    with Consumer(own) as consumer:
        consumer.subscribe(["cli-own"])
        while not consumer.assignment():
            consumer.poll(0.1)
        said = ottla("assign", "--group", "cli-own")
        assert said.code == 1
        assert (
            "cli-own divides by 'broadcast'. If that is the one that comes with Ottla add --strategy "
            "ottla.assign.examples:BroadcastAssignor, else name its class with --strategy package.module:Class"
        ) in said.err
        named = ottla("assign", "--group", "cli-own", "-s", "ottla.assign.examples:BroadcastAssignor", "--json")
        assert list(named.data["assignment"].values()) == [["cli-own-0"]]
    asyncio.run(_join_as_connect(ottla_broker))
    said = ottla("assign", "--group", "cli-connect")
    assert said.code == 1
    assert "the members of cli-connect are no consumers (protocol type 'connect')" in said.err


def test_a_live_group_that_divides_by_a_shipped_or_an_own_assignor_says_how_to_name_it(ottla: Ottla) -> None:
    shipped, own = "ottla.assign.server.lag_weighted:LagWeighted", f"{__name__}:TellsNothing"
    with Broker({"group.consumer.assignors": f"{shipped},{own}"}) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("t", 1)])
        for name, sentence in (
            (
                "lag-weighted",
                f"divides by 'lag-weighted'. If that is the one that comes with Ottla add --strategy {shipped}",
            ),
            ("nothing", "divides by 'nothing', which is none of Ottla's own assignors: name its class with --strategy"),
        ):
            group = ("--group", name, "--bootstrap", broker.bootstrap_servers)
            settings = {**servers, "group.id": name, "group.protocol": "consumer", "group.remote.assignor": name}
            with Consumer(settings) as consumer:
                consumer.subscribe(["t"])
                while "there is no group" in (said := ottla("assign", *group)).err:
                    consumer.poll(0.1)
                assert (said.code, said.out) == (1, "")
                assert sentence in said.err
                if name == "lag-weighted":
                    data = ottla("assign", *group, "--strategy", shipped, "--json").data
                    assert list(data["assignment"].values()) == [["t-0"]]


class TellsNothing:
    """An assignor of the server's side that leaves everything to nobody."""

    name = "nothing"
    every_partition = False

    def assign(self, group: object) -> dict[str, dict[bytes, list[int]]]:
        return {}


async def _join_as_connect(broker: Broker) -> None:
    async with WireClient(broker) as client:
        protocol = JoinGroupRequestProtocol("compatible", b"")
        join = JoinGroupRequest("cli-connect", 30_000, 30_000, "", None, "connect", (protocol,), None)
        given = await client.ask(ApiKey.JOIN_GROUP, join)
        joined = await client.ask(ApiKey.JOIN_GROUP, join._replace(member_id=given.member_id))
        assert joined.generation_id == 1
