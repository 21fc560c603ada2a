"""What the tables of all memberships have in common: how an input is looked up, and how the table is drawn."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

S = TypeVar("S", bound=Enum)
I = TypeVar("I", bound=Enum)  # noqa: E741  an input


def draw(transitions: Mapping[S, Mapping[I, S]], everywhere: Mapping[I, S], first: S) -> str:
    """The table as a Mermaid diagram, without the inputs that do not change the state.

    `everywhere` has the inputs that are possible in every state.
    """
    lines = ["stateDiagram-v2", f"    [*] --> {first.value}", '    state "every state" as Every']
    lines += [f"    Every --> {target.value} : {what.value}" for what, target in everywhere.items()]
    for source, inputs in transitions.items():
        by_target: dict[S, list[str]] = {}
        for what, target in inputs.items():
            if target is not source and what not in everywhere:
                by_target.setdefault(target, []).append(what.value)
        lines += [f"    {source.value} --> {target.value} : {', '.join(names)}" for target, names in by_target.items()]
    return "\n".join(lines)
