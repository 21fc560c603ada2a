"""The main job: real text through broker, Spark and back, exactly once, across kill -9, and the count that proves it.

text       the input: lines of Python's own reference texts, or of the user's files
expected   the expected output, computed by plain Python, and the comparison with the real one
access     how each part reaches the broker: over TLS, with just the rights it needs, if asked for
kills      when which process is killed, drawn from a seed
processes  the broker and the pipeline as processes of their own
check      the foreign consumer that reads the output
report     the table at the end
drive      the steps in order
command    `ottla demo`
"""
