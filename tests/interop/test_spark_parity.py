"""What a script may ask of Spark's own Kafka connector, asked of both; `docs/spark-parity.md` has the answers.

`OTTLA_PARITY=write` writes the page again. `OTTLA_PARITY_ONLY=PATTERN` runs the cases whose `group: name` it finds.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.parity.case import OURS, SPARKS, Case, Side, outcome
from tests.interop.parity.keys import all_keys
from tests.interop.parity.reads import all_reads
from tests.interop.parity.refusals import TRACEBACK, crash
from tests.interop.parity.sinks import all_writes
from tests.interop.parity.streams import all_streams
from tests.interop.parity.table import PAGE, Line, page, rows_of
from tests.interop.parity.world import fill
from tests.interop.spark_topics import Topics

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing import Broker

pytestmark = [pytest.mark.interop]

CASES = [*all_reads(), *all_streams(), *all_writes(), *all_keys()]


@pytest.fixture(scope="module")
def sides(spark: Any, our_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Both connectors on one broker."""
    topics = Topics(our_broker.bootstrap_servers)
    folder: Path = tmp_path_factory.mktemp("parity")
    numbers = itertools.count()
    still_open = fill(topics)
    yield Side(SPARKS, spark, topics, folder, numbers), Side(OURS, spark, topics, folder, numbers)
    still_open.abort_transaction()
    still_open.close()


@pytest.mark.slow
def test_s5_both_connectors_do_what_the_page_says(sides: tuple[Side, Side]) -> None:
    only = os.environ.get("OTTLA_PARITY_ONLY", "")
    chosen = [case for case in CASES if re.search(only, f"{case.group}: {case.name}")]
    lines = [_line(case, sides) for case in chosen]
    unsaid = [f"{each.group}: {each.name}" for each in lines if each.sparks != each.ours and not each.why]
    idle = [f"{each.group}: {each.name}" for each in lines if each.sparks == each.ours and each.why]
    if os.environ.get("OTTLA_PARITY") == "write" and not only:
        PAGE.write_text(page(lines))
    there, now = rows_of(PAGE.read_text()), rows_of(page(lines))
    others = [f"was {there.get(key)}\n now {row}" for key, row in now.items() if there.get(key) != row]
    gone = [] if only else sorted(there.keys() - now.keys())
    assert (unsaid, idle) == ([], []), "cases without a reason, and with one that is not needed"
    assert (others, gone) == ([], []), "\n".join(others)


def _line(case: Case, sides: tuple[Side, Side]) -> Line:
    (sparks, _), (ours, said) = (outcome(case, side) for side in sides)
    print(
        f"{case.group}: {case.name}: {sparks} / {ours} {' '.join(said.split())[-2000:] if said else ''}",
        flush=True,
    )
    return Line(case.group, case.name, sparks, ours, case.why)


def test_s5_the_page_has_every_case_and_each_has_a_name_of_its_own() -> None:
    listed = [(f"{case.group[0].upper()}{case.group[1:]}", f"| {case.name}") for case in CASES]
    assert len(listed) == len(set(listed)) >= 200
    assert set(rows_of(PAGE.read_text())) == set(listed)


_OURS_SAID = "\nottla.base.errors.ConfigError: startingOffsets: 'x' is no JSON\n SQLSTATE: 38000"


@pytest.mark.parametrize(
    ("text", "is_refusal"),
    [
        (f"[A] {TRACEBACK}\n  File x\n    raise ConfigError(why){_OURS_SAID}", True),
        (f"[A] {TRACEBACK}{_OURS_SAID}\nDuring handling …\n{TRACEBACK}\n  File y\nKeyError: 'startingOffsets'", False),
        (f"{TRACEBACK}\n  File y\nTypeError: startingOffsets", False),
        (f"{TRACEBACK}\n  File y\nottla.client.errors.KafkaError: startingOffsets", False),
        (f"{TRACEBACK}\n  File y\nottla.base.errors.ConfigError: something is wrong", False),
        ("An error occurred while calling o7.save.\n: java.lang.NullPointerException: startingOffsets", False),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: ottla", False),
        ("Sink ottla does not support async progress tracking", True),
    ],
)
def test_s5_a_crash_of_ours_is_no_refusal(text: str, is_refusal: bool) -> None:
    assert (crash(text, ("startingOffsets",)) is None) is is_refusal
