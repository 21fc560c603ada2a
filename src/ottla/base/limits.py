"""Every limit in one place, with its reason."""

from typing import Final

#: A request frame on the wire; Kafka's default of `socket.request.max.bytes`. Checked before a byte is allocated.
MAX_REQUEST_BYTES: Final = 104_857_600

#: A response frame that the client accepts. It has room for two fetches of `fetch.max.bytes` (50 MiB).
MAX_RESPONSE_BYTES: Final = 268_435_456

#: Elements of one array in a decoded message. Elements take at least one byte on the wire, so a count above the number
#: of bytes left is refused before anything is built. This limit is for structs that take no bytes at all.
MAX_ARRAY_ELEMENTS: Final = 4_000_000

#: Bytes of a string in a message, as in Kafka. Flexible versions could carry more; records of the coordinators' logs
#: could not, and who had sent it would have a group, or a transactional id, that cannot be written.
MAX_STRING_BYTES: Final = 32_767

#: Elements of all arrays in one request, nested ones too, and tagged fields. To decode so many takes 5 to 16
#: milliseconds. Kafka has no such limit. The largest request of a good client has an element for each partition and
#: one more for each replica; a broker is meant for 10,000 partitions.
MAX_REQUEST_ELEMENTS: Final = 30_000

#: Elements of a produce that is decoded at once: its bytes are mostly records, and do not say how many there are.
FEW_ELEMENTS: Final = 200

#: Characters of what an error message says: it may name what a client has sent, and would not fit into a string then.
MAX_ERROR_TEXT: Final = 4_000

#: Nested tagged fields of one struct; Kafka itself uses fewer than ten.
MAX_TAGGED_FIELDS: Final = 1_000

#: Bytes that one compressed record batch may hold. A producer fills a batch to `batch.size` (1 MiB at most in
#: practice) before it compresses, so 256 MiB is far beyond any real batch and stops a bomb of a few kilobytes.
MAX_DECOMPRESSED_BATCH_BYTES: Final = 268_435_456

#: Bytes of keys, or of values, in one Arrow batch decoded from many record batches: Arrow's offsets have 32 bits.
MAX_COLUMN_BYTES: Final = 2_147_483_647

#: Tombstones of offsets that go into one batch and one turn of the loop, and bytes of their keys, which hold the names
#: of group and topic: both far below the 1 MiB that a batch may have.
MAX_TOMBSTONES_PER_BATCH: Final = 1_000
MAX_TOMBSTONE_BYTES_PER_BATCH: Final = 600_000

#: Offsets that are looked at, or become committed at the end of a transaction, in one step: one or two milliseconds.
MAX_OFFSETS_PER_STEP: Final = 1_000

#: Partitions of a transaction that get their markers within a request. Each takes a tenth of a millisecond of the event
#: loop, so more get theirs in slices.
MAX_INLINE_MARKERS: Final = 50

#: Partitions of a transaction whose record is made within a request: a microsecond each. A record of more is made in
#: steps, whenever the transaction grows or ends.
MAX_INLINE_ADDED: Final = 1_000

#: Committed offsets that a group shard looks at before it takes another input, for retention or after a topic was
#: deleted: some ten milliseconds, in steps. A group is looked at as a whole.
MAX_OFFSETS_PER_LOOK: Final = 10_000

#: Tombstones of expired transactional ids in one batch. Each takes about 20 bytes and its id, so that a batch stays
#: below `max.message.bytes` (1 MB) with ids of up to 1,000 bytes; what is left over follows at once.
MAX_EXPIRED_IDS_PER_BATCH: Final = 1_000

#: Characters of a pattern that a client sends. With all these limits, RE2 needs six milliseconds for the slowest
#: pattern that was found; it holds Python's lock meanwhile, so that a thread would not help.
MAX_PATTERN_CHARACTERS: Final = 2_000

#: Classes of Unicode (`\\pL`) in such a pattern. To read one takes 0.1 ms, whatever memory the pattern may have.
MAX_PATTERN_CLASSES: Final = 10

#: Memory of such a pattern while it is compiled and used. RE2 refuses a pattern that needs more.
MAX_PATTERN_MEMORY_BYTES: Final = 262_144

#: Steps of such a pattern when compiled. A match costs at most this many steps for each character: two milliseconds for
#: an id of 100 characters in the slowest case that was found, and usually a few microseconds.
MAX_PATTERN_PROGRAM: Final = 5_000

#: Timers that one turn of the event loop fires, and milliseconds after which it fires no more: a member that is
#: expelled takes a tenth of a millisecond, and more in a large group.
TIMERS_AT_ONCE: Final = 100
TIMERS_TURN_MS: Final = 5

#: Member ids of one group that were given out (MEMBER_ID_REQUIRED) and with which nobody has joined yet.
MAX_PENDING_MEMBERS: Final = 5_000

#: Bytes of all that one member of a classic group says of itself, in all its protocols. It is kept while the member is
#: in the group, and has to fit into a record of `message.max.bytes` (1 MB); 30,000 names of topics take some 2 MB.
MAX_MEMBER_METADATA_BYTES: Final = 8_388_608

#: The same of all members of a group together. Its leader is told of all of them in one answer. A thousand members with
#: two protocols of 10 KB each have 20 MB. Kafka has no limit but `max.message.bytes` of the log, for what is assigned.
MAX_GROUP_METADATA_BYTES: Final = 33_554_432

#: The same of the members of all groups together: each may be a group of its own, and stays while its session lasts,
#: half an hour if it likes. 60 groups of one client that had gone took 480 MB.
MAX_ALL_METADATA_BYTES: Final = 268_435_456
#: Who says no more than this is not refused for that: a group takes as much by itself.
SMALL_METADATA_BYTES: Final = 4_096

#: Protocols (assignors) of one member of a classic group. Each join looks at those of the member, and of all others;
#: real clients have one to three. With 20,000 a join took 35 milliseconds.
MAX_MEMBER_PROTOCOLS: Final = 100

#: Names of topics that one member of a consumer group subscribes to: they are hashed, sorted, written and read, some 20
#: milliseconds. A broker is meant for 10,000 partitions, and a pattern means any number.
MAX_SUBSCRIBED_NAMES: Final = 10_000
#: More of them are taken in steps.
MAX_NAMES_AT_ONCE: Final = 2_000

#: Different names of topics in the subscriptions of a classic group, those of each member once: to read so many takes
#: some ten milliseconds, and they take 7 MB. Of more, it is not known to which topics the group subscribes.
MAX_GROUP_TOPICS: Final = 100_000

#: Bytes of one field of bytes in a request, which is copied at once: five to eight milliseconds. Such fields are a
#: member's metadata and its assignment. Whoever sends a larger one loses its connection; Kafka has no such limit.
MAX_FIELD_BYTES: Final = 16_777_216

#: Waiting fetches that one turn of the event loop reads again; each takes some 30 microseconds. And milliseconds after
#: which it reads no more: one of 200 partitions may take a millisecond.
FETCHES_AT_ONCE: Final = 100
WAKES_TURN_MS: Final = 3
#: Who waits for partitions to grow and is told in one turn that they have: half a microsecond each. A produce of 50
#: partitions for which 1,500 fetches waited took 36 milliseconds.
TOLD_AT_ONCE: Final = 4_000
#: Partitions that a fetch stops watching at once: an eighth of a microsecond each. It counts as one that is woken for
#: each so many more.
UNWATCHED_AT_ONCE: Final = 200

#: Requests of group members that one turn of the event loop carries out at once, of all connections, and such answers
#: that it gives: each takes some 50 microseconds. The others come in slices.
HERD_AT_ONCE: Final = 8
HERD_ANSWERS_AT_ONCE: Final = 32

#: Frames of one connection that wait for their turn before a broker stops reading its socket: a client with
#: `max.in.flight.requests.per.connection` of 5 is far below it.
MAX_WAITING_FRAMES: Final = 64
#: Requests of one connection answered in a row while others wait for their turn.
FRAMES_AT_ONCE: Final = 8
#: The row ends when its requests have so many bytes, too: they may have an element in every four bytes.
FRAME_BYTES_AT_ONCE: Final = 65_536
#: And when they have taken so long: each may be far below every limit, and eight of them a quarter of a second.
ROW_MS: Final = 2
#: When the requests of all connections have taken so long in one turn, the others wait for the next one.
REQUESTS_TURN_MS: Final = 5

#: Sockets that one turn of a broker's event loop looks at: receiving a small request, or an end, takes some 10
#: microseconds. And new connections that it takes: each takes some 40.
POLLED_AT_ONCE: Final = 256
ACCEPTED_AT_ONCE: Final = 64

#: Bytes of a log between two entries of its offset index, whatever `index.interval.bytes` says: a reader that looks for
#: an offset goes from header to header in between, and a fetch of many partitions does so for each.
MAX_INDEX_INTERVAL_BYTES: Final = 32_768

#: Bytes of the salt of a SCRAM credential; tools draw some 20.
MAX_SALT_BYTES: Final = 1_024

#: Bytes that one connection sends in one turn, to a peer that takes them as fast: a millisecond of the event loop.
SENT_AT_ONCE_BYTES: Final = 1_048_576

#: Bytes of such frames: with produce requests of a megabyte, the limit on their number alone would allow too much.
MAX_WAITING_BYTES: Final = 8_388_608

#: The buffer of a busy connection; it grows to the largest frame seen, up to LARGE_FRAME_BYTES.
BUSY_BUFFER_BYTES: Final = 65_536
#: What a connection begins with. Most are idle; the first receive that fills it makes it larger.
IDLE_BUFFER_BYTES: Final = 4_096
#: Bytes that the buffers of all connections keep, beyond these, when no frame needs them: 2,000 busy connections, or
#: 128 producers of a megabyte. Beyond it a buffer is made anew for each frame that is not whole at once.
MAX_KEPT_BYTES: Final = 134_217_728

#: Bytes of all frames that a broker receives at one time and that need more than IDLE_BUFFER_BYTES, where
#: `queued.max.request.bytes` is -1: five of the largest requests, or 500 produce requests of a megabyte. Kafka has no
#: limit then.
MAX_RECEIVED_BYTES: Final = 536_870_912
#: Connections whose frames get of that memory in one turn of the loop: each then reads what has come.
FRAMES_GRANTED_AT_ONCE: Final = 100
#: While frames wait for that memory, a frame that has some and of which nothing comes for so long gives it up.
STALLED_FRAME_MS: Final = 10_000

#: Milliseconds after which a frame must be whole while others wait for its memory: a few clients that announce frames
#: of 100 MB, and send a byte now and then, would keep everybody's larger frames out for `connections.max.idle.ms`.
SLOW_FRAME_MS: Final = 30_000

#: A larger frame is received into memory of its own. The buffer of a connection grows so far and stays: a produce
#: request of a megabyte (`max.request.size` of Kafka's producer) fits with its headers, so it needs no new memory.
LARGE_FRAME_BYTES: Final = 2_097_152
#: The same for a client, whose frames get memory that was used before.
REUSED_FRAME_BYTES: Final = 262_144
#: Bytes of such memory that all clients of a process keep: the answers to a few fetches of four partitions with the
#: default `max.partition.fetch.bytes`. An answer of more than half of it gets new memory.
MAX_SPARE_BYTES: Final = 16_777_216
#: Bytes of memory that the large batches of all producers of a process are built in, and that is used again: somewhat
#: more than the default `buffer.memory`, for a pool that is smaller than what is in use finds nothing.
MAX_SPARE_BATCH_BYTES: Final = 50_331_648
#: A thread that sends batches of this size waits for a producer's loop that has not heard of the last one, for so long
#: at most. Smaller ones are many in a request, and to wait for each would make more requests.
LARGE_BATCH_BYTES: Final = 262_144
GIVE_WAY_S: Final = 0.001
#: Bytes of such a frame that are taken from the socket at once.
RECEIVED_AT_ONCE_BYTES: Final = 1_048_576

#: Bytes that all connections receive in one turn of the loop, together: some four milliseconds. Then those that follow
#: receive a small request, or a piece, and go on in a later turn.
RECEIVED_TURN_BYTES: Final = 4_194_304
#: Such a piece, and what is counted at all: as much as a connection begins with.
RECEIVED_PIECE_BYTES: Final = IDLE_BUFFER_BYTES
#: What a receive counts at least that is counted: its fixed cost, and that of a buffer that grows for it.
RECEIVED_LEAST_BYTES: Final = 16_384

#: A larger batch, which only a raised `max.message.bytes` allows, is written in parts, so many bytes in a step. The
#: kernel takes two milliseconds for a megabyte of new pages of its cache, and more on a disk that is busy.
MAX_INLINE_WRITE_BYTES: Final = 2_097_152
WRITTEN_AT_ONCE_BYTES: Final = 1_048_576

#: Bytes that the records of a batch may take while the broker compresses it anew (`compression.type`): a client's few
#: bytes may stand for very many.
MAX_RECOMPRESSED_BYTES: Final = 67_108_864
#: A batch of uncompressed records that is compressed on the event loop; all others go to a thread.
MAX_INLINE_COMPRESSION: Final = 16_384

#: Partitions made in one request, of all its topics (Kafka's `MAX_PARTITIONS_PER_BATCH`); each is several open files.
MAX_NEW_PARTITIONS: Final = 10_000

#: ACLs, quotas or users changed by one request (Kafka's `MAX_RECORDS_PER_USER_OP`): all are applied in one turn.
MAX_CHANGES: Final = 10_000

#: Partitions of one page of DescribeTopicPartitions (Kafka's `max.request.partition.size.limit`).
MAX_DESCRIBED_PARTITIONS: Final = 2_000

#: How often a coordinator shard is read again from its log, with no successful request in between, before it is given
#: up. For a fault that passes once would do, and each time costs as much as loading the shard at the start.
MAX_FRESH_STARTS: Final = 3

#: Bytes of a produced batch's records, decompressed, that are looked at one by one, which only a compacted topic and a
#: refusal need; or the topic's `max.message.bytes`, where that is more. A producer fills a batch to `batch.size` before
#: it compresses: 1 MiB, in practice. 2.4 million of the smallest records fit.
MAX_OPENED_BYTES: Final = 16_777_216

#: A batch of so many uncompressed bytes is looked at on the event loop. All others are looked at in a thread, so many
#: records at a time: Python lets the loop's thread run between two such steps, and they take a tenth of a millisecond.
MAX_INLINE_OPENED_BYTES: Final = 65_536
RECORDS_AT_ONCE: Final = 5_000

#: Records that the answer to a produce names as refused, all its batches together; each takes about 100 bytes.
#: librdkafka sends batches of at most 10,000 records by default.
MAX_RECORD_ERRORS: Final = 10_000

#: How many elections of a partition's leader a metadata log may have lost that lacks its last changes. Its logs know
#: their epochs. What says a later one was changed: no checksum covers an epoch.
MAX_LOST_EPOCHS: Final = 1_000

#: What a target assignment may cost that is computed within a request: 1 for each partition, and for each topic of each
#: member where an assignor looks at these; a member is as much as some partitions. More is computed in a thread: this
#: takes some ten milliseconds of the event loop, with the records.
MAX_INLINE_ASSIGNMENT: Final = 4_000
INLINE_COST_OF_MEMBER: Final = 8

#: Members of a consumer group that one step of the work on a new target looks at, and those whose parts of it are
#: written in one batch: one and three milliseconds.
MEMBERS_PER_STEP: Final = 500
#: Members of a classic group that one step of the end of a rebalance goes through, and for whom one step sets timers
#: and tells the history: half a millisecond. The group is another one after the last step that goes through it.
CLASSIC_MEMBERS_PER_STEP: Final = 100
#: Members and partitions of a classic group that a consumer, its leader, divides in its event loop. More are divided in
#: a thread: 1,000 take some ten milliseconds, with the assignments' bytes.
MAX_INLINE_DIVISION: Final = 1_000

#: Milliseconds between two heartbeats of a member while its consumer group settles, and as many more for each member:
#: a group of any size sends at most 500 of them a second then, which is a twentieth of the event loop.
SETTLING_HEARTBEAT_MS: Final = 250
SETTLING_MS_PER_MEMBER: Final = 2

#: A client that asked for the coordinator of an empty group is on its way into it for at most so many milliseconds, and
#: the group's first generation waits for a pause, and for another one when members came in it, up to a total.
#: librdkafka comes after 50 ms, a busy machine doubles that, and half a second is still less than a rebalance costs.
ARRIVAL_MS: Final = 1_000
ARRIVAL_PAUSE_MS: Final = 100
ARRIVAL_TOTAL_MS: Final = 500
#: Groups of which a shard remembers this.
MAX_AWAITED_GROUPS: Final = 1_000

#: Steps that matching a group's regular expressions takes in one turn of the event loop, at worst: four milliseconds.
#: A match of a usual name takes a microsecond, but it may take as many steps as the pattern has for each character.
#: And what calling RE2 counts as beside them, so that at most 2,000 names are looked at.
MAX_MATCH_STEPS: Final = 1_000_000
MATCH_CALL_STEPS: Final = 500

#: Seconds that an assignor of the server's side may take. Members wait meanwhile; their sessions last 45 s by default.
MAX_ASSIGNOR_TIME_S: Final = 10.0

#: Assignors that compute at one time. Each is a thread, and Python runs one of them at a time.
MAX_ASSIGNOR_THREADS: Final = 4

#: Calls of one assignor that are over time and have not come back, before it is not called again. Python cannot end a
#: thread, and each keeps what it computes with.
MAX_LOST_ASSIGNOR_CALLS: Final = 4

#: Moved partitions, and members that waited, that one event of the history of groups names; it counts the rest. And
#: characters of a text in it: so the largest event has some 250 KiB, far below the 1 MiB that a batch may have.
MAX_EVENT_ITEMS: Final = 100
#: Whom one of these members waited for: so many are named.
MAX_EVENT_NAMES: Final = 5
MAX_EVENT_TEXT: Final = 256

#: What may wait to be written to the history of groups: an event, or a member's part before or after a rebalance,
#: counts one and takes some hundred bytes. Beyond it, events are dropped, and counted.
MAX_EVENT_WEIGHT: Final = 100_000

#: How long an event waits for others, so that a large group's joins become a few batches, and how large these are.
EVENTS_LINGER_MS: Final = 100
MAX_EVENTS_PER_BATCH: Final = 500
MAX_EVENT_BYTES_PER_BATCH: Final = 500_000

#: Iterations of SCRAM that a client computes for a broker it does not know yet: some 0.3 s, in a thread. Apache Kafka
#: stores 16,384 at most.
MAX_SCRAM_ITERATIONS: Final = 1_000_000

#: Bytes of one message of PLAIN or SCRAM that is read, and of all but the token in one of OAUTHBEARER: real ones have
#: some 200. Whoever sends it has not said yet who he is.
MAX_SASL_MESSAGE_BYTES: Final = 16_384

#: Lines of the audit log that wait for its file: some 15 MiB. What comes then is lost, and counted.
MAX_WAITING_AUDIT_LINES: Final = 10_000

#: Of that memory, what all clients together have that did not say yet who they are: a large token has some 10 KB,
#: so that 1,600 of them may come at one time.
MAX_STRANGERS_BYTES: Final = 16_777_216

#: Bytes of all answers that are in memory and that clients do not take: the same as for frames that are received.
MAX_UNREAD_BYTES: Final = 536_870_912

#: Bytes of produce requests whose clients have closed their connections, and which are not begun yet.
MAX_LAST_BYTES: Final = 67_108_864

#: Bytes of one answer with many elements, which is counted while it is made: librdkafka reads no more
#: (`receive.message.max.bytes` is 100,000,000). A thousand groups with a thousand committed offsets each take 40 MB.
MAX_ANSWER_BYTES: Final = 104_857_600

#: How long a client may take to say who it is, on a listener with SASL. Meanwhile it is anybody.
AUTHENTICATION_MS: Final = 60_000

#: What the broker remembers of used quotas: one for each user or client id that shares one, some 1.5 KB. Clients give
#: themselves their ids; beyond this number those that only a default quota is about share one between them.
MAX_QUOTA_SHARERS: Final = 10_000

#: How long a new connection may wait for `max.connection.creation.rate`: clients give up after 10 or 30 s, and until
#: then it has one of `max.connections`.
MAX_CONNECTION_DELAY_MS: Final = 10_000

#: The largest token of OAUTHBEARER, and the most keys of a JWKS: each may be tried for a token that names none.
MAX_TOKEN_BYTES: Final = 65_536
MAX_TOKEN_KEYS: Final = 64

#: How long a TLS handshake may take. Meanwhile it has one of `max.connections` and some 100 KB.
TLS_HANDSHAKE_MS: Final = 30_000
#: Handshakes that begin in one turn of a broker's event loop: each signs, which takes 0.1 ms with a key of an elliptic
#: curve and 1 ms with an RSA key of 2048 bits.
HANDSHAKES_AT_ONCE: Final = 4
#: What a step of a handshake counts of the bytes of a turn (RECEIVED_TURN_BYTES): as many may sign in a turn, wherever
#: they have waited, and with an RSA key of 4096 bits each takes 3 ms.
HANDSHAKE_STEP_BYTES: Final = 1_048_576
#: Partitions of one fetch session, and of all of them: some 500 bytes each, 125 MB. A broker is meant for 10,000
#: partitions; a client beyond it names them in each fetch. As many in all fetches of more than 200 partitions that
#: wait for records: some 800 bytes each, 200 MB. Beyond it such a fetch is answered at once.
MAX_SESSION_PARTITIONS: Final = 30_000
MAX_CACHED_PARTITIONS: Final = 250_000

#: Bytes that one connection encrypts in one turn of the event loop: a tenth of a millisecond.
TLS_BYTES_AT_ONCE: Final = 262_144
#: Records that one connection decrypts in one turn: two microseconds each, and fifteen where it updates the keys. As
#: many as a small request may have are decrypted when the turn has no more bytes. And those of a step of a handshake.
TLS_RECORDS_AT_ONCE: Final = 128
TLS_RECORDS_OF_PIECE: Final = 2
TLS_RECORDS_OF_HANDSHAKE: Final = 64
#: Bytes that are not sent and beyond which such a connection is not read. An answer never has so many: they are what
#: TLS itself says to a client that has its keys updated, and reads nothing.
MAX_OWN_WORDS_BYTES: Final = 2 * TLS_BYTES_AT_ONCE
