# Types of codec.py for Cython; the .py runs without this file.
cimport cython

cdef int BOOL, INT8, INT16, INT32, INT64, UINT16, UINT32, FLOAT64, UUID, STRING, BYTES, RECORDS, STRUCT, ARRAY
cdef Py_ssize_t _MAX_ARRAY_ELEMENTS
cdef Py_ssize_t _MAX_STRING_BYTES
cdef Py_ssize_t _MAX_TAGGED_FIELDS
cdef Py_ssize_t _OWN_PIECE_BYTES

@cython.final
cdef class FieldPlan:
    cdef public str name
    cdef public int kind
    cdef public Py_ssize_t index
    cdef public bint nullable
    cdef public bint flexible
    cdef public object default
    cdef public FieldPlan element
    cdef public StructPlan struct

@cython.final
cdef class StructPlan:
    cdef public object cls
    cdef public str name
    cdef public bint flexible
    cdef public list defaults
    cdef public list fields
    cdef public list tagged
    cdef public list absent

@cython.final
cdef class Reader:
    cdef object data
    cdef const unsigned char[::1] view
    cdef Py_ssize_t end
    cdef Py_ssize_t elements_left
    cdef Py_ssize_t max_field_bytes
    cdef public Py_ssize_t pos
    cdef int count(self, Py_ssize_t n, str what) except -1
    cdef int need(self, Py_ssize_t n, str what) except -1
    @cython.locals(b=int)
    cdef int int8(self) except? -1
    @cython.locals(b=int)
    cdef int int16(self) except? -1
    @cython.locals(u=Py_ssize_t)
    cdef int int32(self) except? -1
    @cython.locals(p=Py_ssize_t, hi=Py_ssize_t, lo=Py_ssize_t)
    cdef Py_ssize_t uint32(self) except? -1
    @cython.locals(hi=Py_ssize_t, lo=Py_ssize_t)
    cdef Py_ssize_t int64(self) except? -1
    @cython.locals(value=Py_ssize_t, b=Py_ssize_t, shift=int)
    cdef Py_ssize_t uvarint(self) except? -1
    @cython.locals(n=Py_ssize_t)
    cdef Py_ssize_t length(self, FieldPlan field, str what) except? -2
    @cython.locals(kind=int)
    cpdef object field(self, FieldPlan plan)
    cdef object rare(self, FieldPlan plan)
    @cython.locals(n=Py_ssize_t, start=Py_ssize_t)
    cdef object string(self, FieldPlan plan)
    @cython.locals(n=Py_ssize_t, start=Py_ssize_t)
    cdef object bytes_(self, FieldPlan plan)
    @cython.locals(n=Py_ssize_t)
    cpdef Py_ssize_t array_length(self, FieldPlan plan) except? -2
    @cython.locals(n=Py_ssize_t, element=FieldPlan, inner=StructPlan, items=list)
    cdef object array(self, FieldPlan plan)
    @cython.locals(f=FieldPlan, values=list)
    cpdef object struct(self, StructPlan plan)
    @cython.locals(f=FieldPlan, count=Py_ssize_t, tag=Py_ssize_t, size=Py_ssize_t, after=Py_ssize_t)
    cpdef int tags(self, StructPlan plan, list values) except -1

@cython.final
cdef class Writer:
    cdef bytearray data
    cdef unsigned char[::1] view
    cdef Py_ssize_t capacity
    cdef public Py_ssize_t pos
    cdef int room(self, Py_ssize_t n) except -1
    cdef int grow(self, Py_ssize_t capacity) except -1
    cdef list pieces
    cdef bytes finish(self)
    cdef list finish_pieces(self)
    cdef int int8(self, int v) except -1
    cdef int int16(self, int v) except -1
    cdef int int32(self, Py_ssize_t v) except -1
    cdef int int64(self, Py_ssize_t v) except -1
    cdef int uvarint(self, Py_ssize_t v) except -1
    cdef int raw(self, object data, Py_ssize_t n) except -1
    cdef int length(self, FieldPlan plan, Py_ssize_t n) except -1
    @cython.locals(kind=int, low=Py_ssize_t, high=Py_ssize_t)
    cdef int integer(self, FieldPlan plan, object value) except -1
    cdef int long(self, FieldPlan plan, object value) except -1
    @cython.locals(kind=int, data=bytes)
    cdef int field(self, FieldPlan plan, object value) except -1
    @cython.locals(element=FieldPlan)
    cdef int array(self, FieldPlan plan, object value) except -1
    @cython.locals(f=FieldPlan)
    cdef int struct(self, StructPlan plan, object value) except -1
    @cython.locals(f=FieldPlan)
    cdef int end(self, StructPlan plan, object value) except -1
    @cython.locals(f=FieldPlan, inner=Writer, packed=bytes)
    cdef int tags(self, StructPlan plan, object value) except -1

@cython.locals(reader=Reader)
cpdef tuple read_struct(
    StructPlan plan, object data, Py_ssize_t pos, Py_ssize_t max_elements=*, Py_ssize_t max_field_bytes=*
)
cpdef bytes write_struct(StructPlan plan, object value)
@cython.locals(writer=Writer)
cpdef list write_pieces(StructPlan plan, object value)
@cython.locals(writer=Writer)
cpdef list write_field(FieldPlan plan, object value)
@cython.locals(writer=Writer)
cpdef bytes write_length(FieldPlan plan, Py_ssize_t n)
@cython.locals(writer=Writer)
cpdef bytes write_end(StructPlan plan, object value)
