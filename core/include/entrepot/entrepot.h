/* Entrepot's C interface: a client of a store on this host.
 *
 * Handles are opaque. Structs begin with their size, set by the caller to sizeof(struct), so that later versions can
 * add fields at the end; fields must otherwise be zeroed. Functions return 0 or the code of an error (entrepot/codes.h)
 * and fill `error` if it is not NULL. No C++ exception crosses this interface. All functions may be called from any
 * thread; a handle is freed once, when no other thread uses it any more.
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

typedef struct entrepot_client entrepot_client; /* a connection to a store */
typedef struct entrepot_object entrepot_object; /* a sealed object, pinned: its buffers stay where they are */
typedef struct entrepot_blob entrepot_blob;     /* a range that is being written */

typedef struct entrepot_error {
  size_t struct_size;
  int32_t code;
  int32_t retryable;  /* the same call may succeed later */
  char message[1000]; /* what was wrong and what to do; cut if it is longer */
} entrepot_error;

typedef struct entrepot_connect_options {
  size_t struct_size;
  const char* path;              /* of the store's unix socket */
  const char* label;             /* shown in the store's status; NULL: the program's name */
  uint64_t connect_timeout_ms;   /* 0: 10 seconds */
  uint64_t reconnect_timeout_ms; /* 0: 30 seconds */
  /* Asked now and then during waits, without any lock held; another value than 0 ends the wait. May be NULL. */
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
  int32_t replace;  /* not 0: an object of this ID, and the name, give way */
  const char* name; /* bound in the same step; NULL: none */
  const void* tree; /* metadata; docs/formats/metadata.md */
  uint64_t tree_length;
  const entrepot_buffer* buffers; /* copied, or referred to where they lie in the store already */
  uint64_t buffer_count;
  uint32_t locality_set; /* from entrepot_locality_set; 0: the session's default one */
  uint32_t consumers;    /* it is dead when so many have had it (entrepot_consumed); 0: what its set says */
} entrepot_item;

/* A group of objects that are used in one way; docs/eviction.md. NULL, or 0 for a priority or number, leaves what the
 * set has already, or the first of each list. */
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
/* Closes the connection. Objects that were got stay valid until they are freed. */
ENTREPOT_API void entrepot_client_free(entrepot_client* client);

/* The number of a session of a scope, which is made if it is not there. */
ENTREPOT_API int32_t entrepot_open_session(entrepot_client* client, const char* scope, const char* session,
                                           uint32_t* out, entrepot_error* error);

/* Stores an object. Identical content under the same ID is success. `generation` may be NULL. */
ENTREPOT_API int32_t entrepot_put(entrepot_client* client, const entrepot_item* item, uint32_t wait_ms,
                                  uint32_t* generation, entrepot_error* error);

/* The sealed object of this ID; waits for it up to wait_ms (0: an unknown ID is an error at once). */
ENTREPOT_API int32_t entrepot_get(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES], uint32_t wait_ms,
                                  entrepot_object** out, entrepot_error* error);
ENTREPOT_API uint32_t entrepot_object_generation(const entrepot_object* object);
ENTREPOT_API entrepot_buffer entrepot_object_tree(const entrepot_object* object);
ENTREPOT_API uint64_t entrepot_object_buffer_count(const entrepot_object* object);
/* Read-only memory, valid until the object is freed. {NULL, 0} beyond the last. */
ENTREPOT_API entrepot_buffer entrepot_object_buffer(const entrepot_object* object, uint64_t index);
ENTREPOT_API void entrepot_object_free(entrepot_object* object);

/* A writable range in the store; dropped if it is freed before it is sealed. */
ENTREPOT_API int32_t entrepot_create(entrepot_client* client, uint64_t length, uint32_t wait_ms, entrepot_blob** out,
                                     entrepot_error* error);
ENTREPOT_API void* entrepot_blob_data(const entrepot_blob* blob);
/* Seals it as the only buffer of the item (item->buffers is ignored). Its pages are read-only afterwards. */
ENTREPOT_API int32_t entrepot_blob_seal(entrepot_blob* blob, const entrepot_item* item, uint32_t* generation,
                                        entrepot_error* error);
ENTREPOT_API void entrepot_blob_free(entrepot_blob* blob);

/* `deleted` (may be NULL): 1 if it was there. */
ENTREPOT_API int32_t entrepot_delete(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES], int32_t* deleted,
                                     entrepot_error* error);

/* The number of a locality set of a session, which is made if it is not there, and changed as the attributes say. An
 * empty name means the session's default set; `attributes` may be NULL. */
ENTREPOT_API int32_t entrepot_locality_set(entrepot_client* client, uint32_t session, const char* name,
                                           const entrepot_set_attributes* attributes, uint32_t* out,
                                           entrepot_error* error);
/* The consumer of this key has had the object; saying so again changes nothing. `left` (may be NULL): how many are
 * still to come. */
ENTREPOT_API int32_t entrepot_consumed(entrepot_client* client, const uint8_t id[ENTREPOT_ID_BYTES],
                                       const char* consumer, uint32_t* left, entrepot_error* error);

/* The store's status as JSON; free it by entrepot_string_free. */
ENTREPOT_API int32_t entrepot_status(entrepot_client* client, char** json, entrepot_error* error);
ENTREPOT_API void entrepot_string_free(char* text);

#ifdef __cplusplus
}
#endif
