"""`ottla groups`: what is shown, what is changed, and what it says where it cannot."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from ottla.testing import Broker
from tests.cli.conftest import Ottla
from tests.cli.processes import line_of, ottla_process

_HOUR_MS = 3_600_000
#: Of the first record; the others follow, an hour each.
_START_MS = 1_750_000_000_000


@pytest.fixture
def admin(ottla_broker: Broker) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as made:
        yield made


@pytest.fixture
def topic(ottla: Ottla, ottla_broker: Broker, request: pytest.FixtureRequest) -> str:
    """Ten records in partition 0, an hour between each; partition 1 is empty."""
    name = f"groups-{abs(hash(request.node.name))}"
    ottla("topics", "create", name, "-p", "2")
    with Producer({"bootstrap.servers": ottla_broker.bootstrap_servers}) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number, partition=0, timestamp_ms=_START_MS + number * _HOUR_MS)
    return name


@pytest.fixture
def group(admin: Admin, topic: str) -> str:
    """It has read four of the ten records."""
    admin.alter_group_offsets(f"g-{topic}", {TopicPartition(topic, 0): OffsetAndMetadata(4, "a note")})
    return f"g-{topic}"


@pytest.fixture
def member(ottla_broker: Broker, topic: str) -> Iterator[Consumer]:
    """The only member of a group of its own, which is called as its client id."""
    settings = {"group.id": f"m-{topic}", "client.id": f"m-{topic}", "group.instance.id": "one"}
    with Consumer({"bootstrap.servers": ottla_broker.bootstrap_servers, **settings}) as consumer:
        consumer.subscribe([topic])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.1)
        yield consumer


def _committed(ottla: Ottla, group: str) -> dict[int, int]:
    return {row["partition"]: row["offset"] for row in ottla("groups", "offsets", group, "--json").data}


# -- looking


def test_g18_groups_are_listed_by_state_and_type(ottla: Ottla, group: str, member: Consumer, topic: str) -> None:
    both = {group, f"m-{topic}"}

    def listed(*arguments: str) -> dict[str, dict[str, Any]]:
        rows = ottla("groups", "list", *arguments, "--json").data
        return {row["group"]: row for row in rows if row["group"] in both}

    assert set(listed()) == set(listed("--state", "empty, STABLE", "--type", "Classic")) == both
    assert set(listed("--state", "Empty")) == {group}
    assert set(listed("--state", "Empty", "--state", "Stable")) == both
    row = {"group": f"m-{topic}", "type": "classic", "state": "Stable", "protocol_type": "consumer"}
    assert listed("--state", "Stable") == {f"m-{topic}": row}
    assert ottla("groups", "list", "--state", "Dead").out == "There are no such groups.\n"
    for option, wrong, known in (("--state", "Asleep", "Stable, Empty"), ("--type", "clasic", "classic, consumer")):
        said = ottla("groups", "list", option, wrong)
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith(f"ottla: {option} '{wrong}' is none of {known}")


def test_g18_a_group_is_described_with_its_members_and_its_lag(ottla: Ottla, member: Consumer, topic: str) -> None:
    member.commit({TopicPartition(topic, 0): OffsetAndMetadata(4)})
    said = ottla("groups", "describe", f"m-{topic}", "--json").data
    (one,) = said.pop("members")
    assert (one["client"], one["instance"], one["topics"]) == (f"m-{topic}", "one", [topic])
    assert one["assignment"] == [f"{topic}-0", f"{topic}-1"]
    first, second = said.pop("offsets")
    assert (first["offset"], first["end_offset"], first["lag"], first["client"]) == (4, 10, 6, f"m-{topic}")
    assert first["lag_s"] > 86_400, "the record waits since 2025"
    assert (second["offset"], second["end_offset"], second["lag"], second["lag_s"]) == (None, 0, None, None)
    assert said == {
        "group": f"m-{topic}",
        "type": "classic",
        "state": "Stable",
        "protocol": "range",
        "coordinator": 1,
        "epoch": None,
        "target_epoch": None,
    }
    shown = ottla("groups", "describe", f"m-{topic}").out
    assert shown.startswith(f"m-{topic}: Stable, type classic, assignor range, coordinator 1, 1 member\n")
    assert " epoch " not in shown


def test_g18_a_group_that_has_read_all_is_not_behind(ottla: Ottla, admin: Admin, group: str, topic: str) -> None:
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(10)})
    (row,) = ottla("groups", "offsets", group, "--json").data
    assert (row["lag"], row["lag_s"], row["metadata"]) == (0, 0.0, "")


@pytest.mark.parametrize("command", ["describe", "offsets"])
def test_g18_a_group_that_does_not_exist_is_an_error(ottla: Ottla, command: str) -> None:
    said = ottla("groups", command, "nobody")
    assert said.code == 1
    assert said.err == "ottla: there is no group nobody; `ottla groups list` shows which there are\n"


# -- resetting


@pytest.mark.parametrize(
    ("way", "offset"),
    [
        (("--to", "earliest"), 0),
        (("--to", "latest"), 10),
        (("--to", "current"), 4),
        (("--to", "7"), 7),
        (("--to", "99"), 10),
        (("--to", "2025-06-15T17:06:40+02:00"), 0),  # the time of record 0
        (("--to", "2025-06-15T15:06:40"), 0),  # without a zone it is UTC
        (("--to", "2025-06-15T15:06:40.001Z"), 1),
        (("--to", "1960-01-01"), 0),
        (("--to", "2100-01-01"), 10),
        (("--by-duration", "PT0S"), 10),
        (("--by-duration", "P100000D"), 0),
        (("--shift", "2"), 6),
        (("--shift", "-3"), 1),
        (("--shift", "-5"), 0),
    ],
)
def test_g18_offsets_are_reset_in_every_way(
    ottla: Ottla, group: str, topic: str, way: tuple[str, str], offset: int
) -> None:
    shown = ottla("groups", "reset", group, f"{topic}:0", *way, "--json")
    row = {"topic": topic, "partition": 0, "offset": 4, "new_offset": offset, "change": offset - 4}
    assert shown.data == [row]
    assert shown.err.endswith("Nothing was changed; add --execute to do it.\n")
    assert _committed(ottla, group) == {0: 4}
    assert ottla("groups", "reset", group, f"{topic}:0", *way, "--execute", "--json").data == [row]
    assert _committed(ottla, group) == {0: offset}


def test_g18_what_was_not_taken_as_it_was_asked_for_is_said(ottla: Ottla, group: str, topic: str) -> None:
    both = (group, topic, "--json")
    said = ottla("groups", "reset", *both, "--to", "99")
    assert f"{topic}-0: 99 is beyond the log's end; 10 is taken\n" in said.err
    assert f"{topic}-1: 99 is beyond the log's end; 0 is taken\n" in said.err
    said = ottla("groups", "reset", group, f"{topic}:0", "--shift", "-9", "--json")
    assert f"{topic}-0: -5 is before the log's beginning; 0 is taken\n" in said.err
    said = ottla("groups", "reset", *both, "--to", "2025-06-15T15:06:40")
    assert f"{topic}-1: no record from that time on; the log's end is taken\n" in said.err
    said = ottla("groups", "reset", *both, "--to", "current")
    assert [row["new_offset"] for row in said.data] == [4, 0]
    assert f"{topic}-1: nothing is committed; the log's end is taken\n" in said.err


def test_g18_offsets_are_saved_to_a_file_and_restored_from_it(
    ottla: Ottla, admin: Admin, group: str, topic: str, tmp_path: Path
) -> None:
    admin.alter_group_offsets(group, {TopicPartition(topic, 1): OffsetAndMetadata(0)})
    saved = ottla("groups", "reset", group, "--all-topics", "--to", "current", "--export")
    assert saved.out == f"{topic},0,4\n{topic},1,0\n"
    ottla("groups", "reset", group, topic, "--to", "latest", "--execute")
    assert _committed(ottla, group) == {0: 10, 1: 0}
    file = tmp_path / "offsets.csv"
    file.write_text(saved.out)
    assert ottla("groups", "reset", group, "--from-file", str(file), "--execute").code == 0
    assert _committed(ottla, group) == {0: 4, 1: 0}
    file.write_text(f'someone else,{topic},0,9\n"{group}",{topic},0,2\n')
    (row,) = ottla("groups", "reset", group, "--from-file", str(file), "--json").data
    assert (row["partition"], row["new_offset"]) == (0, 2)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("t,0\n", "line 1: 2 columns; write topic,partition,offset"),
        ("t,0,1\n\nt,zero,1\n", "line 3: 'zero' is not a partition or an offset"),
        ("t,0,-1\n", "line 1: '-1' is not a partition or an offset"),
        (f"t,0,{2**63}\n", f"'{2**63}' is not a partition or an offset"),
        ("t,0,1\nt,0,2\n", "line 2: t-0 is there twice"),
        ("", "has no offsets of group g"),
        ("other,t,0,1\n", "has no offsets of group g; it has other"),
        (b"\xff", "is not a text file"),
        ("t,0," + "9" * 5_000 + "\n", "line 1: '9999"),
        ("t,0,1\nt,99999999999,1\n", "line 2: '99999999999' is not a partition"),
        ("t" * 200_000 + ",0,1\n", "line 1: field larger than field limit"),
        ("no-such-topic,0,1\n", "UNKNOWN_TOPIC_OR_PARTITION: topic no-such-topic"),
    ],
)
def test_g18_a_file_that_is_none_is_one_clear_sentence(
    ottla: Ottla, tmp_path: Path, content: str | bytes, sentence: str
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = ottla("groups", "reset", "g", "--from-file", str(file), "--execute")
    assert (said.code, said.out) == (1, "")
    assert sentence in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("x:0", "--to", "soon"), "--to 'soon' is neither earliest, latest, current, an offset nor an ISO time"),
        (("x:0", "--to", "9" * 5_000), "is neither earliest, latest"),
        (("x:\u00b2", "--to", "earliest"), "'x:\u00b2' is not TOPIC:PARTITION"),
        (("x:0", "--by-duration", "2h"), "--by-duration '2h' is no ISO 8601 duration; write for example PT2H or P7D"),
        (("x:0", "--by-duration", f"P{'9' * 400}D"), "9D' is no ISO 8601 duration; write for example PT2H or P7D"),
        (("x:0",), "say where to: --to, --by-duration, --shift, or --from-file\n"),
        (("x:0", "--to", "earliest", "--shift", "1"), "or --from-file, but only one of them"),
        (("--to", "earliest"), "say which partitions: topics, TOPIC:PARTITION, or --all-topics"),
        (("x:0", "--to", "earliest", "--export", "--json"), "--export prints CSV: leave it, or --json away"),
        (("x", "--all-topics", "--to", "earliest"), "say which partitions: topics, TOPIC:PARTITION, or --all-topics"),
        (("--from-file", "/nowhere.csv"), "--from-file /nowhere.csv does not exist"),
        (("--from-file", "/tmp"), "--from-file /tmp is not a text file"),
        (("--all-topics", "--to", "earliest"), "new-group has committed nothing: name topics instead of --all-topics"),
    ],
)
def test_g18_a_reset_that_means_nothing_is_refused(ottla: Ottla, arguments: tuple[str, ...], sentence: str) -> None:
    group = "new-group"  # in which no test commits: they share a broker
    said = ottla("groups", "reset", group, *arguments, "--execute")
    assert (said.code, said.out) == (1, "")
    assert sentence in said.err


def test_g18_a_reset_says_that_there_is_no_such_group(ottla: Ottla, topic: str) -> None:
    """Perhaps its name is misspelt."""
    shown = ottla("groups", "reset", f"new-{topic}", topic, "--to", "earliest")
    assert f"There was no group new-{topic}; --execute makes it." in shown.err
    done = ottla("groups", "reset", f"new-{topic}", topic, "--to", "earliest", "--execute")
    assert f"There was no group new-{topic}; now there is." in done.err
    assert "There was no group" not in ottla("groups", "reset", f"new-{topic}", topic, "--to", "earliest").err


def test_g18_a_file_names_the_partitions_by_itself(ottla: Ottla, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("t,0,1\n")
    said = ottla("groups", "reset", "g", "t", "--from-file", str(tmp_path / "f"))
    assert said.err == "ottla: --from-file names the partitions: leave topics and --all-topics away\n"


def test_g18_a_partition_without_an_offset_cannot_be_shifted(ottla: Ottla, group: str, topic: str) -> None:
    said = ottla("groups", "reset", group, topic, "--shift", "1", "--execute")
    assert said.err == f"ottla: the group has no offset for {topic}-1 to shift; use --to instead\n"
    assert _committed(ottla, group) == {0: 4}


def test_g18_a_group_with_members_is_not_reset_and_it_is_said_at_once(
    ottla: Ottla, member: Consumer, topic: str
) -> None:
    for execute in ((), ("--execute",)):
        said = ottla("groups", "reset", f"m-{topic}", topic, "--to", "earliest", *execute)
        assert (said.code, said.out) == (1, "")
        assert said.err == (
            f"ottla: m-{topic} is Stable and has 1 member: stop them first, or remove those that are gone with "
            f"`ottla groups remove-members m-{topic}`\n"
        )


@pytest.mark.parametrize("command", [("describe",), ("offsets",), ("remove-members", "--all"), ("watch",)])
def test_g18_a_group_without_a_name_is_told_as_such(ottla: Ottla, command: tuple[str, ...]) -> None:
    said = ottla("groups", command[0], "", *command[1:])
    assert (said.code, said.out) == (1, "")
    assert "the id of a group is a text that is not empty" in said.err


# -- changing


def test_g18_single_offsets_and_groups_are_deleted(ottla: Ottla, admin: Admin, group: str, topic: str) -> None:
    admin.alter_group_offsets(group, {TopicPartition(topic, 1): OffsetAndMetadata(0)})
    said = ottla("groups", "delete-offsets", group, f"{topic}:0")
    assert (said.code, said.err) == (0, f"Deleted 1 offset of {group}: {topic}-0.\n")
    assert _committed(ottla, group) == {1: 0}
    assert ottla("groups", "delete-offsets", group, topic).err == f"Deleted 1 offset of {group}: {topic}-1.\n"
    ottla("groups", "reset", group, topic, "--to", "earliest", "--execute")
    said = ottla("groups", "delete", group, "no-such-group", "nor-this")
    assert (said.code, said.err) == (
        1,
        f"Deleted {group}.\nottla: GROUP_ID_NOT_FOUND: no-such-group; `ottla groups list` shows which there are\n",
    )
    assert ottla("groups", "describe", group).code == 1


def test_g18_offsets_that_members_use_are_not_deleted(ottla: Ottla, member: Consumer, topic: str) -> None:
    member.commit({TopicPartition(topic, 0): OffsetAndMetadata(4)})
    said = ottla("groups", "delete-offsets", f"m-{topic}", topic)
    assert said.code == 1
    assert f"ottla: GROUP_SUBSCRIBED_TO_TOPIC: group m-{topic}, {topic}-0; members read the topic" in said.err
    assert _committed(ottla, f"m-{topic}")[0] == 4


def test_g18_members_are_removed(ottla: Ottla, member: Consumer, topic: str) -> None:
    member.close()  # a static member does not leave
    group = f"m-{topic}"
    (one,) = ottla("groups", "describe", group, "--json").data["members"]
    unknown = ottla("groups", "remove-members", group, "--member", "nobody")
    assert (unknown.code, f"group {group} has no member nobody" in unknown.err) == (1, True)
    said = ottla("groups", "remove-members", group, "--instance", "one", "--json")
    assert said.data == {"group": group, "removed": [one["member"]]}
    assert ottla("groups", "describe", group, "--json").data["members"] == []
    assert ottla("groups", "remove-members", group, "--all").err == f"Removed no members from {group}.\n"


def test_g18_who_shall_be_removed_has_to_be_said(ottla: Ottla) -> None:
    for arguments in ((), ("--all", "--member", "x")):
        said = ottla("groups", "remove-members", "g", *arguments)
        assert said.err == "ottla: say which members: --member ID, --instance ID, or --all\n"
    said = ottla("groups", "remove-members", "nobodys", "--all")
    assert said.err == "ottla: GROUP_ID_NOT_FOUND: Group nobodys not found; `ottla groups list` shows which there are\n"


# -- watching


def test_g23_a_rebalance_is_watched(ottla_broker: Broker, topic: str) -> None:
    group = f"w-{topic}"
    where = {"OTTLA_BOOTSTRAP": ottla_broker.bootstrap_servers}
    settings = {"bootstrap.servers": ottla_broker.bootstrap_servers, "group.id": group, "heartbeat.interval.ms": 100}

    def member(name: str) -> Consumer:
        consumer = Consumer({**settings, "group.instance.id": name})
        consumer.subscribe([topic])
        return consumer

    with ottla_process("groups", "watch", group, "--every", "0.05", "--json", environment=where) as watching:

        def next_where(wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
            while True:
                said: dict[str, Any] = json.loads(line_of(watching.stdout))
                assert said["group"] == group
                if wanted(said):
                    return said

        next_where(lambda said: said["event"] == "there is no such group yet")
        with member("one") as one:
            while len(one.assignment()) < 2:
                one.poll(0.1)
            assert next_where(lambda said: said["event"] == "joined")["who"] == "one"
            assert next_where(lambda said: said["event"] == "stable")["members"] == 1
            with member("two") as two:
                while not (len(one.assignment()) == len(two.assignment()) == 1):
                    one.poll(0.05)
                    two.poll(0.05)
                moved = next_where(lambda said: said["event"] == "stable" and said["members"] == 2)
                assert moved["moves"] == [{"partition": f"{topic}-1", "before": "one", "after": "two"}]
                assert moved["took_s"] is None or set(moved["still_s"]) == {"one", "two"}
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130


def test_g23_watching_ends_by_itself_and_is_not_done_too_often(ottla: Ottla, group: str) -> None:
    said = ottla("groups", "watch", group, "--every", "0.05", "--for", "0.2")
    assert (said.code, said.err) == (0, "")
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}  Empty, no members\n", said.out)
    assert ottla("groups", "watch", group, "--every", "0").err == (
        "ottla: --every 0.0 is too often; 0.05 s is the least\n"
    )


def test_what_other_clients_have_written_steers_no_terminal(ottla: Ottla, ottla_broker: Broker, topic: str) -> None:
    settings = {"bootstrap.servers": ottla_broker.bootstrap_servers, "group.id": f"red\x1b[31m{topic}"}
    with Consumer({**settings, "client.id": "c\x1b[2J"}) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        listed, described = ottla("groups", "list").out, ottla("groups", "describe", settings["group.id"]).out
        named = f"red\\x1b[31m{topic}"
        assert named in listed
        assert "\x1b" not in listed + described
        assert "c\\x1b[2J" in described
        watching = ottla("groups", "watch", settings["group.id"], "--every", "0.05", "--for", "0.1").out
        assert "\x1b" not in watching
