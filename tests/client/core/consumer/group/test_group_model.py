"""Members of one group on their whole cores, in virtual time: delays, losses, expulsions, late polls, moves (G3–G15).

Each seed is a history; `group_checks` says what must hold in all of them. `make models` runs thousands, and
OTTLA_GROUP_SEEDS=17-18 one.
"""

import os

import pytest

from tests.client.core.consumer.group.group_world import World

_HERE = 200
_CHUNK = 20


def _seeds() -> list[range]:
    first, _, last = os.environ.get("OTTLA_GROUP_SEEDS", f"0-{_HERE}").rpartition("-")
    begin, end = int(first or 0), int(last)
    return [range(at, min(at + _CHUNK, end)) for at in range(begin, end, _CHUNK)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("seeds", _seeds(), ids=lambda seeds: f"{seeds.start}-{seeds.stop}")
def test_g11_g20_members_of_a_group_are_right_at_all_times_and_whole_when_it_is_calm(
    seeds: range, protocol: str
) -> None:
    for seed in seeds:
        try:
            World(seed, protocol=protocol).run()
        except Exception as fault:
            raise AssertionError(f"seed {seed}: {fault!r}") from fault


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_model_meets_what_it_is_there_for(protocol: str) -> None:
    seen: dict[str, int] = {}
    for seed in range(40):
        world = World(seed, protocol=protocol)
        world.run()
        for what, often in world.checks.seen.items():
            seen[what] = seen.get(what, 0) + often
    assert {"assigned", "given up", "lost", "left", "zombie", "calm"} <= seen.keys()
    assert {"given", "given again", "commit"} <= seen.keys(), "records"
    assert protocol == "consumer" or "late Heartbeat" in seen, "heartbeats that join are given up with their era"
    assert {"late OffsetCommit", "late OffsetFetch"} <= seen.keys(), "answers of eras before"
