"""The harness itself: a node that answers, survives kill -9 on its directory, and whose tools run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.apache import ApacheKafka, answers_api_versions, run_tool

pytestmark = pytest.mark.interop


def test_node_keeps_its_topics_over_kill_9(apache_jars: str, tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "node") as kafka:
        create = ("--create", "--topic", "kept", "--partitions", "2")
        run_tool("TopicCommand", "--bootstrap-server", kafka.bootstrap, *create)
        kafka.kill9()
        assert not answers_api_versions("127.0.0.1", kafka.port)
        kafka.restart()
        listed = run_tool("TopicCommand", "--bootstrap-server", kafka.bootstrap, "--list").stdout
        assert "kept" in listed.split()
