"""franz-go and kafkajs: two clients that have nothing of Java's or librdkafka's, against our broker.

kafkajs speaks old versions (Fetch 11, JoinGroup 5, no flexible ones), franz-go the newest of all APIs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker, History
from tests.interop.foreign import CLIENTS, Foreign, Program, ask, franz_go, kafkajs, start
from tests.interop.members import Group, Java, Kind, Librdkafka, Ours, create, read_while_they_leave
from tests.interop.secured.brokers import MECHANISMS, make_files, running
from tests.interop.secured.where import USER, Where

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
_STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "consumer")


@pytest.fixture(params=CLIENTS)
def program(request: pytest.FixtureRequest) -> Program:
    """Each client."""
    return CLIENTS[request.param]()


_ADMIN_BOTH = {
    "grown": "",
    "set": "",
    "policy": "compact,delete",
    "group": "Empty",
    "group deleted": "",
    "moving": 0,
    "moved": "INVALID_REPLICA_ASSIGNMENT",
    "deleted": "",
}
_ADMIN = {
    "kafkajs": {"again": False, "end": "9", "committed": "5"},
    "franz-go": {
        "again": "TOPIC_ALREADY_EXISTS",
        "deleted before": 0,
        "end": 9,
        "newest": True,
        "committed": [5, 0, "m"],
        "missing group": "GROUP_ID_NOT_FOUND",
        "forgotten": "",
        "elected": "ELECTION_NOT_NEEDED",
        "resource": True,
        "directories": 1,
    },
}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_admins_ask(any_broker: str, fresh: Fresh, client: str) -> None:
    assert ask(CLIENTS[client](), any_broker, fresh("admin"), "admin") == _ADMIN_BOTH | _ADMIN[client]


@pytest.mark.parametrize(
    ("client", "codecs"), [("franz-go", "none gzip snappy lz4 zstd"), ("kafkajs", "none gzip snappy")]
)
def test_records_come_back_as_they_went(any_broker: str, fresh: Fresh, client: str, codecs: str) -> None:
    told = ask(CLIENTS[client](), any_broker, fresh("records"), "records")
    assert told == {f"{codec} {acks}": True for codec in codecs.split() for acks in ("0", "1", "all")}


@pytest.mark.parametrize(("client", "error"), [("franz-go", "PRODUCER_FENCED"), ("kafkajs", "INVALID_PRODUCER_EPOCH")])
def test_t2_transactions_commit_abort_and_are_fenced(any_broker: str, fresh: Fresh, client: str, error: str) -> None:
    told = ask(CLIENTS[client](), any_broker, fresh("transactions"), "transactions")
    assert told == {"fenced": error, "committed": ["0", "2", "new"], "all": ["0", "1", "2", "3", "lost", "new"]}


@pytest.mark.parametrize(
    ("client", "strategy"), [("franz-go", "cooperative-sticky"), ("franz-go", "consumer"), ("kafkajs", "")]
)
def test_t11_consume_transform_produce(any_broker: str, fresh: Fresh, client: str, strategy: str) -> None:
    told = ask(CLIENTS[client](), any_broker, fresh("exactly-once"), "exactly-once", strategy)
    assert told == {"outputs": 200, "offsets": 200}


@pytest.mark.parametrize(("client", "strategy"), [*(("franz-go", each) for each in _STRATEGIES), ("kafkajs", "")])
def test_a_group_reads_everything_once(any_broker: str, fresh: Fresh, client: str, strategy: str) -> None:
    told = ask(CLIENTS[client](), any_broker, fresh("group"), "group", strategy)
    assert told == {"committed": 100, "most": 1, "state": "Empty"}


def test_what_is_acknowledged_is_there_once_and_in_order_behind_kill_9(program: Program) -> None:
    """The broker dies while numbers are on their way, twice."""
    with Broker() as broker:
        talk = start(program, broker.bootstrap_servers, "stream", "stream")
        assert talk.stdin is not None
        assert talk.stdout is not None
        try:
            assert talk.stdout.readline() == "READY\n"
            for end in (5_000, 10_000):
                talk.stdin.write(f"{end}\n")
                talk.stdin.flush()
                assert talk.stdout.readline() == "SENDING\n"
                broker.kill()
                broker.restart()
                assert talk.stdout.readline() == "ACKNOWLEDGED\n"
            rest, _ = talk.communicate(timeout=240)
        finally:
            talk.kill()
    assert json.loads(rest) == {"records": 10_000, "in order": True, "end": 10_000}


def _who(where: Where) -> dict[str, str]:
    told = {"CA": where.authority, "MECHANISM": where.mechanism, "USER": USER, "SECRET": where.secret}
    return {f"OTTLA_{name}": value for name, value in told.items() if value is not None}


def test_x1_tls_and_each_mechanism_of_sasl(program: Program, tmp_path: Path, fresh: Fresh) -> None:
    with running("ottla", make_files(tmp_path)) as secured:
        found = {}
        for way in ("TLS", *MECHANISMS):
            where = secured.at("TLS") if way == "TLS" else secured.at("SASLTLS", way)
            found[way] = ask(program, where.address, fresh("hello"), "hello", environment=_who(where))
    assert found == {way: {"read": ["hello"]} for way in ("TLS", *MECHANISMS)}


def _kinds(strategy: str) -> list[Any]:
    """Members leave in this order, so each kind leads once."""
    franz = partial(Foreign, franz_go())
    if strategy == "roundrobin":
        return [partial(Foreign, kafkajs()), Librdkafka, franz, Ours]
    return [Librdkafka, franz, Ours]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_g11_they_share_groups_with_others(any_broker: str, fresh: Fresh, strategy: str) -> None:
    """Sticky is what librdkafka has not, eager."""
    kinds = [each for each in _kinds(strategy) if strategy != "sticky" or each is not Librdkafka]
    await _share(any_broker, fresh("mixed"), strategy, kinds)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_a8_they_share_groups_with_java(any_broker: str, fresh: Fresh, strategy: str, apache_jars: str) -> None:
    """Java leads while it is first, and reads what the others lead to."""
    kinds = [Java, *(each for each in _kinds(strategy) if strategy != "sticky" or each is not Librdkafka)]
    await _share(any_broker, fresh("mixed-java"), strategy, kinds)


async def _share(bootstrap: str, name: str, strategy: str, kinds: list[Kind]) -> None:
    history = History()
    create(bootstrap, name)
    async with Group([kind(bootstrap, name, name, history, strategy) for kind in kinds]) as members:
        await read_while_they_leave(members, bootstrap, name, history)
