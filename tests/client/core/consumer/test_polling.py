"""Who does not poll in time is told by how much, also where the poll comes as its lateness is noted."""

from __future__ import annotations

from ottla.client.core.consumer.polling import PollWatch


def test_g9_a_poll_that_comes_as_it_is_found_to_be_late_does_not_hide_how_late() -> None:
    """The user's thread polls between the loop's look at the deadline and its note. The next poll tells of it."""
    watch = PollWatch(1_000)
    assert watch.polled(10.0) is None
    deadline_s = watch.deadline_s(11.5)
    assert watch.polled(11.5) is None
    watch.exceed(11.5, deadline_s)
    assert watch.polled(11.75) == 1_500
    assert watch.polled(11.75) is None


def test_g9_who_polls_long_after_the_note_is_told_all_of_it() -> None:
    watch = PollWatch(1_000)
    watch.polled(10.0)
    watch.exceed(11.0, watch.deadline_s(11.0))
    assert watch.polled(13.0) == 3_000
