"""The crash matrix: programs that write to a broker, each a process that a test kills; and their lives."""
