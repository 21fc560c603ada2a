# Types of offset_map.py for Cython; the .py runs without this file.
cimport cython
from libc.stdint cimport int64_t
from ottla.wire.record_codec cimport RecordCursor

# BLAKE2b (RFC 7693) of at most one block, without a key, to 16 bytes.
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static const uint64_t ottla_blake2b_iv[8] = {
        0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
        0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL
    };
    #define OTTLA_ROTR(x, n) (((x) >> (n)) | ((x) << (64 - (n))))
    #define OTTLA_G(a, b, c, d, x, y) \\
        a += b + m[x]; d = OTTLA_ROTR(d ^ a, 32); c += d; b = OTTLA_ROTR(b ^ c, 24); \\
        a += b + m[y]; d = OTTLA_ROTR(d ^ a, 16); c += d; b = OTTLA_ROTR(b ^ c, 63);
    #define OTTLA_ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15) \\
        OTTLA_G(v0, v4, v8, v12, s0, s1) OTTLA_G(v1, v5, v9, v13, s2, s3) \\
        OTTLA_G(v2, v6, v10, v14, s4, s5) OTTLA_G(v3, v7, v11, v15, s6, s7) \\
        OTTLA_G(v0, v5, v10, v15, s8, s9) OTTLA_G(v1, v6, v11, v12, s10, s11) \\
        OTTLA_G(v2, v7, v8, v13, s12, s13) OTTLA_G(v3, v4, v9, v14, s14, s15)
    static inline void ottla_blake2b(const unsigned char *data, size_t size,
                                     unsigned long long *high, unsigned long long *low) {
        uint64_t m[16] = {0};
        const uint64_t *iv = ottla_blake2b_iv, h0 = iv[0] ^ 0x01010010ULL;
        uint64_t v0 = h0, v1 = iv[1], v2 = iv[2], v3 = iv[3], v4 = iv[4], v5 = iv[5], v6 = iv[6], v7 = iv[7];
        uint64_t v8 = iv[0], v9 = iv[1], v10 = iv[2], v11 = iv[3], v12 = iv[4] ^ (uint64_t)size, v13 = iv[5];
        uint64_t v14 = ~iv[6], v15 = iv[7];
        if (size) memcpy(m, data, size);
        OTTLA_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        OTTLA_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
        OTTLA_ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4)
        OTTLA_ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8)
        OTTLA_ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13)
        OTTLA_ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9)
        OTTLA_ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11)
        OTTLA_ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10)
        OTTLA_ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5)
        OTTLA_ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0)
        OTTLA_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        OTTLA_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)
        *high = h0 ^ v0 ^ v8;
        *low = iv[1] ^ v1 ^ v9;
    }
    """
    void ottla_blake2b(const unsigned char *data, size_t size, unsigned long long *high, unsigned long long *low) noexcept

cdef bint COMPILED
cdef int _HASH_BYTES, _BLOCK_BYTES
cdef object _HALVES

@cython.final
cdef class OffsetMap:
    cdef readonly object memory
    cdef unsigned long long[::1] _table
    cdef unsigned long long _slots, _high, _low
    cdef readonly Py_ssize_t max_keys, keys
    cdef public long long latest_offset
    @cython.locals(end=int)
    cpdef bint put_some(self, RecordCursor cursor, int at_most, long long start_offset) except -1
    cdef bint is_newest(self, RecordCursor cursor) except -1
    cpdef object put(self, bytes key, long long offset)
    cpdef int64_t get(self, bytes key) except? -2
    cpdef tuple hash_of(self, bytes key)
    cdef int _hash_at(self, RecordCursor cursor) except -1
    @cython.locals(raw="const unsigned char *")
    cdef int _hash(self, bytes key) except -1
    cdef int _hash_long(self, object key) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int _put(self, long long offset) except -1
    @cython.locals(at=Py_ssize_t)
    cdef int64_t _get(self) noexcept
    @cython.locals(slots=cython.ulonglong, place=cython.ulonglong, step=cython.ulonglong, jumps=cython.ulonglong, most=cython.ulonglong, attempt=cython.ulonglong, at=Py_ssize_t)
    cdef Py_ssize_t _place(self, unsigned long long high, unsigned long long low) noexcept

cdef inline void hash_short(OffsetMap offsets, const unsigned char *raw, Py_ssize_t at, Py_ssize_t size) noexcept:
    ottla_blake2b(raw + at, <size_t>size, &offsets._high, &offsets._low)
