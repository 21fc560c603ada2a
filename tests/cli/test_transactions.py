"""`ottla transactions`: what hangs or holds back readers is shown, and ended after a question (SPEC T14)."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ottla import Admin, AsyncAdmin, AsyncProducer, OffsetAndMetadata, Producer, TopicPartition
from ottla.broker.runtime.shard import ShardRunner
from ottla.cli.transactions.changes import Changes
from ottla.cli.transactions.repair import sentence
from ottla.client.admin.open_transactions import OpenTransaction, PartitionHold
from ottla.client.errors import NotHangingError
from ottla.coordinator.txn.states import TransactionVersion
from ottla.coordinator.txn.store import MARKERS_TIMER
from ottla.testing import AsyncBroker, Broker
from ottla.wire.messages.end_txn import EndTxnRequest
from tests.cli.conftest import Ottla, Said
from tests.cli.processes import line_of, ottla_process
from tests.client.hanging import UNVERIFIED, Hanging, leave_hanging
from tests.client.journeys import make_topic, read_all
from tests.coordinator.txn.talks import TWO_PHASE_SETTINGS


@pytest.fixture(scope="module")
def ottla_broker() -> Iterator[Broker]:
    """It lets a client leave a transaction hanging, and has two-phase commit."""
    with Broker({**UNVERIFIED, **TWO_PHASE_SETTINGS}) as broker:
        yield broker


@pytest.fixture
def tp(ottla_broker: Broker) -> TopicPartition:
    """A partition with one record."""
    tp = TopicPartition(make_topic(ottla_broker.bootstrap_servers), 0)
    with Producer({"bootstrap.servers": ottla_broker.bootstrap_servers}) as producer:
        producer.send(tp.topic, b"before")
    return tp


@pytest.fixture
def hanging(ottla_broker: Broker, tp: TopicPartition) -> Hanging:
    """A transaction that hangs in it."""
    return leave_hanging(ottla_broker.bootstrap_servers, tp, b"h1", b"h2")


@pytest.fixture
def alive(ottla_broker: Broker, tp: TopicPartition) -> Iterator[Producer]:
    """A producer that has a transaction open in it. Its id is the topic's name."""
    settings = {"bootstrap.servers": ottla_broker.bootstrap_servers, "transactional.id": tp.topic}
    with Producer(settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(tp.topic, b"alive").result(30)
        yield producer


def _by(producer: Hanging) -> tuple[str, ...]:
    return ("--producer-id", str(producer.producer_id), "--producer-epoch", str(producer.producer_epoch))


def _values(broker: Broker, tp: TopicPartition) -> list[bytes | None]:
    return [each.value for each in read_all(broker.bootstrap_servers, tp.topic)]


# -- looking


def test_t14_what_hangs_is_found_with_the_command_that_ends_it(
    ottla: Ottla, tp: TopicPartition, hanging: Hanging
) -> None:
    (row,) = ottla("transactions", "find-hanging", tp.topic, "--json").data
    assert row == {
        "topic": tp.topic,
        "partition": 0,
        "start_offset": 1,
        "producer_id": hanging.producer_id,
        "producer_epoch": 0,
        "coordinator_epoch": -1,
        "transactional_id": None,
        "state": "hanging",
        "timeout_ms": None,
        "last_timestamp_ms": 1_700_000_000_001,
        "since_ms": 1_700_000_000_000,
        "since": "2023-11-14 22:13:20.000+00:00",
    }
    assert row in ottla("transactions", "find-hanging", "--json").data
    said = ottla("transactions", "find-hanging", f"{tp.topic}:0", "--older-than", "PT1H")
    assert f"`ottla transactions abort {' '.join(_by(hanging))}` aborts it" in said.err
    assert ottla("transactions", "find-hanging", tp.topic, "--older-than", "P100000D").out == "No transaction hangs.\n"


def test_t14_who_holds_a_partition_that_hangs(
    ottla: Ottla, ottla_broker: Broker, tp: TopicPartition, hanging: Hanging
) -> None:
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as admin:
        admin.alter_group_offsets(f"{tp.topic}-group", {tp: OffsetAndMetadata(1)})
    (row,) = ottla("transactions", "who-holds", tp.topic, "--json").data
    assert (row["last_stable_offset"], row["high_watermark"], row["waiting_offsets"]) == (1, 3, 2)
    assert (row["holder"]["producer_id"], row["holder"]["state"], row["behind"]) == (hanging.producer_id, "hanging", [])
    assert row["groups"] == [{"group": f"{tp.topic}-group", "committed": 1, "client": None}]
    assert ottla("transactions", "who-holds", tp.topic, "--no-groups", "--json").data[0]["groups"] == []
    said = ottla("transactions", "who-holds", f"{tp.topic}:0")
    assert f"{tp.topic}-group (at 1)" in said.out
    command = f"`ottla transactions abort {' '.join(_by(hanging))}`"
    assert said.err == f"{tp}: 2 offsets behind a transaction that hangs; {command} aborts it.\n"


@pytest.mark.usefixtures("alive")
def test_t14_who_holds_a_partition_whose_producer_lives(ottla: Ottla, tp: TopicPartition) -> None:
    said = ottla("transactions", "who-holds", tp.topic)
    assert f"{tp}: 1 offset behind {tp.topic}, Ongoing. Its coordinator aborts it at 20" in said.err
    assert f"`ottla transactions abort {tp.topic}` does it now." in said.err
    assert ottla("transactions", "find-hanging", tp.topic, "--json").data == []


def test_t15_of_a_prepared_transaction_it_is_said_that_no_time_out_ends_it(
    ottla: Ottla, ottla_broker: Broker, tp: TopicPartition
) -> None:
    settings = {"bootstrap.servers": ottla_broker.bootstrap_servers, "transactional.id": tp.topic}
    with Producer({**settings, "transaction.two.phase.commit.enable": True}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(tp.topic, b"decided")
        producer.prepare_transaction()
        said = ottla("transactions", "who-holds", tp.topic)
        assert f"{tp.topic}, Ongoing. It is in two-phase commit, and no time-out ends it: " in said.err
        assert f"Look there first. `ottla transactions abort {tp.topic}` aborts it." in said.err
        asked = ottla("transactions", "abort", tp.topic, "--dry-run")
        assert "no time-out ends it: perhaps another system, a database, has decided" in asked.err
        producer.abort_transaction()


def test_t14_nobody_is_sent_to_abort_what_is_decided() -> None:
    tp = TopicPartition("orders", 0)
    holder = OpenTransaction(tp, 4, 7, 0, -1, 1, "billing", "PrepareCommit", timeout_ms=60_000, since_ms=1)
    said = sentence(PartitionHold(tp, 4, 6, (holder,), holder, ()))
    assert said == (
        "orders-0: 2 offsets behind billing, PrepareCommit: it is decided that it is committed, and its coordinator is "
        "writing the markers. If it stays so, the log of the broker that coordinates it says why; Apache Kafka's may "
        "try again only after a restart."
    )


async def _said(broker: AsyncBroker, *arguments: str) -> Said:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ottla", "transactions", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "OTTLA_BOOTSTRAP": broker.bootstrap_servers},
    )
    out, err = await process.communicate()
    return Said(process.returncode or 0, out.decode(), err.decode())


async def test_t14_what_is_decided_and_stays_so_does_not_hang_and_is_told() -> None:
    """A coordinator that has decided, and writes no marker."""
    async with AsyncBroker() as broker:
        node = broker.node
        await node.transactions.ready()
        await node.topics.create("orders", 1, {})
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "w"}) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await (await producer.send("orders", b"v"))
            runner = node.transactions.find("w")
            assert isinstance(runner, ShardRunner)
            txn = runner.shard.get("w")
            assert txn is not None
            by, now_ms = ("--producer-id", str(txn.producer_id)), node.clock.now_ms()
            request = EndTxnRequest("w", txn.producer_id, txn.producer_epoch, True)
            decision = runner.shard.end_txn(0, request, TransactionVersion.V2, now_ms)
            for record in decision.records:
                runner.shard.apply(record, now_ms)
            decided = "it is decided that it is committed, and its coordinator is writing the markers. If it stays so,"
            found = await _said(broker, "find-hanging")
            assert (found.code, found.out) == (0, "No transaction hangs.\n")
            assert f"w, PrepareCommit: {decided}" in found.err
            assert f"1 offset behind w, PrepareCommit: {decided}" in (await _said(broker, "who-holds", "orders")).err
            for arguments in (("abort", "w"), ("abort", *by, "--producer-epoch", "0")):
                refused = await _said(broker, *arguments, "--yes")
                assert (refused.code, decided in refused.err) == (1, True)
            async with AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
                with pytest.raises(NotHangingError, match="PrepareCommit, and is writing its markers: if it stays so"):
                    await admin.end_hanging_transaction(TopicPartition("orders", 0), txn.producer_id, 0)
            runner.tell(lambda now_ms: runner.shard.timer((MARKERS_TIMER, "w"), now_ms))


def test_t14_nothing_is_held_back(ottla: Ottla, tp: TopicPartition) -> None:
    assert ottla("transactions", "who-holds", tp.topic).out == f"Nothing is held back in {tp.topic}.\n"


# -- ending


def test_t14_a_hanging_transaction_is_shown_and_then_aborted(
    ottla: Ottla, ottla_broker: Broker, tp: TopicPartition, hanging: Hanging
) -> None:
    shown = ottla("transactions", "abort", *_by(hanging), "--dry-run")
    assert shown.code == 0
    assert "An ABORT marker will be written into it: no read_committed reader will ever get these" in shown.err
    assert shown.err.endswith("Nothing was written.\n")
    (row,) = ottla("transactions", "abort", *_by(hanging), "--dry-run", "--json").data
    assert (row["start_offset"], row["ended"], row["error"]) == (1, False, None)
    said = ottla("transactions", "abort", *_by(hanging), "--yes")
    assert (said.code, said.err.splitlines()[-1]) == (0, f"{tp}: the transaction at offset 1 is aborted.")
    assert _values(ottla_broker, tp) == [b"before"]
    again = ottla("transactions", "abort", *_by(hanging), "--yes")
    assert again.code == 1
    assert f"producer {hanging.producer_id} has no open transaction anywhere" in again.err


def test_t14_a_hanging_transaction_is_committed_where_it_begins(
    ottla: Ottla, ottla_broker: Broker, tp: TopicPartition, hanging: Hanging
) -> None:
    where = ("--partition", f"{tp.topic}:0", "--start-offset", "1")
    shown = ottla("transactions", "commit", *where, "--dry-run")
    assert "A COMMIT marker will be written into it: every read_committed reader will get these records" in shown.err
    (row,) = ottla("transactions", "commit", *where, "--yes", "--json").data
    assert (row["producer_id"], row["ended"]) == (hanging.producer_id, True)
    assert _values(ottla_broker, tp) == [b"before", b"h1", b"h2"]


@pytest.mark.parametrize(("given", "code", "ends"), [("yes\n", 0, True), ("no\n", 0, False), ("", 1, False)])
def test_t14_a_person_is_asked(
    ottla_broker: Broker, tp: TopicPartition, hanging: Hanging, given: str, code: int, ends: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "transactions", "abort", *_by(hanging)],
        input=given,
        capture_output=True,
        text=True,
        env={**os.environ, "OTTLA_BOOTSTRAP": ottla_broker.bootstrap_servers},
        check=False,
    )
    assert (done.returncode, "Type yes to go on: " in done.stderr) == (code, True)
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as admin:
        assert (admin.find_hanging_transactions([tp]) == []) == ends
    if not given:
        assert "nobody answered; nothing was written. A script says --yes" in done.stderr


def test_t14_a_producer_that_hangs_in_several_partitions_is_ended_in_all_or_in_one(
    ottla: Ottla, ottla_broker: Broker
) -> None:
    topic = make_topic(ottla_broker.bootstrap_servers, 3)
    first = leave_hanging(ottla_broker.bootstrap_servers, TopicPartition(topic, 0), b"x")
    for number in (1, 2):
        leave_hanging(ottla_broker.bootstrap_servers, TopicPartition(topic, number), b"x", by=first)
    (row,) = ottla("transactions", "abort", *_by(first), "--partition", f"{topic}:1", "--yes", "--json").data
    assert (row["partition"], row["ended"]) == (1, True)
    assert "into each partition" in ottla("transactions", "abort", *_by(first), "--dry-run").err
    rows = ottla("transactions", "abort", *_by(first), "--yes", "--json").data
    assert [(each["partition"], each["ended"]) for each in rows] == [(0, True), (2, True)]


def test_t14_one_that_does_not_hang_is_refused(ottla: Ottla, tp: TopicPartition, alive: Producer) -> None:
    (row,) = ottla("transactions", "describe", tp.topic, "--json").data
    by = ("--producer-id", str(row["producer_id"]), "--producer-epoch", str(row["producer_epoch"]))
    for command in (("commit", *by), ("abort", *by), ("abort", "--partition", f"{tp.topic}:0", "--start-offset", "1")):
        said = ottla("transactions", *command, "--yes")
        assert said.code == 1
        assert f"in {tp} is not hanging: it is {tp.topic}, Ongoing, and its coordinator ends it" in said.err
        assert f"`ottla transactions abort {tp.topic}` aborts it" in said.err
    alive.commit_transaction()


def test_t14_a_producer_that_may_live_is_named_before(ottla: Ottla, ottla_broker: Broker, tp: TopicPartition) -> None:
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as admin:
        producer = Hanging(*admin.fence_producers([tp.topic])[tp.topic])
    leave_hanging(ottla_broker.bootstrap_servers, tp, b"x", by=producer)
    shown = ottla("transactions", "abort", *_by(producer), "--dry-run")
    assert f"Producer {producer.producer_id} belongs to {tp.topic} (Empty): if it lives, stop it first" in shown.err
    wrong = ottla("transactions", "abort", "--producer-id", str(producer.producer_id), "--producer-epoch", "77", "-y")
    assert f"hangs anywhere with epoch {producer.producer_epoch}, not 77" in wrong.err


def test_t14_an_open_transaction_is_aborted_by_its_id(ottla: Ottla, tp: TopicPartition, alive: Producer) -> None:
    shown = ottla("transactions", "abort", tp.topic, "--dry-run")
    assert "Its coordinator will abort it: no read_committed reader will ever get these records" in shown.err
    (row,) = ottla("transactions", "abort", tp.topic, "--yes", "--json").data
    assert (row["transactional_id"], row["partitions"], row["ended"]) == (tp.topic, [str(tp)], True)
    with pytest.raises(Exception, match=r"fenced|FENCED|EPOCH"):
        alive.commit_transaction()


class _AnswersYes(io.TextIOBase):
    """Standard input of a person who says yes, after something has happened."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        self._happens()
        return "yes\n"


@pytest.mark.parametrize(
    ("begins", "told"),
    [(False, "has ended meanwhile: it is CompleteCommit"), (True, "has ended meanwhile, and another one is open")],
)
def test_t14_a_transaction_that_ends_before_the_answer_is_not_said_to_be_aborted(
    ottla: Ottla,
    ottla_broker: Broker,
    tp: TopicPartition,
    alive: Producer,
    *,
    begins: bool,
    told: str,
) -> None:
    def goes_on() -> None:
        alive.commit_transaction()
        if begins:
            alive.begin_transaction()
            alive.send(tp.topic, b"next").result(30)

    terminal, sys.stdin = sys.stdin, _AnswersYes(goes_on)
    try:
        said = ottla("transactions", "abort", tp.topic)
    finally:
        sys.stdin = terminal
    assert said.code == 1
    assert f"the transaction of {tp.topic} that was shown {told}; nothing was changed" in said.err
    if begins:
        alive.commit_transaction()
    assert _values(ottla_broker, tp) == [b"before", b"alive", *([b"next"] if begins else [])]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("abort",), "give either a transactional id, or --producer-id with --producer-epoch"),
        (("abort", "x", "--producer-id", "1"), "give either a transactional id, or --producer-id"),
        (("abort", "--producer-id", "1"), "--producer-id and --producer-epoch go together"),
        (("commit",), "say which: --producer-id with --producer-epoch, or --partition with --start-offset"),
        (("commit", "--start-offset", "1"), "say which: --producer-id"),
        (("commit", "--partition", "x:0"), "say which: --producer-id"),
        (("commit", "--partition", "x", "--start-offset", "1"), "'x' is not TOPIC:PARTITION"),
        (("abort", ""), "a transactional id is never empty"),
        (("describe", "x", ""), "a transactional id is never empty"),
        (("abort", "x", "--yes", "--dry-run"), "say --yes or --dry-run, not both"),
        (("commit", "my-tx"), "is committed by its producer, not by its transactional id (my-tx). One that hangs is"),
        (
            ("commit", "my-tx"),
            "by its producer id and epoch: ottla transactions commit --producer-id 7 --producer-epoch",
        ),
        (("commit", "my-tx"), "To abort that of my-tx: ottla transactions abort my-tx"),
        (("commit", "1:0:a:b"), "is committed by its producer, not by its transactional id (a:b). One that hangs"),
        (("commit", "1:0:a:b"), "To abort that of a:b: ottla transactions abort a:b"),
        (("commit", "8"), "with its epoch: ottla transactions commit --producer-id 8 --producer-epoch 0; `ottla"),
        (
            ("abort", "8", "-y"),
            "If 8 is a producer id: ottla transactions abort --producer-id 8 --producer-epoch 0, with",
        ),
        (("describe", "8"), "If 8 is a producer id: ottla transactions abort --producer-id 8 --producer-epoch 0, with"),
        (("abort", "my-tx", "-y"), "`ottla transactions list` shows which transactional ids there are"),
        (("abort", "--producer-id", "my-tx"), "--producer-id is a number, not 'my-tx': write for example `ottla"),
        (("abort", "--producer-id", "my-tx"), "By a transactional id: ottla transactions abort my-tx"),
        (("commit", "--producer-id", "7", "--producer-epoch", "-1"), "--producer-epoch is a number, not '-1'"),
        (("abort", "x", "--json"), "--json asks nobody: add --yes to do it, or --dry-run"),
        (("find-hanging", "--older-than", "5 minutes"), "is not an ISO 8601 duration; write for example PT15M"),
        (
            ("find-hanging", "--older-than", f"P{'9' * 400}D"),
            "9D' is not an ISO 8601 duration; write for example PT15M",
        ),
        (("watch", "--every", "0"), "--every 0.0 is too often"),
        (("watch", "--every", "nan"), "--every nan is not a number of seconds up to 86400"),
        (("watch", "--every", "inf"), "--every inf is not a number of seconds up to 86400"),
        (("who-holds", "no-such-topic"), "no-such-topic"),
        (("list", "--pattern", "("), "--pattern '(' is no expression of RE2, or is too large"),
        (("list", "--pattern", "x" * 40_000), "--pattern must take at most 32767 bytes"),
        (("abort", "x" * 40_000, "-y"), "a transactional id must take at most 32767 bytes"),
        (("describe", ""), "a transactional id is never empty"),
    ],
)
def test_t14_a_fault_is_one_clear_sentence(ottla: Ottla, arguments: tuple[str, ...], sentence: str) -> None:
    said = ottla("transactions", *arguments)
    assert (said.code, said.out) == (1, "")
    assert sentence in said.err
    assert "Traceback" not in said.err


# -- watching


def test_t14_what_hangs_is_seen_as_it_comes_and_goes(ottla: Ottla, ottla_broker: Broker, tp: TopicPartition) -> None:
    servers = ottla_broker.bootstrap_servers
    with ottla_process(
        "transactions", "watch", tp.topic, "--every", "0.05", "--json", "--bootstrap", servers
    ) as process:
        producer = leave_hanging(servers, tp, b"x")
        seen = json.loads(line_of(process.stdout))
        assert (seen["event"], seen["producer_id"], seen["start_offset"]) == ("hanging", producer.producer_id, 1)
        assert ottla("transactions", "abort", *_by(producer), "--yes").code == 0
        assert json.loads(line_of(process.stdout))["event"] == "ended"


_OPEN = OpenTransaction(TopicPartition("t", 0), 5, 7, 0, -1, 1_000, "tx", "Ongoing", 60_000, 1_000)


def test_t14_changes_between_two_looks() -> None:
    changes = Changes(longer_than_ms=10_000)

    def told(now_ms: int, *opened: OpenTransaction) -> list[str]:
        return [str(each) for each in changes.seen(opened, now_ms)]

    where = "t-0 at offset 5: tx (producer 7, epoch 0)"
    assert told(9_000, _OPEN) == []
    assert told(11_000, _OPEN) == [f"{where} open, 10.0 s"]
    assert told(12_000, _OPEN) == []
    assert told(13_000, _OPEN._replace(state="PrepareCommit")) == [f"{where} PrepareCommit, 12.0 s"]
    assert told(14_500) == [f"{where} ended after 12.0 s"]
    assert told(15_000) == []
    hangs = _OPEN._replace(transactional_id=None, state=None, is_hanging=True, since_ms=None)
    nobody = "t-0 at offset 5: no known transactional id (producer 7, epoch 0)"
    assert told(16_000, hangs) == [f"{nobody} HANGS: no coordinator will end it"]
    assert told(17_000, hangs) == []
    assert told(18_000) == [f"{nobody} ended"]
    assert told(19_000, _OPEN._replace(since_ms=18_900)) == []
    assert told(20_000) == [], "it was never told that it is open"
