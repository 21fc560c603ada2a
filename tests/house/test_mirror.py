"""`tests/client` mirrors `src/ottla/client`: whoever owns a module finds its tests by its name, `test_<module>….py`."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

from tests.house.tree import ROOT, name_of, python_files

_SOURCES, _TESTS = "src/ottla/client/", "tests/client/"
#: A module with fewer lines of code than this has its tests where it is used.
_SMALL = 60
_ONLY_VALUES = "values alone, which do nothing"
#: Module → the file that tests it instead, or several, or why there is nothing to test.
_ELSEWHERE: dict[str, tuple[str, ...] | str] = {
    # every call of the admin client goes the same way; what each of them does is shown on brokers
    "admin/group_offsets.py": ("admin/test_faults.py", "group_admin_journeys.py"),
    "admin/topics.py": ("admin/test_calls.py", "admin/test_faults.py"),
    "admin/transactions.py": ("admin/test_faults.py", "transaction_journeys.py"),
    "admin/types.py": _ONLY_VALUES,
    # the facades hand over; the journeys are gone with them
    "blocking/admin.py": ("journeys.py",),
    "blocking/exactly_once.py": ("exactly_once_journeys.py", "exactly_once/test_settings.py"),
    "blocking/producer.py": ("journeys.py", "blocking/test_unclosed.py", "blocking/test_loop_thread.py"),
    # one table of keys, in three files, and the keys that are not in force
    "config/accepted.py": ("config/test_config.py",),
    "config/producer.py": ("config/test_config.py",),
    # the shell of the consumer: its calls, one file a concern
    "consumer/lookups.py": ("consumer/test_offsets_left_out.py",),
    "consumer/consumer.py": ("consumer/test_polls_that_hang.py", "consumer/test_cancellation.py"),
    # rules of the consumer's core that only show with others of them
    "core/consumer/core.py": ("core/consumer/group/test_group_model.py",),
    "core/consumer/group/consumer/heartbeats.py": ("core/consumer/group/consumer/test_membership.py",),
    "core/consumer/group/giving_up.py": ("core/consumer/group/test_group_model.py",),
    "core/consumer/group/membership.py": ("core/consumer/group/test_group_model.py",),
    "core/consumer/positions.py": ("core/consumer/test_resets.py", "core/consumer/test_validation.py"),
    "core/consumer/shared.py": ("core/consumer/group/test_group_model.py",),
    "core/intents.py": _ONLY_VALUES,
    # rules of the producer's core that only show with others of them
    "core/producer/batch.py": ("core/producer/test_split.py", "core/producer/test_accumulator.py"),
    "core/producer/calls.py": ("core/producer/test_transactions.py", "core/producer/test_core_model.py"),
    "core/producer/fates.py": ("core/producer/test_answers.py", "core/producer/test_core_model.py"),
    "core/producer/sending.py": ("core/producer/test_core_model.py", "core/producer/test_odd_moments.py"),
    "core/producer/transaction_requests.py": ("transaction_journeys.py", "core/producer/test_core_model.py"),
    "errors.py": ("test_exports.py",),
    "producer/transactional.py": ("transaction_journeys.py", "two_phase_journeys.py"),
    "producer/delivery.py": ("journeys.py", "producer/test_producer_faults.py"),
}


def _lines_of_code(source: str) -> int:
    """Lines with something on them that is neither a comment nor a docstring."""
    layout = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in layout
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def _below(folder: str) -> dict[str, Path]:
    """Path below `folder` → file."""
    return {name_of(path).removeprefix(folder): path for path in python_files() if name_of(path).startswith(folder)}


def _mirrored(module: str, tests: dict[str, Path]) -> bool:
    """Whether a test file beside the module's place has its name; a package's own module has the package's."""
    path = Path(module)
    name = path.parent.name if path.stem == "__init__" else path.stem
    begins = (path.parent / f"test_{name}").as_posix()
    return any(test == f"{begins}.py" or test.startswith(f"{begins}_") for test in tests)


def _without_mirror() -> set[str]:
    tests = _below(_TESTS)
    return {
        module
        for module, path in _below(_SOURCES).items()
        if _lines_of_code(path.read_text()) > _SMALL and not _mirrored(module, tests)
    }


def test_every_module_of_the_client_has_its_tests_by_its_name_or_it_is_said_where() -> None:
    missing = _without_mirror() - _ELSEWHERE.keys()
    assert not missing, f"no tests/client/…/test_<module>.py for {sorted(missing)}"


def test_the_list_names_only_what_needs_it_and_files_that_are_there() -> None:
    assert _ELSEWHERE.keys() <= _without_mirror(), "has a mirror, is small, or is gone: take it off the list"
    named = {name for value in _ELSEWHERE.values() if not isinstance(value, str) for name in value}
    assert not {name for name in named if not (ROOT / _TESTS / name).is_file()}


def test_only_code_counts_as_lines_of_code() -> None:
    assert _lines_of_code('"""Two\nlines."""\n\n# a comment\nx = (\n    1,\n)\n\n\ndef f():\n    """What."""\n') == 4
    assert _mirrored("net/cluster.py", {"net/test_cluster_of_two.py": ROOT})
    assert not _mirrored("net/cluster.py", {"net/test_clusters.py": ROOT, "test_cluster.py": ROOT})
