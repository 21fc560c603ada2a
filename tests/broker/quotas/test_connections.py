"""Limits on connections: who may come, who waits for how long, and who is sent away."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ottla.broker.quotas.connections import Admission, ConnectionLimits, Limits, ListenerLimits, plain_address

_YES = Admission()


def test_the_number_is_limited_for_the_broker_a_listener_and_an_address() -> None:
    limits = ConnectionLimits(
        Limits(6, 2, per_ip_overrides={"::1": 3, "10.0.0.9": 0}, listeners={"OUT": ListenerLimits(max_connections=4)})
    )
    assert [limits.admit("OUT", "10.0.0.1", 0) for _ in range(2)] == [_YES, _YES]
    assert limits.admit("IN", "10.0.0.1", 0).refused == "max.connections.per.ip reached"
    assert limits.admit("IN", "10.0.0.9", 0).refused == "max.connections.per.ip reached"
    assert [limits.admit("OUT", "::1", 0) for _ in range(2)] == [_YES, _YES]
    assert limits.admit("OUT", "::1", 0).refused == "max.connections of listener OUT reached"
    assert limits.admit("IN", "::1", 0) == _YES
    full = [limits.is_full, limits.admit("IN", "10.0.0.2", 0) == _YES, limits.is_full]
    assert full == [False, True, True]
    assert limits.admit("IN", "10.0.0.3", 0).refused == "max.connections reached"
    limits.gone("OUT", "10.0.0.1")
    assert limits.admit("IN", "10.0.0.1", 0) == _YES


def test_those_who_come_too_fast_wait_one_after_the_other() -> None:
    limits = ConnectionLimits(Limits(creation_rate=10, max_delay_ms=5_000))
    assert [limits.admit("A", "x", 0) for _ in range(100)] == [_YES] * 100  # ten seconds' worth
    delays = [limits.admit("A", "x", 0).delay_ms for _ in range(8)]
    assert delays[0] == 100
    assert delays == sorted(set(delays)), "each comes after the one before"
    waits = [after - before for before, after in pairwise(delays)]
    assert all(0 < wait <= 1000 for wait in waits)
    assert limits.admit("B", "x", 0).delay_ms < delays[-1], "another listener has a queue of its own"
    for _ in range(200):
        last = limits.admit("A", "x", 0)
    assert (last.delay_ms, last.refused) == (0, "too many wait (max.connection.creation.rate)")
    assert limits.admit("A", "x", 60_000) == _YES


def test_in_the_long_run_as_many_come_as_may() -> None:
    limits = ConnectionLimits(Limits(listeners={"A": ListenerLimits(creation_rate=5)}))
    served_ms = [now_ms + limits.admit("A", "x", now_ms).delay_ms for now_ms in range(0, 60_000, 50)]  # 20 a second
    assert sum(at_ms <= 60_000 for at_ms in served_ms) == pytest.approx(5 * 70, rel=0.1)  # 60 s, and the burst of ten
    assert limits.admit("B", "x", 60_000) == _YES


def test_a_rate_of_nothing_lets_one_in_a_window() -> None:
    limits = ConnectionLimits(Limits(creation_rate=0))
    assert [limits.admit("A", "x", 0).delay_ms for _ in range(3)] == [1000, 2000, 3000]


def test_an_address_that_comes_too_fast_is_sent_away_and_that_does_not_count() -> None:
    quotas = {"10.0.0.1": 2.0}
    limits = ConnectionLimits(Limits(), quotas.get)
    assert [limits.admit("A", "10.0.0.1", 0) for _ in range(20)] == [_YES] * 20
    away = Admission(500, "connection_creation_rate of its address reached")
    assert [limits.admit("A", "10.0.0.1", 0) for _ in range(5)] == [away] * 5
    assert limits.admit("A", "10.0.0.2", 0) == _YES
    assert limits.admit("A", "10.0.0.1", 500) == _YES
    del quotas["10.0.0.1"]
    assert limits.admit("A", "10.0.0.1", 500) == _YES


def test_addresses_that_come_once_take_no_memory() -> None:
    limits = ConnectionLimits(Limits(), lambda address: 1.0)
    for number in range(10_000):
        limits.admit("A", str(number), number * 11)
        limits.gone("A", str(number))
    assert len(limits._of_addresses) <= 2_002
    assert not limits._by_address


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("FE80::1%eth0", "fe80::1"),
        ("somewhere", "somewhere"),
    ],
)
def test_an_address_has_one_form(said: str, plain: str) -> None:
    assert plain_address(said) == plain
