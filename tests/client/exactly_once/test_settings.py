"""What `exactly_once` is told (SPEC T11): each misuse is an error before anything is connected."""

import re

import pytest

from ottla import ConfigError, KafkaError, RequestTimeoutError, SubscriptionPattern, exactly_once
from ottla.client.exactly_once.settings import settings

_BASE: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"group.id": None}, "exactly_once needs a group.id: the group's committed offsets say where to go on"),
        ({"enable.auto.commit": "true"}, "enable.auto.commit=true cannot be used with exactly_once: offsets are"),
        ({"isolation.level": "read_uncommitted"}, "isolation.level=read_uncommitted cannot be used with exactly_once"),
        ({"enable.idempotence": False}, "enable.idempotence=False cannot be used with exactly_once: transactions need"),
        ({"transaction.two.phase.commit.enable": "true"}, "transaction.two.phase.commit.enable=true cannot be used"),
        ({"transactional.id": "x"}, "transactional.id is an argument of exactly_once: leave it out"),
        ({"max.pol.records": 5}, "Unknown consumer configuration max.pol.records; did you mean max.poll.records?"),
        ({"acks": "1"}, "acks"),
        ({"auto.offset.reset": "soon"}, "auto.offset.reset"),
    ],
)
def test_t11_a_wrong_key_is_named(more: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        exactly_once("in", "out", "tx", {**_BASE, **more})


@pytest.mark.parametrize("source", ["out", ["in", "out"], re.compile("o.*")])
def test_t11_a_sink_that_is_read_would_never_end(source: str) -> None:
    with pytest.raises(ConfigError, match="the sink out is read, too"):
        exactly_once(source, "out", "tx", _BASE)


def test_t11_source_sink_and_id_are_checked() -> None:
    with pytest.raises(ConfigError, match="exactly_once needs a source"):
        exactly_once([], "out", "tx", _BASE)
    with pytest.raises(ConfigError, match="transactional_id must be a text that is not empty, not ''"):
        exactly_once("in", "out", "", _BASE)
    for wrong in (("in put", "out"), ("in", "")):
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            exactly_once(*wrong, "tx", _BASE)


def test_t11_each_client_gets_its_keys_and_what_is_safe() -> None:
    given = {**_BASE, "client.id": "c", "max.poll.records": 7, "linger.ms": 3, "isolation.level": "read_committed"}
    made = settings("in", "out", "tx", given)
    assert made.source == ("in",)
    assert made.consumer == {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "client.id": "c",
        "max.poll.records": 7,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    assert made.producer == {
        "bootstrap.servers": "127.0.0.1:1",
        "client.id": "c",
        "linger.ms": 3,
        "enable.idempotence": True,
        "transaction.two.phase.commit.enable": False,
        "transactional.id": "tx",
    }
    assert (
        settings("in", "out", "tx", {**_BASE, "auto.offset.reset": "latest"}).consumer["auto.offset.reset"] == "latest"
    )
    pattern = SubscriptionPattern("i.*")
    assert settings(pattern, "out", "tx", {**_BASE, "group.protocol": "consumer"}).source is pattern


def test_t11_nothing_is_connected_before_the_block_and_one_that_never_began_may_begin_again() -> None:
    work = exactly_once("in", "out", "tx", {**_BASE, "max.block.ms": 1})
    for _time in range(2):
        with pytest.raises(RequestTimeoutError, match=r"init_transactions\(\) did not succeed"), work:
            raise AssertionError("nobody listens there")
