# Types of hashing.py for Cython; the .py runs without this file. Products stay below 2^63: both factors have 32 bits,
# one of them 31.
cimport cython

@cython.locals(value=Py_ssize_t, mask=Py_ssize_t, i=Py_ssize_t, data=bytes)
cpdef Py_ssize_t java_string_hash(str text) except? -1

@cython.locals(value=Py_ssize_t)
cpdef Py_ssize_t coordinator_partition(str name, Py_ssize_t partitions) except? -1

@cython.locals(m=Py_ssize_t, mask=Py_ssize_t, seed=Py_ssize_t, length=Py_ssize_t, h=Py_ssize_t, k=Py_ssize_t, i=Py_ssize_t)
cpdef Py_ssize_t murmur2(bytes data) except? -1

cpdef Py_ssize_t partition_for_key(bytes key, Py_ssize_t partitions) except? -1
