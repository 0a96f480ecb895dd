/* Entrepot's C API: a client of a store on this host.
 *
 * Handles are opaque. Every struct begins with struct_size, which the caller sets to sizeof(struct), so that later
 * versions can append fields; all other fields must be zeroed unless set. Functions return 0 or an error code
 * (entrepot/codes.h) and fill `error` if it is not NULL. No C++ exception crosses this API. All functions may be called
 * from any thread. Free each handle once, when no other thread uses it any more.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ENTREPOT_API __attribute__((visibility("default")))
#else
#define ENTREPOT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ENTREPOT_ID_BYTES 20

typedef struct entrepot_client entrepot_client;   /* a connection to a store */
typedef struct entrepot_object entrepot_object;   /* a pinned, sealed object: its buffers do not move */
typedef struct entrepot_blob entrepot_blob;       /* a range that is being written */
typedef struct entrepot_builder entrepot_builder; /* an object of several buffers that is being built */
typedef struct entrepot_stream entrepot_stream;   /* a stream, as this process has it open */
typedef struct entrepot_stream_writer entrepot_stream_writer;
typedef struct entrepot_stream_reader entrepot_stream_reader;

typedef struct entrepot_error {
  size_t struct_size;
  int32_t code;
  int32_t retryable;  /* the same call may succeed later */
  char message[1000]; /* what was wrong and what to do; truncated to fit */
} entrepot_error;

typedef struct entrepot_connect_options {
  size_t struct_size;
  const char* path;              /* the store's unix socket */
  const char* label;             /* shown in the store's status; NULL: the program's name */
  uint64_t connect_timeout_ms;   /* 0: 10 seconds */
  uint64_t reconnect_timeout_ms; /* 0: 30 seconds */
  /* Called periodically during waits, with no lock held; a nonzero result ends the wait. May be NULL. Both must stay
   * valid until the client, its builders, streams, writers and readers are freed. */
  int (*interrupt)(void* context);
  void* interrupt_context;
} entrepot_connect_options;

typedef struct entrepot_buffer {
  const void* data;
  uint64_t length;
} entrepot_buffer;

typedef struct entrepot_item {
  size_t struct_size;
  uint8_t id[ENTREPOT_ID_BYTES];
  uint32_t session; /* from entrepot_open_session */
  int32_t replace;  /* nonzero: replaces an existing object with this ID, and rebinds the name */
  const char* name; /* bound atomically with the put; NULL: none */
  const void* tree; /* metadata; see docs/formats/metadata.md */
  uint64_t tree_length;
  const entrepot_buffer* buffers; /* copied, or referenced in place if already in the store */
  uint64_t buffer_count;
  uint32_t locality_set; /* from entrepot_locality_set; 0: the session's default set */
  uint32_t consumers;    /* dead once this many consumers are done (entrepot_consumed); 0: the locality set's number */
} entrepot_item;

/* Attributes of a locality set, a group of objects that are used in the same way; see docs/eviction.md. NULL, or 0 for
 * priority and consumers, keeps the set's current value; a new set starts with the first value of each list. */
typedef struct entrepot_set_attributes {
  size_t struct_size;
  const char* durability; /* "write_back", "write_through" */
  const char* reading;    /* "unknown", "once", "sequential", "loop_sequential", "random" */
  const char* writing;    /* "once", "append", "random" */
  const char* lifetime;   /* "job", "consumers", "forever" */
  const char* operation;  /* "none", "reading", "writing" */
  const char* policy;     /* "data_aware", "lru", "mru" */
  int32_t priority;       /* -8 to 8 */
  uint32_t consumers;     /* with lifetime "consumers" */
} entrepot_set_attributes;

ENTREPOT_API int32_t entrepot_connect(const entrepot_connect_options* options, entrepot_client** out,
                                      entrepot_error* error);
/* Closes the connection. Objects already returned by entrepot_get stay valid until they are freed. */
ENTREPOT_API void entrepot_client_free(entrepot_client* client);

/* Returns the number of a session of a scope; creates the session if it does not exist. */
ENTREPOT_API int32_t entrepot_open_session(entrepot_client* client, const char* scope, const char* session,
                                           uint32_t* out, entrepot_error* error);

/* Stores an object. Identical content under the same ID is success. `generation` may be NULL. */
ENTREPOT_API int32_t entrepot_put(entrepot_client* client, const entrepot_item* item, uint32_t wait_ms,
                                  uint32_t* generation, entrepot_error* error);

/* Returns the sealed object with this ID; waits for it up to wait_ms (0: an unknown ID fails at once). In a cluster, an
 * object that only other hosts have is fetched, which takes as long as it takes if wait_ms is 0. */
ENTREPOT_API int32_t entrepot_get(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES], uint32_t wait_ms,
                                  entrepot_object** out, entrepot_error* error);
ENTREPOT_API uint32_t entrepot_object_generation(const entrepot_object* object);
ENTREPOT_API entrepot_buffer entrepot_object_tree(const entrepot_object* object);
ENTREPOT_API uint64_t entrepot_object_buffer_count(const entrepot_object* object);
/* Read-only memory, valid until the object is freed. {NULL, 0} if index is out of range. */
ENTREPOT_API entrepot_buffer entrepot_object_buffer(const entrepot_object* object, uint64_t index);
ENTREPOT_API void entrepot_object_free(entrepot_object* object);

/* Allocates a writable range in the store; discarded if it is freed before it is sealed. */
ENTREPOT_API int32_t entrepot_create(entrepot_client* client, uint64_t length, uint32_t wait_ms, entrepot_blob** out,
                                     entrepot_error* error);
ENTREPOT_API void* entrepot_blob_data(const entrepot_blob* blob);
/* Seals the blob as the item's only buffer (item->buffers is ignored). Its pages are read-only afterwards. */
ENTREPOT_API int32_t entrepot_blob_seal(entrepot_blob* blob, const entrepot_item* item, uint32_t* generation,
                                        entrepot_error* error);
ENTREPOT_API void entrepot_blob_free(entrepot_blob* blob);

/* A builder collects the buffers of one object, which one call publishes: until then, nobody else sees any of it. The
 * buffers are numbered in the order in which they were added. A builder that is freed before it is sealed, or whose
 * process dies, leaves nothing in the store. In a forked child, every call on a builder of the parent fails with
 * kNotSealed. */
ENTREPOT_API int32_t entrepot_builder_create(entrepot_client* client, entrepot_builder** out, entrepot_error* error);
/* Adds a buffer to be written by the caller until the seal. `*data` has `length` bytes of undefined content; its pages
 * are read-only after the seal, and it must not be used any more once the builder is freed. At most 32,768 buffers of
 * an object can be allocated or copied. */
ENTREPOT_API int32_t entrepot_builder_allocate(entrepot_builder* builder, uint64_t length, uint32_t wait_ms,
                                               void** data, entrepot_error* error);
/* Adds a copy of the caller's bytes, which may be freed after this call. */
ENTREPOT_API int32_t entrepot_builder_copy(entrepot_builder* builder, const void* data, uint64_t length,
                                           uint32_t wait_ms, entrepot_error* error);
/* Adds `length` bytes at `offset` of a buffer of a sealed object, without a copy. The object may be freed after this
 * call, and deleted by anyone: the bytes stay as long as any object refers to them. */
ENTREPOT_API int32_t entrepot_builder_reference(entrepot_builder* builder, const entrepot_object* object,
                                                uint64_t index, uint64_t offset, uint64_t length,
                                                entrepot_error* error);
/* Publishes the object with all buffers added (item->buffers is ignored). Waits up to wait_ms for memory: buffers that
 * are small, or that use little of what they refer to, are copied. The builder can be sealed once. If that fails for
 * lack of memory, it can be tried again; otherwise (the ID or the name is taken, say), the builder can only be freed. */
ENTREPOT_API int32_t entrepot_builder_seal(entrepot_builder* builder, const entrepot_item* item, uint32_t wait_ms,
                                           uint32_t* generation, entrepot_error* error);
ENTREPOT_API void entrepot_builder_free(entrepot_builder* builder);

/* `deleted` (may be NULL): 1 if the object existed. */
ENTREPOT_API int32_t entrepot_delete(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES], int32_t* deleted,
                                     entrepot_error* error);
/* Deletes the object only if it still has this generation, so that what has replaced it stays. `deleted` (may be NULL):
 * 1 if it was there. kVersionMismatch: the daemon is older than protocol 1.8. */
ENTREPOT_API int32_t entrepot_delete_generation(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES],
                                                uint32_t generation, int32_t* deleted, entrepot_error* error);

/* Returns the number of a session's locality set; creates the set if it does not exist, and applies `attributes` (may
 * be NULL). An empty name means the session's default set. */
ENTREPOT_API int32_t entrepot_locality_set(entrepot_client* client, uint32_t session, const char* name,
                                           const entrepot_set_attributes* attributes, uint32_t* out,
                                           entrepot_error* error);
/* Marks the object as consumed by `consumer`; idempotent. `left` (may be NULL): the number of consumers that are not
 * done yet. */
ENTREPOT_API int32_t entrepot_consumed(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES],
                                       const char* consumer, uint32_t* left, entrepot_error* error);

/* Streams (docs/streams.md): chunks, which are objects, from running writers to groups of running readers. A writer or a
 * reader belongs to this process's connection; its calls take turns. Its calls fail with kStreamFailed if a writer died
 * or gave up, or the stream was removed or replaced, and with kStreamLost after a restart of the daemon, or in the child
 * of a fork. They end with their client: free them before it. A stream may be freed before its writers and readers. */
#define ENTREPOT_STREAM_ANY 0      /* created if it does not exist */
#define ENTREPOT_STREAM_EXISTING 1 /* kObjectNotFound if it does not exist */
#define ENTREPOT_STREAM_NEW 2      /* created; one that exists fails, and so do its writers and readers */
typedef struct entrepot_stream_options {
  size_t struct_size;
  uint32_t session;  /* from entrepot_open_session */
  int32_t how;       /* ENTREPOT_STREAM_... */
  const char* name;  /* within the session */
  uint32_t capacity; /* chunks in it at most; 0: as it has it, or 16 */
  uint32_t writers;  /* how many it expects in total; 0: as it has it, or 1 */
  uint64_t
      capacity_bytes; /* of the chunks in it; a larger one is admitted if it is empty; 0: as it has it, or unlimited */
  const char* const* groups; /* names of groups of readers that get every chunk, even if they come late */
  uint64_t group_count;
} entrepot_stream_options;

ENTREPOT_API int32_t entrepot_stream_open(entrepot_client* client, const entrepot_stream_options* options,
                                          entrepot_stream** out, entrepot_error* error);
/* Whether all writers have closed, how many chunks were appended so far, and how many are in it. Each may be NULL. */
ENTREPOT_API int32_t entrepot_stream_state(entrepot_stream* stream, int32_t* ended, uint64_t* appended,
                                           uint64_t* in_stream, entrepot_error* error);
/* Fails the stream for its users and deletes the chunks in it. kObjectNotFound: there is none of its name any more. */
ENTREPOT_API int32_t entrepot_stream_remove(entrepot_stream* stream, entrepot_error* error);
ENTREPOT_API void entrepot_stream_free(entrepot_stream* stream);

ENTREPOT_API int32_t entrepot_stream_writer_open(entrepot_stream* stream, entrepot_stream_writer** out,
                                                 entrepot_error* error);
/* Stores the item under a new ID (item->id, name and replace are ignored) and appends it. Waits up to memory_wait_ms for
 * memory, and up to wait_ms for room in the stream; kTimeout then. Unless it succeeds, nothing was appended or stored.
 * Only if the daemon does not respond, for wait_ms and two seconds (30 if wait_ms is 0), that may not be known: the message
 * of kTimeout then says so. */
ENTREPOT_API int32_t entrepot_stream_writer_put(entrepot_stream_writer* writer, const entrepot_item* item,
                                                uint32_t memory_wait_ms, uint32_t wait_ms, entrepot_error* error);
/* The same with the builder's buffers, as entrepot_builder_seal does it. A builder that found no room in the stream is
 * sealed, and can only be freed. */
ENTREPOT_API int32_t entrepot_stream_writer_put_builder(entrepot_stream_writer* writer, entrepot_builder* builder,
                                                        const entrepot_item* item, uint32_t memory_wait_ms,
                                                        uint32_t wait_ms, entrepot_error* error);
/* Appends an object that is sealed already, and that the stream deletes from then on: also if it cannot be appended,
 * unless that is because of an invalid argument. */
ENTREPOT_API int32_t entrepot_stream_writer_append(entrepot_stream_writer* writer, const uint8_t id[ENTREPOT_ID_BYTES],
                                                   uint32_t wait_ms, entrepot_error* error);
/* Says that this writer has written everything. Once all have, the stream has ended. A second call has no effect. */
ENTREPOT_API int32_t entrepot_stream_writer_close(entrepot_stream_writer* writer, entrepot_error* error);
/* Gives up: the stream fails with this reason, unless the writer was closed. */
ENTREPOT_API void entrepot_stream_writer_abort(entrepot_stream_writer* writer, const char* reason);
ENTREPOT_API void entrepot_stream_writer_free(entrepot_stream_writer* writer); /* gives up if it is open */

/* `late`: nonzero: a new group may have missed chunks. `missed` (may be NULL): how many chunks the group has missed. */
ENTREPOT_API int32_t entrepot_stream_reader_open(entrepot_stream* stream, const char* group, int32_t late,
                                                 entrepot_stream_reader** out, uint64_t* missed, entrepot_error* error);
typedef struct entrepot_chunk {
  size_t struct_size;
  entrepot_object* object; /* free it with entrepot_object_free; NULL: the stream has ended, and all was consumed */
  uint64_t position;       /* in the stream, from 0 */
  int32_t redelivered;     /* another reader of the group had it, or this one, and did not report it as consumed */
} entrepot_chunk;
/* Reports the chunk before as consumed, and waits up to wait_ms for the next one, then kTimeout. */
ENTREPOT_API int32_t entrepot_stream_reader_next(entrepot_stream_reader* reader, uint32_t wait_ms, entrepot_chunk* out,
                                                 entrepot_error* error);
/* Reports the latest chunk as consumed. No effect if that was done. */
ENTREPOT_API int32_t entrepot_stream_reader_ack(entrepot_stream_reader* reader, entrepot_error* error);
/* What was not reported as consumed goes back to the group. */
ENTREPOT_API void entrepot_stream_reader_free(entrepot_stream_reader* reader);

/* Returns the store's status as JSON; free it with entrepot_string_free. */
ENTREPOT_API int32_t entrepot_status(entrepot_client* client, char** json, entrepot_error* error);
ENTREPOT_API void entrepot_string_free(char* text);

#ifdef __cplusplus
}
#endif
