"""What a reader has seen, as what each record waited."""

from bench.raw_reader import Arrival, waits_us


def _due_s(number: int) -> float:
    return 10.0 + number / 4  # all of these are exact in binary


def test_each_record_waits_from_when_it_was_due_until_the_fetch_that_brought_it() -> None:
    arrivals = [Arrival(10.5, 2), Arrival(10.5, 2), Arrival(11.0, 3), Arrival(11.25, 6)]
    assert waits_us(arrivals, _due_s) == [500_000, 250_000, 500_000, 500_000, 250_000, 0]


def test_records_before_the_first_one_asked_for_are_left_out_of_a_fetch_that_brought_both() -> None:
    arrivals = [Arrival(10.5, 2), Arrival(11.25, 6)]
    assert waits_us(arrivals, _due_s, first=4) == [250_000, 0]
    assert waits_us(arrivals, _due_s, first=6) == []
