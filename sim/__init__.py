"""Simulated worlds: the real clients in virtual time, against a model of a cluster. Each world comes from one seed.

`docs/simulation.md` says what is real and what is modelled. Nothing in `src` imports this package.
"""
