"""Read, transform and write, exactly once: one transaction for what a batch of records makes, and for their offsets.

`settings` checks what the user asks for, `batch` is one transaction, `work` the loop around it, `faults` says which
errors are got over by doing a batch again. `ottla.client.blocking.exactly_once` has the function that users call.
"""
