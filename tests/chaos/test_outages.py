"""The chaos tests' own parts: what is printed can be repeated. Nothing is killed here, so this runs with every test;
and no client does anything, so there is no history to be judged."""

from __future__ import annotations

import random

import pytest

from tests.chaos.outages import SEED_VARIABLE, Fault, Outages, chaos_seeds, drawn


def test_the_same_seed_draws_the_same_faults_whatever_was_drawn_before() -> None:
    first = drawn(7, 20, 300, ("0", "1", "2"))
    random.seed(1)
    random.random()
    assert drawn(7, 20, 300, ("0", "1", "2")) == first
    assert drawn(8, 20, 300, ("0", "1", "2")) != first
    assert {fault.victim for fault in first} == {"0", "1", "2"}
    assert all(1 <= fault.after_steps <= 300 for fault in first)


def test_faults_are_printed_with_the_seed_that_repeats_them(capsys: pytest.CaptureFixture[str]) -> None:
    faults = drawn(7, 2, 300)
    said = capsys.readouterr().out
    assert all(f"broker after {fault.after_steps}" in said for fault in faults)
    assert f"{SEED_VARIABLE}=7" in said


def test_the_variable_replaces_every_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def values() -> list[object]:
        return [getattr(each, "values", (each,))[0] for each in chaos_seeds(1, slow=[2]).mark.args[1]]

    monkeypatch.delenv(SEED_VARIABLE, raising=False)
    assert values() == [1, 2]
    monkeypatch.setenv(SEED_VARIABLE, "41")
    assert values() == [41]


def test_faults_come_after_their_steps_and_in_order() -> None:
    hit: list[str] = []
    with Outages([Fault("a", 2), Fault("b", 1)], hit.append) as outages:
        outages.step()
        assert hit == []
        outages.step()
        outages.step()
        assert outages.done.wait(60)
        outages.step()
    assert hit == ["a", "b"]


def test_a_test_that_ends_early_does_not_wait_for_faults() -> None:
    hit: list[str] = []
    with Outages([Fault("a", 1), Fault("b", 1_000)], hit.append):
        pass
    assert hit == ["a", "b"]


def test_a_fault_that_cannot_be_carried_out_fails_the_test_and_lets_it_end() -> None:
    def carry_out(victim: str) -> None:
        raise OSError(victim)

    with pytest.raises(OSError, match="broker"), Outages([Fault("broker", 1)], carry_out) as outages:
        outages.step()
        assert outages.done.wait(60), "a test that waits for the end of its faults would wait for ever"
