"""Offsets, limits, tasks, losses: what a query reads next."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.spark import plan
from ottla.spark.errors import DataLossError
from ottla.spark.plan import Cut, Logs, Offsets, Range, SourceOffset

TPS = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d"]), st.integers(0, 20))
OFFSETS = st.dictionaries(TPS, st.integers(0, 2**40), max_size=8)
WHOLE = st.none() | st.integers(1, 2**40)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@given(
    OFFSETS,
    OFFSETS,
    st.none() | st.text(max_size=5),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
    st.none() | st.builds(Cut, WHOLE, WHOLE, st.integers(1, 99)),
    OFFSETS,
)
def test_a_source_offset_is_read_as_it_was_written(
    start: Offsets, end: Offsets, group: str | None, ids: dict[str, str], cut: Cut | None, epochs: Offsets
) -> None:
    offset = SourceOffset(start, end, group, ids, cut=cut, epochs=epochs)
    assert SourceOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(OFFSETS, st.randoms(use_true_random=False))
def test_equal_offsets_are_the_same_text_in_whatever_order_they_were_learned(offsets: Offsets, rng: object) -> None:
    shuffled = list(offsets.items())
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert json.dumps(SourceOffset({}, offsets).to_json()) == json.dumps(SourceOffset({}, dict(shuffled)).to_json())


def test_an_offset_of_another_form_is_refused() -> None:
    dicts = ({"path": "/data"}, {"lines": {"0": "5"}}, {"lines": {"a": 5}}, {"v": 2, "from": {}, "to": {}}, {"v": 1})
    for other in (*dicts, {"v": 1, "from": {}, "to": {}, "ids": 5}, 5, [1], "text", None):
        with pytest.raises(ValueError, match="not one of this source"):
            SourceOffset.from_json(other)


def test_s1_an_offset_of_spark_s_own_connector_is_taken_up() -> None:
    assert SourceOffset.from_json({"a": {"0": 5}, "v": {"1": 7}}) == SourceOffset(
        {}, {A0: 5, TopicPartition("v", 1): 7}, adopted=True
    )


@given(OFFSETS, OFFSETS, OFFSETS)
def test_no_partition_moves_back_and_new_ones_begin_at_their_earliest(
    read_to: Offsets, earliest: Offsets, latest: Offsets
) -> None:
    latest = {tp: max(end, read_to.get(tp, 0), earliest.get(tp, 0)) for tp, end in latest.items()}
    start, end = plan.next_target(SourceOffset({}, read_to), Logs(earliest, latest))
    assert set(start) == set(end) == set(latest)
    for tp in latest:
        assert start[tp] <= end[tp]
        assert start[tp] >= read_to.get(tp, 0)
        if tp not in read_to:
            assert start[tp] == earliest.get(tp, 0)


def test_a_partition_made_anew_is_read_from_its_beginning() -> None:
    assert plan.next_target(SourceOffset({}, {A0: 50}), Logs({A0: 0}, {A0: 7})) == ({A0: 0}, {A0: 7})


def test_a_topic_made_anew_is_known_by_its_id_although_it_is_longer() -> None:
    read, logs = SourceOffset({}, {A0: 50}, ids={"a": "old"}), Logs({A0: 0}, {A0: 70}, {"a": "new"})
    assert plan.check_no_loss(read, logs) == ["partition a-0 was read up to 50, then made anew; it ends at 70 now"]
    assert plan.next_target(read, logs) == ({A0: 0}, {A0: 70})
    assert plan.check_no_loss(read, logs._replace(latest={A0: 40}, ids={"a": "old"})) == [
        "partition a-0 ends at 40 but was read up to 50: it was cut"
    ]
    assert plan.next_target(read, logs._replace(latest={A0: 40}, ids={"a": "old"})) == ({A0: 40}, {A0: 40})
    for ids in ({"a": "old"}, {}):
        assert plan.check_no_loss(read, logs._replace(ids=ids)) == []
        assert plan.next_target(read, logs._replace(ids=ids)) == ({A0: 50}, {A0: 70})


def test_s1_a_log_that_lost_its_end_is_read_from_where_it_ends_now() -> None:
    """Ten were read, five are left, seven come: all seven are read."""
    read, logs = SourceOffset({}, {A0: 10, A1: 3}, ids={"a": "A"}), Logs({A0: 0, A1: 0}, {A0: 5, A1: 4}, {"a": "A"})
    begin, end = plan.next_target(read, logs)
    assert (begin, end) == ({A0: 5, A1: 3}, {A0: 5, A1: 4})
    assert plan.moves_back(read, begin)
    assert plan.ranges(begin, end) == [Range(A1, 3, 4)]
    read = SourceOffset(begin, end, ids={"a": "A"})
    begin, end = plan.next_target(read, logs._replace(latest={A0: 12, A1: 4}))
    assert not plan.moves_back(read, begin)
    assert plan.ranges(begin, end) == [Range(A0, 5, 12)]


def test_s1_a_batch_that_moves_back_has_no_rows_of_it() -> None:
    """As Spark's own connector plans it."""
    assert plan.tasks({A0: 10}, {A0: 5}, Cut()) == []
    assert plan.backlog({A0: 10, A1: 1}, {A0: 5, A1: 3}) == 2


@pytest.mark.parametrize("ids", [{}, {"a": "same"}])
def test_s1_a_transaction_that_is_open_is_no_end_of_a_log(ids: dict[str, str]) -> None:
    """Readers of committed records end at 10, where the transaction begins; the log ends at 16."""
    read, logs = SourceOffset({}, {A0: 16}, ids=ids), Logs({A0: 0}, {A0: 10}, ids, ends={A0: 16})
    assert plan.check_no_loss(read, logs) == []
    assert plan.next_target(read, logs) == ({A0: 16}, {A0: 16})
    assert plan.held_back(read, logs) == {A0: 16}
    assert plan.held_back(read, logs._replace(ids={"a": "other"})) == ({} if ids else {A0: 16})
    assert plan.doubtful(read.end, ids, logs) == {A0}
    logs = logs._replace(ends={A0: 15})
    assert plan.held_back(read, logs) == {}
    told = "was read up to 16: it was cut" if ids else "was read up to 16, then made anew; it ends at 15 now"
    assert told in plan.check_no_loss(read, logs)[0]
    assert plan.next_target(read, logs) == (({A0: 15}, {A0: 15}) if ids else ({A0: 0}, {A0: 10}))


def test_s1_a_log_that_was_cut_is_not_held_back_by_a_transaction_that_came_since() -> None:
    """Ten were read; it was cut at 4, and since then has 12, of which a transaction is open at 6."""
    read, logs = SourceOffset({}, {A0: 10}, epochs={A0: 1}), Logs({A0: 0}, {A0: 6}, ends={A0: 12}, epochs={A0: 2})
    assert plan.of_an_earlier_epoch(read, logs) == {A0: 1}
    assert plan.held_back(read, logs) == {A0: 10}
    logs = logs._replace(cuts={A0: 4})
    assert plan.held_back(read, logs) == {}
    assert plan.next_target(read, logs) == ({A0: 4}, {A0: 6})
    assert plan.check_no_loss(read, logs) == [
        "partition a-0 was read up to 10, then cut at 4; it ends at 12 now, with other records in between"
    ]


@pytest.mark.parametrize("now", [{}, {A0: 2}, {A0: 1}])
def test_s1_a_leader_of_the_same_epoch_or_of_an_earlier_one_is_not_asked(now: dict[TopicPartition, int]) -> None:
    """Brokers that tell of no epoch are not, either, nor is anybody about a topic that was made anew."""
    read, logs = SourceOffset({}, {A0: 10}, ids={"a": "A"}, epochs={A0: 2}), Logs({A0: 0}, {A0: 12}, epochs=now)
    assert plan.of_an_earlier_epoch(read, logs) == {}
    assert plan.of_an_earlier_epoch(read._replace(epochs={}), logs._replace(epochs={A0: 3})) == {}
    assert plan.of_an_earlier_epoch(read, logs._replace(ids={"a": "B"}, epochs={A0: 3})) == {}


@given(OFFSETS, st.data())
def test_a_query_that_stops_at_what_was_there_neither_moves_back_nor_beyond(
    start: Offsets, data: st.DataObject
) -> None:
    end = {tp: at + data.draw(st.integers(0, 50)) for tp, at in start.items()}
    stop = {tp: data.draw(st.integers(0, 2**40)) for tp in start if data.draw(st.booleans())}
    stopped = plan.stopped_at(stop, start, end)
    assert set(stopped) == set(end)
    for tp, at in stopped.items():
        assert start[tp] <= at <= max(start[tp], min(end[tp], stop.get(tp, start[tp])))


@given(OFFSETS, st.data(), st.integers(1, 2**41))
def test_a_limit_is_kept_and_starves_nobody(start: Offsets, data: st.DataObject, most: int) -> None:
    end = {tp: at + data.draw(st.integers(0, 2**30)) for tp, at in start.items()}
    cut = plan.limited(start, end, most)
    read = plan.backlog(start, cut)
    behind = [tp for tp in end if end[tp] > start[tp]]
    assert read <= most + len(behind)
    for tp in end:
        assert start[tp] <= cut[tp] <= end[tp]
        assert (cut[tp] > start[tp]) == (tp in behind)
    assert plan.limited(start, end, None) == end


def test_a_limit_is_shared_in_proportion() -> None:
    assert plan.limited({A0: 0, A1: 0}, {A0: 900, A1: 100}, 100) == {A0: 90, A1: 10}


@given(
    st.lists(st.builds(Range, TPS, st.just(0), st.integers(1, 10_000)), max_size=6, unique_by=lambda r: r.tp),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 5_000),
)
def test_pieces_cover_every_offset_once(whole: list[Range], at_least: int | None, most: int | None) -> None:
    pieces = plan.split(whole, at_least, most)
    for r in whole:
        mine = [p for p in pieces if p.tp == r.tp]
        assert [p.start for p in mine] == [r.start, *[p.end for p in mine[:-1]]]
        assert mine[-1].end == r.end
        assert all(p.size > 0 for p in mine)
        if most is not None:
            assert all(p.size <= most for p in mine)
    if at_least is None and most is None:
        assert pieces == whole


def test_small_ranges_are_not_split_for_min_partitions() -> None:
    pieces = plan.split([Range(A0, 0, 1), Range(A1, 0, 999)], 10, None)
    assert [p.tp for p in pieces].count(A0) == 1
    assert len(pieces) == 11


@given(
    st.lists(st.builds(Range, TPS, st.just(0), st.integers(1, 300)), max_size=20, unique_by=lambda r: r.tp),
    st.integers(1, 200),
    st.none() | st.integers(1, 400),
)
def test_small_ranges_share_tasks(pieces: list[Range], least: int, most: int | None) -> None:
    tasks = plan.shared(pieces, least, most)
    sizes = [sum(r.size for r in task) for task in tasks]
    assert [r for task in tasks for r in task] == pieces
    for task, size in zip(tasks, sizes, strict=True):
        assert size - task[-1].size < least, "a task with enough takes no further range"
        assert most is None or size <= most or len(task) == 1
    for size, following in zip(sizes, tasks[1:], strict=False):
        assert size >= least or (most is not None and size + following[0].size > most)
    assert plan.shared(pieces, 1, most) == [[r] for r in pieces]


@given(st.integers(1, 10**7), st.none() | st.floats(0.01, 1e6), st.integers(1, 2**30))
def test_a_fetch_asks_for_what_its_offsets_may_take(offsets: int, bytes_an_offset: float | None, most: int) -> None:
    asked = plan.fetch_bytes(offsets, bytes_an_offset, most)
    needed = offsets * (1_024 if bytes_an_offset is None else bytes_an_offset)
    assert 0 < asked <= most
    assert asked == most or needed < asked < needed * 1.3 + 70_000


@pytest.mark.parametrize(
    ("read_to", "earliest", "latest", "why"),
    [
        ({A0: 5}, {}, {}, "is gone"),
        ({A0: 5}, {A0: 0}, {A0: 3}, "made anew"),
        ({A0: 5}, {A0: 8}, {A0: 9}, "begins at 8 now"),
        ({A0: 5}, {A0: 0, A1: 7}, {A0: 5, A1: 9}, "a-1 is new to the query, and begins at 7 instead of 0"),
    ],
)
def test_what_was_not_read_and_is_not_there_is_a_loss(
    read_to: Offsets, earliest: Offsets, latest: Offsets, why: str
) -> None:
    losses = plan.check_no_loss(SourceOffset({}, read_to), Logs(earliest, latest))
    with pytest.raises(DataLossError, match=why):
        plan.require_no_loss(losses)


def test_a_partition_that_the_options_do_not_name_any_more_is_told_from_one_that_is_gone() -> None:
    losses = plan.check_no_loss(SourceOffset({}, {A0: 5}), Logs({}, {}), lambda tp: tp != A0)
    with pytest.raises(DataLossError, match="partition a-0 was read up to 5, and the query's options do not name it"):
        plan.require_no_loss(losses)


@given(OFFSETS)
def test_nothing_is_lost_when_all_is_there(offsets: Offsets) -> None:
    assert plan.check_no_loss(SourceOffset({}, offsets), Logs(offsets, offsets)) == []
    plan.require_no_loss([])
