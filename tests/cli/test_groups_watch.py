"""`ottla groups watch` on our broker: it reads the events of groups, and asks the coordinator where there are none."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla import Consumer
from ottla.testing import Broker
from tests.cli.conftest import Ottla
from tests.cli.processes import line_of, line_with, ottla_process


@contextmanager
def _member(broker: Broker, group: str, name: str, topic: str, count: int, **more: object) -> Iterator[Consumer]:
    """A member that has `count` partitions."""
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    with Consumer({**servers, "group.id": group, "client.id": name, **more}) as consumer:
        consumer.subscribe([topic])
        while len(consumer.assignment()) < count:
            consumer.poll(0.1)
        yield consumer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_g23_a_rebalance_is_told_as_the_broker_writes_it(ottla_broker: Broker, ottla: Ottla, protocol: str) -> None:
    group, topic, more = f"events-{protocol}", f"events-of-{protocol}", {"group.protocol": protocol}
    assert ottla("topics", "create", topic, "-p", "2").code == 0
    watching_this = ("groups", "watch", "--group", group, "--bootstrap", ottla_broker.bootstrap_servers)
    with (
        _member(ottla_broker, group, "one", topic, 2, **more) as one,
        ottla_process(*watching_this) as watching,
    ):
        assert line_of(watching.stdout).endswith("  Stable, 1 member\n")
        with (
            _member(ottla_broker, f"{group}-other", "three", topic, 2, **more),
            _member(ottla_broker, group, "two", topic, 0, **more) as two,
        ):
            while not len(one.assignment()) == len(two.assignment()) == 1:
                one.poll(0.05)
                two.poll(0.05)
            told = [line_of(watching.stdout)]
            while " is stable after " not in told[-1]:
                told.append(line_of(watching.stdout))
        assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}  two-\S{8} joined from 127\.0\.0\.1\n", told[0]), told
        assert any("  rebalance begins in generation " in line for line in told)
        stable = re.search(
            rf"; 2 members( by \w+)?; moved: {topic}-\d one-\S+ → two-\S+; stood still: (.*)\n", told[-1]
        )
        assert stable and "two-" in stable[2], told[-1]
        assert "  two-" in line_with(watching.stdout, " left")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
        assert "three" not in "".join(told)


def test_g23_all_groups_from_the_first_event_on_and_what_has_been(ottla: Ottla, tmp_path: Path) -> None:
    """There is no topic when it begins; each line of --json is an event as it was written."""
    with Broker(data_dir=tmp_path / "data") as broker:
        bootstrap = ("--bootstrap", broker.bootstrap_servers)
        assert ottla("topics", "create", "t", *bootstrap).code == 0
        with ottla_process("groups", "watch", "--json", *bootstrap) as watching:
            assert line_of(watching.stderr) == "ottla: showing what happens to all groups; Ctrl-C to stop\n"
            static = {"group.instance.id": "one"}
            with _member(broker, "g", "c", "t", 1, **static):
                first = json.loads(line_of(watching.stdout))
            assert (first["event"], first["group"], first["instance_id"]) == ("member-joined", "g", "one")
            # A static member does not leave when it is closed. Another takes its name.
            with _member(broker, "g", "c", "t", 1, **static):
                expelled = json.loads(line_with(watching.stdout, "member-expelled"))
            assert expelled["why"] == "instance-replaced"
        for once in ("--from-beginning", "--since=PT1H"):
            code, out, _ = ottla("groups", "watch", once, "--for", "0", *bootstrap)
            assert code == 0
            assert re.search(r" {2}g: one joined from ", out), out
            assert "was expelled, instance-replaced: " in out
        for past in (("--from-beginning",), ("--since", "PT1H"), ("--since", "2026-01-01")):
            with ottla_process("groups", "watch", *past, *bootstrap) as watching:
                line = line_of(watching.stdout)
                assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} {2}g: one joined from .*\n", line), line
                assert "was expelled, instance-replaced: " in line_with(watching.stdout, "expelled")


def test_g23_it_waits_for_a_broker_that_is_gone_and_goes_on(ottla: Ottla, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        bootstrap = ("--bootstrap", broker.bootstrap_servers)
        assert ottla("topics", "create", "t", *bootstrap).code == 0
        with _member(broker, "g", "one", "t", 1):
            pass
        with ottla_process("groups", "watch", "--from-beginning", "h", "g", *bootstrap) as watching:
            line_with(watching.stdout, "g: no members are left")
            broker.kill()
            line_with(watching.stderr, "waiting for it to come back, Ctrl-C to stop")
            broker.start()
            line_with(watching.stderr, "ottla: it is back; reading on")
            with _member(broker, "h", "two", "t", 1):
                assert " h: two-" in line_of(watching.stdout)


def test_g23_where_no_events_are_written_it_asks_the_coordinator(ottla: Ottla) -> None:
    with Broker({"group.events.enable": "false"}) as broker:

        def watch(*arguments: str) -> tuple[int, str, str]:
            return ottla("groups", "watch", *arguments, "--bootstrap", broker.bootstrap_servers)

        code, out, err = watch("g", "-g", "h", "--for", "0")
        assert (code, re.sub(r"[\d:.]{12}", "T", out)) == (
            0,
            "T  g: there is no such group yet\nT  h: there is no such group yet\n",
        )
        assert (
            err == "ottla: this broker writes no events of groups, or this user may not read them"
            "; asking the coordinator every 0.5 s instead\n"
        )
        assert watch("--for", "0")[2] == (
            "ottla: this broker writes no events of groups, or this user may not read them"
            "; so name those to ask about; "
            "`ottla groups list` shows them\n"
        )
        assert watch("g", "--from-beginning")[2].startswith(
            "ottla: this broker writes no events of groups, or this user may not read them"
            ": leave --since and --from-beginning away."
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--since", "soon"),
            "--since 'soon' is neither an ISO 8601 duration, as PT1H, nor a time, as 2026-11-21T10:00",
        ),
        (("--since", "PT1H", "--from-beginning"), "say --since or --from-beginning, not both"),
        (("g", "--every", "1", "--since", "PT1H"), "--every asks what is now: leave it, or --since"),
        (("--every", "1"), "--every asks about groups: name them"),
        (("--for", "nan"), "--for nan is no number of seconds"),
        (("--for", "-1"), "--for -1.0 is no number of seconds"),
    ],
)
def test_g23_what_cannot_be_watched_is_said(ottla: Ottla, arguments: tuple[str, ...], said: str) -> None:
    shown = ottla("groups", "watch", *arguments)
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith(f"ottla: {said}")
