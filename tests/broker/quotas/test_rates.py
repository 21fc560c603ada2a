"""The arithmetic of quotas: Kafka's numbers, and that what is forgotten was as new."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.broker.quotas.rates import Rate, TokenBucket, Windows

_WINDOWS = Windows(11, 1000)


def test_a_burst_of_ten_seconds_worth_is_free_and_more_waits_until_it_would_be_so() -> None:
    rate = Rate(_WINDOWS)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(500, 0)  # 1,050 a second over ten seconds is 5 % too much: half a second
    assert rate.throttle_ms(1000, 0) == 500


def test_the_time_that_is_measured_grows_with_the_window_that_is_being_filled() -> None:
    rate = Rate(_WINDOWS)
    rate.record(12_000, 0)
    assert rate.throttle_ms(1000, 0) == 2000
    assert rate.throttle_ms(1000, 400) == 1600  # over 10.4 s
    assert rate.throttle_ms(1000, 1500) == 1500  # a window is full: 9 are missing, and 1.5 s have passed
    assert rate.throttle_ms(1000, 10_999) == 1001
    assert rate.throttle_ms(1000, 11_000) == 0


@given(st.floats(0, exclude_min=True, allow_infinity=False), st.integers(0, 2**40), st.integers(1, 2**31))
@example(5e-324, 1, 1_000)
@example(1e-5, 50, 1_000)
def test_an_answer_can_tell_any_throttle_time(quota: float, amount: int, size_ms: int) -> None:
    windows = Windows(2, size_ms)
    rate, bucket = Rate(windows), TokenBucket(windows)
    rate.record(amount, 0)
    bucket.take(amount, quota, 0)
    assert 0 <= rate.throttle_ms(quota, 0) < 2**31
    assert 0 <= bucket.throttle_ms(quota, 0) < 2**31


def test_what_is_taken_back_was_never_used() -> None:
    rate = Rate(_WINDOWS)
    rate.record(50_000, 0)
    assert rate.throttle_ms(1000, 0) == 40_000
    rate.record(-50_000, 0)
    assert rate.throttle_ms(1000, 0) == 0


_STEPS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 20_000)), min_size=1, max_size=40)


@given(_STEPS)
def test_a_rate_is_what_happened_in_the_windows_that_count(steps: list[tuple[int, int]]) -> None:
    """Beside a slow way: all events, in windows that begin with the first event that does not fit into the last."""
    rate = Rate(_WINDOWS)
    windows: list[list[tuple[int, int]]] = []
    for now_ms, (_, amount) in zip(accumulate(step[0] for step in steps), steps, strict=True):
        rate.record(amount, now_ms)
        if not windows or now_ms - windows[-1][0][0] >= 1000:
            windows.append([])
        windows[-1].append((now_ms, amount))
        windows = [each for each in windows if now_ms - each[-1][0] < 11_000]
        total = sum(amount for each in windows for _, amount in each)
        elapsed_ms = now_ms - windows[0][0][0]
        span_ms = elapsed_ms + max(10 - elapsed_ms // 1000, 0) * 1000
        wait_ms = (total * 1000 / span_ms - 700) / 700 * span_ms
        assert abs(rate.throttle_ms(700, now_ms) - max(wait_ms, 0)) <= 0.5 + 1e-6


@given(_STEPS, _STEPS)
def test_a_rate_that_is_over_is_as_a_new_one(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> None:
    used, now_ms = Rate(_WINDOWS), 0
    for pause_ms, amount in before:
        now_ms += pause_ms
        used.record(amount, now_ms)
    assert not used.is_over(now_ms + 10_999)
    now_ms += 11_000
    assert used.is_over(now_ms)
    new = Rate(_WINDOWS)
    for pause_ms, amount in after:
        now_ms += pause_ms
        used.record(amount, now_ms)
        new.record(amount, now_ms)
        assert used.throttle_ms(700, now_ms) == new.throttle_ms(700, now_ms)


def test_a_bucket_is_full_at_first_may_be_overdrawn_and_fills() -> None:
    bucket = TokenBucket(_WINDOWS)
    assert bucket.throttle_ms(2, 5_000) == 0
    bucket.take(22, 2, 5_000)
    assert bucket.throttle_ms(2, 5_000) == 0  # empty, not overdrawn
    bucket.take(3, 2, 5_000)
    assert bucket.throttle_ms(2, 5_000) == 1500
    assert bucket.throttle_ms(2, 6_000) == 500
    assert not bucket.is_full(2, 17_499)
    assert bucket.is_full(2, 17_500)
    bucket.take(1, 2, 1_000_000)  # more than full it is never
    assert not bucket.is_full(2, 1_000_000)
