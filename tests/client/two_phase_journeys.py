"""What users do with two-phase commit (KIP-939); see `journeys`. The broker has `SETTINGS`."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from ottla import Admin, TransactionHandle, TransactionOutcome
from ottla.client.errors import FatalProducerError, IllegalStateError, ProducerFencedError
from tests.client.journeys import PATIENCE_S, fresh, make_topic, read_all
from tests.coordinator.txn.talks import TWO_PHASE_SETTINGS
from tests.house.tree import ROOT
from tests.recording.current import Producer

#: The broker looks for transactions that are too old five times a second.
SETTINGS = {**TWO_PHASE_SETTINGS, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
_NEVER_MS = 2**31 - 1
_COUNT, _CRASH_AT = 4, 2


def _two_phase(servers: str, transactional_id: str) -> dict[str, object]:
    return {
        "bootstrap.servers": servers,
        "transactional.id": transactional_id,
        "transaction.two.phase.commit.enable": True,
    }


def t15_after_prepare_only_the_decision_is_missing(servers: str) -> None:
    topic, transactional_id = make_topic(servers), fresh("t15")
    with Producer(_two_phase(servers, transactional_id)) as producer:
        producer.init_transactions()
        with pytest.raises(IllegalStateError, match=r"prepare_transaction\(\) is not allowed now: there is no open"):
            producer.prepare_transaction()
        producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="nothing was sent"):
            producer.prepare_transaction()
        producer.send(topic, b"one")
        producer.prepare_transaction()
        with pytest.raises(IllegalStateError, match="prepared"):
            producer.send(topic, b"late")
        with pytest.raises(IllegalStateError, match="prepared"):
            producer.begin_transaction()
        assert read_all(servers, topic) == []
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"two")
        producer.prepare_transaction()
        producer.abort_transaction()
    assert [r.value for r in read_all(servers, topic)] == [b"one"]


def t15_nobody_but_the_user_ends_a_prepared_transaction(servers: str) -> None:
    topic, transactional_id = make_topic(servers), fresh("t15")
    with Producer(_two_phase(servers, transactional_id)) as producer:
        producer.init_transactions()
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"row")
            text = str(producer.prepare_transaction())
            _ = 1 / 0
    handle = TransactionHandle.parse(text)
    with Admin({"bootstrap.servers": servers}) as admin:
        described = admin.describe_transactions([transactional_id])[transactional_id]
        assert (described.state, described.timeout_ms) == ("Ongoing", _NEVER_MS)
        assert (described.producer_id, described.producer_epoch) == handle[1:]
        assert admin.end_transaction(handle, commit=True) is TransactionOutcome.ENDED
        assert admin.end_transaction(handle, commit=True) is TransactionOutcome.ENDED
    assert [r.value for r in read_all(servers, topic)] == [b"row"]


def t15_it_outlives_every_time_out(servers: str) -> None:
    topic, short_lived, prepared = make_topic(servers), fresh("t15-short"), fresh("t15-long")
    brief = {"bootstrap.servers": servers, "transactional.id": short_lived, "transaction.timeout.ms": 300}
    with Producer(_two_phase(servers, prepared)) as long, Producer(brief) as short:
        for producer, value in ((long, b"long"), (short, b"short")):  # the one that stays is the older one
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, value).result(PATIENCE_S)
        long.prepare_transaction()
        with Admin({"bootstrap.servers": servers}) as admin:
            while admin.list_transactions(re.escape(short_lived), ["Ongoing"]):
                pass
            assert admin.describe_transactions([prepared])[prepared].state == "Ongoing"
        long.commit_transaction()
        with pytest.raises((FatalProducerError, ProducerFencedError)):
            short.commit_transaction()
    assert [r.value for r in read_all(servers, topic)] == [b"long"]


def t15_who_comes_without_a_decision_aborts(servers: str) -> None:
    topic, transactional_id = make_topic(servers), fresh("t15")
    config = _two_phase(servers, transactional_id)
    with Producer(config) as first, Producer(config) as second:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"not decided")
        handle = first.prepare_transaction()
        second.init_transactions()
        with pytest.raises(ProducerFencedError):
            first.commit_transaction()
        with second.transaction():
            second.send(topic, b"decided")
    with Admin({"bootstrap.servers": servers}) as admin:
        assert admin.end_transaction(handle, commit=True) is TransactionOutcome.FENCED
    assert [r.value for r in read_all(servers, topic)] == [b"decided"]


def _dual_write(servers: str, database: Path, topic: str, *more: str) -> int:
    command = [sys.executable, str(ROOT / "examples" / "dual_write.py"), "--bootstrap", servers, "--output", topic]
    command += ["--database", str(database), "--count", str(_COUNT), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def t15_database_and_topic_agree_after_a_crash(servers: str, step: str) -> None:
    topic = make_topic(servers, prefix=fresh("t15-orders"))
    with tempfile.TemporaryDirectory() as directory:
        database = Path(directory) / "orders.db"
        assert _dual_write(servers, database, topic, "--crash-at", f"{_CRASH_AT}:{step}") == -signal.SIGKILL
        assert _dual_write(servers, database, topic) == 0
        with closing(sqlite3.connect(database)) as connection:
            orders = [number for (number,) in connection.execute("SELECT number FROM orders ORDER BY number")]
    assert orders == list(range(_COUNT))
    assert [int(r.value or b"") for r in read_all(servers, topic)] == orders


def _crash(step: str) -> Callable[[str], None]:
    journey = partial(t15_database_and_topic_agree_after_a_crash, step=step)
    journey.__name__ = f"t15_database_and_topic_agree_after_a_crash_when_{step}"  # type: ignore[attr-defined]
    return journey


ALL: list[Callable[[str], None]] = [
    t15_after_prepare_only_the_decision_is_missing,
    t15_nobody_but_the_user_ends_a_prepared_transaction,
    t15_it_outlives_every_time_out,
    t15_who_comes_without_a_decision_aborts,
    *(_crash(step) for step in ("sent", "prepared", "decided", "committed")),
]


def refused_where_the_broker_does_not_have_it(servers: str) -> None:
    """With a broker of default settings."""
    with (
        Producer(_two_phase(servers, fresh("t15"))) as producer,
        pytest.raises(Exception, match=r"unstable\.api\.versions\.enable=true"),
    ):
        producer.init_transactions()
    with Producer({"bootstrap.servers": servers, "transactional.id": fresh("t15")}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(IllegalStateError, match=r"transaction\.two\.phase\.commit\.enable=true"):
            producer.prepare_transaction()


def refused_where_the_broker_does_not_allow_it(servers: str) -> None:
    """With a broker that has the version, and `transaction.two.phase.commit.enable=false`."""
    with (
        Producer(_two_phase(servers, fresh("t15"))) as producer,
        pytest.raises(Exception, match="does not allow two-phase commit"),
    ):
        producer.init_transactions()
