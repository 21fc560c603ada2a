"""One test, or more, for each row of the specification, as a person would try it: whole groups, a real broker."""
