"""No secret in any log, error, `repr`, Spark plan or exception: at the highest level of logs, and object by object."""
