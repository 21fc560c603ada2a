"""The table of a failing world shows what a person looks for."""

from __future__ import annotations

from sim.history import Event, table


def test_a_table_that_is_shortened_shows_what_the_anomaly_is_about() -> None:
    events = [Event(number, "p0.1", "send", f"p0.1-{number}") for number in range(1_000)]
    shown = table(events, around=["p0.1-300", "p0.1-900", "p0.1"], most=18).splitlines()
    assert shown[1] == "... 296 more"
    assert shown[-1] == "... 95 more"
    assert [line.split()[-1] for line in shown if "send" in line] == [
        *(f"p0.1-{number}" for number in range(296, 305)),
        *(f"p0.1-{number}" for number in range(896, 905)),
    ]


def test_a_shortened_table_of_a_client_shows_its_end() -> None:
    events = [Event(number, "p0.1", "send", f"p0.1-{number}") for number in range(1_000)]
    shown = table(events, around=["p0.1"], most=3).splitlines()
    assert [line.split()[-1] for line in shown[1:]] == ["more", "p0.1-997", "p0.1-998", "p0.1-999"]


def test_a_table_that_is_short_enough_has_every_event() -> None:
    events = [Event(number, "p0.1", "send", f"p0.1-{number}") for number in range(3)]
    assert table(events, around=["p0.1"], most=3) == table(events)
