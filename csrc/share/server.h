/* The server: hands what is published to processes that know the token.
 *
 * A process connects to the socket of the server and sends the token. It gets
 * a message with descriptors, and stays connected while it uses the memory. If
 * uses are counted, it says when it has attached; else its use does not count.
 * What is published keeps its owner until it is closed and the last
 * connection has ended: a process that dies closes its connection. The user's
 * reference does not keep the owner.
 *
 * The thread needs no GIL: an owner is released on another thread. It starts
 * with the first publication. Only processes of the same user are answered.
 */
#ifndef AD_SHARE_SERVER_H
#define AD_SHARE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/owner.h"
#include "base/status.h"

enum {
    AD_TOKEN_SIZE = 16,
    AD_SERVER_NAME_SIZE = 32,
    AD_MAX_SENT_FILES = 253,       /* of Linux, for one message */
    AD_MAX_SENT_BYTES = 60 * 1024, /* fits into the buffer of a socket */
    AD_TOKEN_TIMEOUT = 5000,       /* ms from a connection to its token */
};

/* The first byte of an answer. */
typedef enum ad_answer {
    AD_ANSWER_SENT = 1,    /* the message and the descriptors follow */
    AD_ANSWER_UNKNOWN = 2, /* no such token, or no more */
    AD_ANSWER_FULL = 3,    /* the server has no descriptor left */
    AD_ANSWER_BUSY = 4,    /* the system sends no more at the moment */
    AD_ANSWER_COUNTED = 5, /* as SENT; AD_ATTACHED is expected */
} ad_answer;

/* What a process sends once it has attached: one byte. */
enum {
    AD_ATTACHED = 1
};

typedef struct ad_published ad_published;

/* What is published: descriptors, which the server takes over, on failure too;
 * a message, which is copied; an owner, of which it takes a reference. `uses`:
 * how many processes may attach, or -1; once the last one has, the descriptors
 * are closed here. */
typedef struct ad_publication {
    const int *files;
    size_t n_files;
    const void *message;
    size_t nbytes;
    ad_owner *owner;
    int64_t uses;
} ad_publication;

AD_MUST_CHECK ad_status ad_publish(const ad_publication *publication,
                                   ad_published **out, ad_error *err);

/* Attach no more. Does nothing in a forked child. */
void ad_published_close(ad_published *self);
void ad_published_unref(ad_published *self);

/* AD_TOKEN_SIZE bytes. */
const unsigned char *ad_published_token(const ad_published *self);

/* The owner of what this process has published under the token, with a
 * reference for the caller; NULL if there is none any more. */
ad_owner *ad_published_owner(const unsigned char *token);

/* Whether others can attach; false in a forked child. */
bool ad_published_is_open(const ad_published *self);

/* The number of connections; 0 in a forked child. */
int64_t ad_published_connections(const ad_published *self);

/* The name of the socket in the abstract name space, without the leading NUL.
 * Valid once something is published. */
const char *ad_server_name(void);

#endif /* AD_SHARE_SERVER_H */
