"""A write of thousands of slots: what its tasks report, and what its decision takes."""

import json
import pickle
import random

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla.base.errors import ConfigError
from ottla.spark.errors import LedgerFormatError
from ottla.spark.ids import driver_id, slot_id
from ottla.spark.ledger import (
    MOST_SLOTS,
    BatchKey,
    Decision,
    Handle,
    Plan,
    QueryPast,
    SlotDecision,
    SlotMarker,
    decode,
    encode,
)
from ottla.spark.options import sink_options
from ottla.spark.protocol import Claim, SlotTask, claim_of
from ottla.spark.sink import KafkaSink
from tests.spark.sink_world import SCHEMA

SLOTS = 1_000
KEY, DRIVER = BatchKey("q", 7), Handle(driver_id("s"), 9, 2)
#: What a topic takes if it is not set otherwise.
MOST_BYTES = 1_048_588


def driver() -> KafkaSink:
    """One whose claim has found a batch of which all slots but the last one are committed; each had no row."""
    sink = KafkaSink(
        sink_options({"kafka.bootstrap.servers": "nobody:1", "topic": "t", "sink.id": "s"}), SCHEMA, on_driver=False
    )
    markers = tuple(SlotMarker(KEY, slot, 0, "") for slot in range(SLOTS - 1))
    sink.claim = Claim("s", DRIVER, {KEY.query: QueryPast(6, 7, markers, Plan(None, "t"))})
    return sink


def decision(slots: int, chance: random.Random) -> Decision:
    """One with slots of any numbers."""

    def slot(number: int) -> SlotDecision:
        handle = Handle(slot_id("the-words.of-the-lines", number), chance.randrange(10**10), chance.randrange(2**15))
        return SlotDecision(number, chance.randrange(10**7), f"{chance.randrange(2**128):032x}", handle)

    return Decision(KEY, DRIVER, tuple(map(slot, range(slots))), Plan("ab", "t"))


def test_s2_the_claim_comes_back_to_the_driver_once() -> None:
    sink = driver()
    messages = [sink.write(KEY, slot, iter([])) for slot in range(SLOTS)]
    sizes = [len(pickle.dumps(message)) for message in messages]
    assert max(sizes[1:]) < 1_000
    assert sizes[0] > SLOTS  # it has all markers
    reports = [message.report for message in messages if message.report is not None]
    assert [report.task for report in reports] == [SlotTask.VERIFY] * (SLOTS - 1) + [SlotTask.WRITE]
    assert claim_of(reports[::-1]) == sink.claim


def test_s2_the_decision_of_most_slots_fits_whatever_is_in_them() -> None:
    made = decision(MOST_SLOTS, random.Random(7))
    key, value = encode("s", made)
    assert value is not None and len(key) + len(value) < MOST_BYTES - 10_000
    assert decode(key, value).record == made._replace(slots=tuple(each._replace(digest="") for each in made.slots))


def test_s2_a_decision_of_few_slots_is_as_versions_before_read_it() -> None:
    made = decision(2_000, random.Random(7))
    key, value = encode("s", made)
    assert json.loads(value or b"")["v"] == 1
    assert decode(key, value).record == made


@pytest.mark.parametrize("damage", [lambda text: text[:40_000], lambda text: "AAAA" + text, lambda text: text + "=?"])
def test_s2_packed_slots_that_are_damaged_are_no_record_of_a_ledger(damage: object) -> None:
    key, value = encode("s", decision(5_000, random.Random(7)))
    body = json.loads(value or b"")
    body["slots"] = damage(body["slots"])  # type: ignore[operator]
    with pytest.raises(LedgerFormatError):
        decode(key, json.dumps(body).encode())


def test_s2_a_write_of_more_slots_is_refused_before_a_row_of_them_is_written() -> None:
    with pytest.raises(ConfigError, match=rf"more than {MOST_SLOTS} Spark partitions.* coalesce"):
        driver().write(KEY, MOST_SLOTS, iter([]))
