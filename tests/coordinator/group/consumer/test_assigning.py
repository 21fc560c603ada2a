"""Assignors that fail, or whose result comes when the group is not what it was any more."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ottla.assign.server import GroupSpec, Partitions, UniformAssignor
from ottla.wire.errors import ErrorCode
from tests.coordinator.group.consumer.rig import Rig


class _Broken(UniformAssignor):
    """One of Kafka's own, with a fault in it."""

    def assign(self, group: GroupSpec) -> Mapping[str, Partitions]:
        raise IndexError("list assignment index out of range")


def test_a_fault_in_one_of_kafkas_assignors_is_a_refusal_and_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(assignors={"uniform": _Broken()})
    assert rig.join("m1").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.log == []
    (line,) = caplog.records
    assert line.getMessage() == "assignor uniform failed on epoch 2 of group readers"
    assert line.exc_info is not None
