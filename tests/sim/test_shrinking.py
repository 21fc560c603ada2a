"""A failing world is made smaller, leaves a file, and runs again from it; the command says what is wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing.history import History as Facts
from ottla.testing.history import check_history
from sim.__main__ import run_again, why_not
from sim.deletions import DELETER
from sim.loop import START_S
from sim.mutants import mutants
from sim.mutants.worlds import each, never_ends, raises
from sim.report import commit
from sim.running import shrunk
from sim.shrink import shrink
from sim.world import Kind, Plan, Verdict, World
from sim.worldfile import Again, WorldFileError, load, save

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def failing() -> Iterator[Verdict]:
    """A world that shows an anomaly, while the bug that shows it is in."""
    mutant = mutants()["acknowledged-by-the-leader-alone"]
    with mutant.bug:
        for seed in range(200):
            verdict = World(seed, mutant.kind).run()
            if verdict.anomalies:
                yield verdict
                return
    pytest.fail("the bug shows in no world")


def test_a_failing_world_is_made_smaller_and_fails_in_the_same_way(failing: Verdict, tmp_path: Path) -> None:
    steps: list[str] = []
    smallest = shrink(failing, told=steps.append)
    assert smallest.anomalies[0].name == failing.anomalies[0].name
    assert steps
    assert len(smallest.history.events) < len(failing.history.events)
    assert set(smallest.faults) < set(failing.faults)
    path = save(smallest, tmp_path)
    assert json.loads(path.read_text())["again"] == f"make sim WORLD={path}"
    whole = json.loads(save(failing, tmp_path / "whole").read_text())
    assert whole["again"] == f"make sim SEED={failing.seed} KIND={failing.kind.value}"
    again = load(path)
    assert again == Again(failing.seed, failing.kind, smallest.plan, commit())
    assert World(again.seed, again.kind, again.plan).run().digest == smallest.digest
    facts = Facts.read(tmp_path / f"{failing.kind.value}-{failing.seed}.jsonl")
    assert failing.anomalies[0].name in {anomaly.name for anomaly in check_history(facts)}


def test_no_more_worlds_are_run_than_allowed(failing: Verdict) -> None:
    assert shrink(failing, most=0) is failing


@pytest.mark.parametrize(("run", "told"), [(raises, "the checkers are broken"), (never_ends, "NeverEndsError")])
def test_smaller_worlds_that_raise_or_never_end_show_nothing(
    failing: Verdict, run: Callable[[World], Verdict], told: str
) -> None:
    """A fault of the simulator or of a checker, which the whole world does not have."""
    with each(run):
        began_s = time.process_time()
        assert shrink(failing) is failing
        assert time.process_time() - began_s < 10.0, "the first that never ends is the last"
        found = shrunk(failing.seed, failing.kind)
    assert "could not be shrunk" in found
    assert told in found


def test_a_fault_that_is_left_out_changes_nothing_of_what_others_draw() -> None:
    whole = World(3, Kind.PLAIN).run()
    first, *rest = sorted(whole.faults)
    without = World(3, Kind.PLAIN, Plan(only=frozenset(rest))).run()
    assert sorted(without.faults) == rest
    until_s = whole.faults[first] - START_S
    before = [event for event in whole.history.events if event.at_s < until_s]
    assert [event for event in without.history.events if event.at_s < until_s] == before


def test_a_user_who_is_left_out_does_nothing() -> None:
    verdict = World(3, Kind.GROUPS, Plan(absent=frozenset({"p0"}))).run()
    assert not [event for event in verdict.history.events if event.who.startswith("p0.")]
    assert [event for event in verdict.history.events if event.who.startswith("r0.")]


_WORLD = {"version": 1, "seed": 1, "kind": "plain", "only": None, "faults_s": 1, "absent": []}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("garbage", "is no world file: it is not JSON"),
        ("[]", "is no world file: it has no version"),
        ('{"version": 2}', "is a world file of version 2, and this simulator reads version 1: run it with the commit"),
        (json.dumps(_WORLD | {"version": True}), "is a world file of version True, and this simulator reads version 1"),
        (json.dumps(_WORLD | {"version": "1"}), "is a world file of version '1', and this simulator reads version 1"),
        ('{"version": 1, "seed": 1}', "is no world file: it has no 'only'"),
        ("[" * 200_000, "is no world file: it is not JSON"),
        (
            json.dumps(_WORLD | {"kind": "odd"}),
            "is no world file: 'kind' has to be a kind of world, not 'odd'",
        ),
        (json.dumps(_WORLD | {"seed": -1}), "is no world file: 'seed' has to be a whole number, 0 or more"),
        (json.dumps(_WORLD | {"seed": 1.5}), "is no world file: 'seed' has to be a whole number"),
        (json.dumps(_WORLD | {"seed": float("inf")}), "is no world file: 'seed' has to be a whole number"),
        (json.dumps(_WORLD | {"faults_s": float("inf")}), "is no world file: 'faults_s' has to be a number of seconds"),
        (json.dumps(_WORLD | {"faults_s": 10**400}), "is no world file: 'faults_s' has to be a number of seconds"),
        (json.dumps(_WORLD | {"faults_s": 1e9}), "is no world file: 'faults_s' has to be 90 at most"),
        (json.dumps(_WORLD | {"commit": 7}), "is no world file: 'commit' has to be a text"),
        (json.dumps(_WORLD | {"absent": "p0"}), "is no world file: 'absent' has to be a list"),
        (json.dumps(_WORLD | {"only": ["a"]}), "is no world file: 'only' has to be a list, of which each is a whole"),
    ],
)
def test_a_file_that_is_no_world_is_told_in_a_sentence(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "w.json"
    path.write_text(content)
    with pytest.raises(WorldFileError, match=problem):
        load(path)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ({"absent": ["p0", "p7"]}, "names what its world does not have: user p7. Was"),
        ({"only": [1, 0, 9_999]}, "names what its world does not have: fault 0, fault 9999. Was"),
        (
            {"only": [9_999], "absent": ["x"], "commit": "aa"},
            r"user x, fault 9999\. Was it changed by hand, or made by other code \(aa, and this is ",
        ),
    ],
)
def test_a_file_that_names_what_its_world_does_not_have_is_refused(
    tmp_path: Path, names: dict[str, object], told: str
) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(_WORLD | {"faults_s": 30} | names))
    with pytest.raises(WorldFileError, match=told):
        run_again(path)


def test_a_file_that_names_what_its_world_has_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = min(World(1, Kind.PLAIN, Plan(faults_s=30.0)).run().faults)
    path = tmp_path / "w.json"
    path.write_text(json.dumps(_WORLD | {"faults_s": 30, "only": [first], "absent": ["p0", DELETER]}))
    assert run_again(path) == 0
    assert "no anomaly. Either it is mended" in capsys.readouterr().out


def test_a_file_from_before_worlds_named_their_commit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(_WORLD))
    assert load(path) == Again(1, Kind.PLAIN, Plan(None, 1.0, frozenset()), None)


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ("aa", "bb", "It was found by the code of commit aa, and this is bb. Either it is mended, or the code has"),
        (None, "bb", "Either it is mended, or the code has changed so much that this is another world."),
        ("aa-dirty", "aa-dirty", "Either it is mended, or"),
        ("unknown", "unknown", "Either it is mended, or"),
        ("aa", "aa", "The same code (aa) has found one."),
    ],
)
def test_a_world_that_fails_no_more_says_whose_code_has_found_it(then: str | None, now: str, told: str) -> None:
    assert why_not(then, now).startswith(told)


def test_a_world_whose_readers_are_left_out_does_not_miss_what_they_would_have_read() -> None:
    """Else a search for a lost record would end with a world that has nobody to read it."""
    plan = Plan(faults_s=5.0)
    users = World(3, Kind.BROKER_GROUPS, plan).run().users
    verdict = World(3, Kind.BROKER_GROUPS, plan._replace(absent=frozenset(u for u in users if u[0] == "r"))).run()
    assert verdict.anomalies == []
