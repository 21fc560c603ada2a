"""Sticky and cooperative sticky (SPEC A4–A6): as even as can be, then as close to the last assignment as can be.

`user_data` and `claims` say what each member holds; `board` is what both ways to divide work on. `constrained` divides
if all members want the same topics, `general` if they do not. `assignors` has the two assignors, which differ in where
they find what members hold, and in that the cooperative one holds back what its owner has to give up first (KIP-429).
"""

from ottla.assign.sticky.assignors import CooperativeStickyAssignor, StickyAssignor

__all__ = ["CooperativeStickyAssignor", "StickyAssignor"]
