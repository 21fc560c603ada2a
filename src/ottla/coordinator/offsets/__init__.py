"""Committed offsets: the store, and the decisions of commit, fetch, deletion and retention."""
