#define _GNU_SOURCE /* accept4, struct ucred */
#include "share/server.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"
#include "base/process.h"

/* A forked child follows `next` in both lists, wherever the fork was. */
struct ad_published {
    ad_owner base; /* references: the user's, each connection's, and that of
                      being open */
    unsigned char token[AD_TOKEN_SIZE];
    int64_t uses; /* left, or -1; guarded by `lock`, like the next four */
    int64_t n_attempts; /* that have taken a use, which does not count yet */
    bool is_open;
    struct ad_published *_Atomic next;
    struct ad_published *_Atomic *link;
    _Atomic int64_t n_connections; /* changed under `lock` */
    unsigned generation;
    ad_owner *owner; /* NULL once nobody can use the memory */
    size_t n_files;
    int *files;
    size_t nbytes;
    unsigned char *message; /* an ad_answer, then the user's */
};

/* Of the thread alone. */
typedef struct connection {
    int fd;
    int64_t deadline; /* for the token */
    ad_published *to; /* NULL until the token has come */
    bool is_attempt;  /* one of `to->n_attempts` */
    struct connection *_Atomic next;
    struct connection *_Atomic *link;
} connection;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ad_published *_Atomic published; /* all that live */
static connection *_Atomic connections;
static struct {
    int socket, poll, spare; /* -1: not open */
    size_t n_silent;         /* connections without a token */
    bool is_started;
    char name[AD_SERVER_NAME_SIZE];
} server = {.socket = -1, .poll = -1, .spare = -1};

/* Links `self` in before the first one. */
#define ENTER(list, self)                                                     \
    do {                                                                      \
        atomic_store(&(self)->next, atomic_load(&(list)));                    \
        (self)->link = &(list);                                               \
        if (atomic_load(&(list)) != NULL) {                                   \
            atomic_load(&(list))->link = &(self)->next;                       \
        }                                                                     \
        atomic_store(&(list), (self));                                        \
    } while (0)

#define LEAVE(self)                                                           \
    do {                                                                      \
        atomic_store((self)->link, atomic_load(&(self)->next));               \
        if (atomic_load(&(self)->next) != NULL) {                             \
            atomic_load(&(self)->next)->link = (self)->link;                  \
        }                                                                     \
    } while (0)

/* --- what is published --------------------------------------------------- */

static void
close_files_of(ad_published *self)
{
    while (self->n_files > 0) {
        close(self->files[--self->n_files]);
    }
}

static void
published_destroy(ad_owner *base)
{
    ad_published *self = (ad_published *)base;
    if (self->generation == ad_process_generation()) {
        pthread_mutex_lock(&lock);
        LEAVE(self);
        pthread_mutex_unlock(&lock);
    }
    close_files_of(self);
    ad_owner_unref(self->owner);
    free(self->files);
    free(self->message);
    free(self);
}

static const ad_owner_ops published_ops = {.destroy = published_destroy,
                                           .name = "shared memory"};

/* Whether it was open. Its reference is then the caller's. */
static bool
close_locked(ad_published *self)
{
    bool was_open = self->is_open;
    self->is_open = false;
    return was_open;
}

/* An attempt has ended. Its use counts if the other end has attached; after
 * the last one nobody can, and the descriptors are closed. The connection
 * keeps its reference. */
static void
end_attempt(ad_published *self, bool has_attached)
{
    pthread_mutex_lock(&lock);
    self->n_attempts--;
    self->uses += has_attached ? 0 : 1;
    bool is_used_up = self->uses == 0 && self->n_attempts == 0;
    bool was_open = is_used_up && close_locked(self);
    pthread_mutex_unlock(&lock);
    if (is_used_up) { /* no other thread uses them */
        close_files_of(self);
    }
    if (was_open) {
        ad_owner_unref(&self->base); /* not the last one */
    }
}

/* The owner, which is then the caller's to release, if nobody uses the memory
 * and nobody can attach to it any more; else NULL. */
static ad_owner *
end_locked(ad_published *self)
{
    ad_owner *owner = NULL;
    if (!self->is_open && self->n_connections == 0) {
        owner = self->owner;
        self->owner = NULL;
    }
    return owner;
}

/* Compares all bytes, so that the time tells nothing of them. */
static bool
is_equal(const unsigned char *a, const unsigned char *b)
{
    unsigned char difference = 0;
    for (size_t i = 0; i < AD_TOKEN_SIZE; i++) {
        difference |= a[i] ^ b[i];
    }
    return difference == 0;
}

static ad_published *
find_locked(const unsigned char *token)
{
    ad_published *found = NULL;
    for (ad_published *it = published; it != NULL; it = it->next) {
        found = is_equal(it->token, token) ? it : found;
    }
    return found;
}

/* What is open and has this token, with a reference and one connection more,
 * or NULL. If uses are counted, one is taken, for an attempt. */
static ad_published *
take(const unsigned char *token)
{
    pthread_mutex_lock(&lock);
    ad_published *found = find_locked(token);
    if (found != NULL && (!found->is_open || found->uses == 0)) {
        found = NULL;
    }
    if (found != NULL) {
        ad_owner_ref(&found->base);
        found->n_connections++;
        if (found->uses > 0) {
            found->uses--;
            found->n_attempts++;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* --- the thread ---------------------------------------------------------- */

static int64_t
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / (1000 * 1000);
}

static void *
release(void *owner)
{
    ad_owner_unref(owner);
    return NULL;
}

/* An owner of Python's waits for the GIL, which others need not wait for. */
static void
release_elsewhere(ad_owner *owner)
{
    if (owner != NULL && ad_thread_start(release, owner, NULL) != 0) {
        ad_owner_unref(owner);
    }
}

/* A child of a fork has the descriptor too, so that only a call takes it out
 * of the poll. */
static void
drop(connection *it)
{
    ad_published *to = it->to;
    if (it->is_attempt) {
        end_attempt(to, false);
    }
    LEAVE(it);
    epoll_ctl(server.poll, EPOLL_CTL_DEL, it->fd, NULL);
    close(it->fd);
    free(it);
    if (to == NULL) {
        server.n_silent--;
        return;
    }
    pthread_mutex_lock(&lock);
    to->n_connections--;
    ad_owner *owner = end_locked(to);
    pthread_mutex_unlock(&lock);
    release_elsewhere(owner);
    ad_owner_unref(&to->base);
}

static bool
send_code(int fd, ad_answer code)
{
    unsigned char byte = (unsigned char)code;
    return send(fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/* The message and the descriptors. */
static bool
send_all(int fd, const ad_published *it)
{
    union {
        struct cmsghdr first; /* for the alignment */
        char bytes[CMSG_SPACE(sizeof(int) * AD_MAX_SENT_FILES)];
    } control;
    struct iovec text = {it->message, it->nbytes};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
    size_t nbytes = it->n_files * sizeof(int);
    if (nbytes > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(nbytes);
        control.first.cmsg_level = SOL_SOCKET;
        control.first.cmsg_type = SCM_RIGHTS;
        control.first.cmsg_len = CMSG_LEN(nbytes);
        memcpy(CMSG_DATA(&control.first), it->files, nbytes);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)it->nbytes;
}

/* Whether the connection goes on. */
static bool
answer(connection *it)
{
    unsigned char token[AD_TOKEN_SIZE + 1];
    ssize_t n = recv(it->fd, token, sizeof(token), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    if (it->is_attempt && n == 1 && token[0] == AD_ATTACHED) {
        it->is_attempt = false;
        end_attempt(it->to, true);
        return true;
    }
    /* Once attached, the other end has nothing more to say. */
    if (n != AD_TOKEN_SIZE || it->to != NULL) {
        return false;
    }
    it->to = take(token);
    if (it->to == NULL) {
        send_code(it->fd, AD_ANSWER_UNKNOWN);
        return false;
    }
    server.n_silent--;
    it->is_attempt = it->to->message[0] == AD_ANSWER_COUNTED;
    if (!send_all(it->fd, it->to)) {
        send_code(it->fd, AD_ANSWER_BUSY);
        return false;
    }
    return true;
}

static bool
is_same_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           peer.uid == geteuid();
}

/* The table of descriptors is full: says so to who waits, by the one that was
 * kept for this. */
static void
refuse_one(void)
{
    int spare = server.spare;
    server.spare = -1; /* a fork here must not close another's */
    close(spare);
    int fd = accept4(server.socket, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        send_code(fd, AD_ANSWER_FULL);
        close(fd);
    }
    server.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || server.spare < 0) { /* another thread was faster */
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
}

static void
accept_one(void)
{
    int fd = accept4(server.socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
            errno == ENOBUFS) {
            refuse_one();
        }
        return;
    }
    connection *it = is_same_user(fd) ? calloc(1, sizeof(*it)) : NULL;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    if (it == NULL || epoll_ctl(server.poll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(it);
        close(fd);
        return;
    }
    it->fd = fd;
    it->deadline = now() + AD_TOKEN_TIMEOUT;
    ENTER(connections, it);
    server.n_silent++;
}

static void
drop_silent(void)
{
    int64_t time = now();
    connection *next;
    for (connection *it = connections; it != NULL; it = next) {
        next = it->next;
        if (it->to == NULL && it->deadline <= time) {
            drop(it);
        }
    }
}

static void *
serve(void *unused)
{
    struct epoll_event events[64];
    for (;;) {
        int n = epoll_wait(server.poll, events, 64,
                           server.n_silent > 0 ? AD_TOKEN_TIMEOUT / 4 : -1);
        for (int i = 0; i < n; i++) {
            connection *it = events[i].data.ptr;
            if (it == NULL) {
                accept_one();
            } else if (!answer(it)) {
                drop(it);
            }
        }
        if (server.n_silent > 0) {
            drop_silent();
        }
    }
    return NULL;
}

/* --- start --------------------------------------------------------------- */

static void
close_server(void)
{
    int *const all[] = {&server.socket, &server.poll, &server.spare};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (*all[i] >= 0) {
            close(*all[i]);
        }
        *all[i] = -1;
    }
}

/* The child has no thread. It gives up its copies of the descriptors: what it
 * keeps open would neither end with the parent nor with what was shared. The
 * structs stay; references that others had are not given back. */
static void
on_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    for (ad_published *it = published; it != NULL; it = it->next) {
        close_files_of(it);
    }
    for (connection *it = connections; it != NULL; it = it->next) {
        close(it->fd);
    }
    close_server();
    published = NULL;
    connections = NULL;
    server.is_started = false;
    server.n_silent = 0;
}

static ad_child_hook child_hook = {.run = on_fork};

/* Binds the socket to a random name. The name goes with the last descriptor,
 * so nothing is left of a process that dies. Returns 0 or an errno. */
static int
listen_at_random(int fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t number;
    if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
        return EIO;
    }
    snprintf(server.name, sizeof(server.name), "arrowdev%016llx",
             (unsigned long long)number);
    size_t n = strlen(server.name);
    memcpy(address.sun_path + 1, server.name, n);
    socklen_t size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    return bind(fd, (struct sockaddr *)&address, size) == 0 &&
                   listen(fd, SOMAXCONN) == 0
               ? 0
               : errno;
}

static int
open_all(void)
{
    const int type = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    server.socket = socket(AF_UNIX, type, 0);
    server.poll = epoll_create1(EPOLL_CLOEXEC);
    server.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (server.socket < 0 || server.poll < 0 || server.spare < 0) {
        return errno;
    }
    int code = listen_at_random(server.socket);
    if (code == 0 &&
        epoll_ctl(server.poll, EPOLL_CTL_ADD, server.socket, &event) != 0) {
        code = errno;
    }
    return code;
}

static ad_status
start_locked(ad_error *err)
{
    if (server.is_started) {
        return AD_OK;
    }
    int code = ad_process_add_child_hook(&child_hook);
    code = code == 0 ? open_all() : code;
    code = code == 0 ? ad_thread_start(serve, NULL, NULL) : code;
    if (code != 0) {
        close_server();
        return ad_fail(
            err, AD_ERR_EXCHANGE, "share",
            code == EMFILE || code == ENFILE ? "raise the limit (ulimit -n)"
                                             : NULL,
            "the thread that shares memory cannot start: %s", strerror(code));
    }
    server.is_started = true;
    return AD_OK;
}

/* --- for users ----------------------------------------------------------- */

static void
close_files(const ad_publication *publication)
{
    for (size_t i = 0; i < publication->n_files; i++) {
        close(publication->files[i]);
    }
}

/* Takes over the descriptors only if it returns an object. */
static ad_published *
new_published(const ad_publication *from)
{
    ad_published *self = calloc(1, sizeof(*self));
    int *files = calloc(from->n_files + 1, sizeof(*files));
    unsigned char *message = malloc(from->nbytes + 1);
    if (self == NULL || files == NULL || message == NULL ||
        getrandom(self->token, AD_TOKEN_SIZE, 0) != AD_TOKEN_SIZE) {
        free(self);
        free(files);
        free(message);
        return NULL;
    }
    ad_owner_init(&self->base, &published_ops);
    memcpy(files, from->files, from->n_files * sizeof(*files));
    message[0] = from->uses < 0 ? AD_ANSWER_SENT : AD_ANSWER_COUNTED;
    memcpy(message + 1, from->message, from->nbytes);
    self->files = files;
    self->n_files = from->n_files;
    self->message = message;
    self->nbytes = from->nbytes + 1;
    self->uses = from->uses;
    self->owner = ad_owner_ref(from->owner);
    self->generation = ad_process_generation();
    return self;
}

ad_status
ad_publish(const ad_publication *publication, ad_published **out,
           ad_error *err)
{
    if (publication->n_files > AD_MAX_SENT_FILES ||
        publication->nbytes >= AD_MAX_SENT_BYTES) {
        close_files(publication);
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "%zu files and a description of %zu bytes do not fit "
                       "into one message",
                       publication->n_files, publication->nbytes);
    }
    ad_published *self = new_published(publication);
    if (self == NULL) {
        close_files(publication);
        return ad_fail_memory(err, sizeof(*self) + publication->nbytes);
    }
    pthread_mutex_lock(&lock);
    ENTER(published, self);
    ad_status status = start_locked(err);
    if (status == AD_OK) {
        ad_owner_ref(&self->base);
        self->is_open = true;
    }
    pthread_mutex_unlock(&lock);
    if (status != AD_OK) {
        ad_owner_unref(&self->base);
        return status;
    }
    *out = self;
    return AD_OK;
}

void
ad_published_close(ad_published *self)
{
    if (self->generation != ad_process_generation()) {
        return;
    }
    pthread_mutex_lock(&lock);
    bool was_open = close_locked(self);
    ad_owner *owner = end_locked(self);
    pthread_mutex_unlock(&lock);
    ad_owner_unref(owner);
    if (was_open) {
        ad_owner_unref(&self->base);
    }
}

void
ad_published_unref(ad_published *self)
{
    ad_owner_unref(&self->base);
}

const unsigned char *
ad_published_token(const ad_published *self)
{
    return self->token;
}

ad_owner *
ad_published_owner(const unsigned char *token)
{
    pthread_mutex_lock(&lock);
    const ad_published *found = find_locked(token);
    ad_owner *owner = found != NULL ? ad_owner_ref(found->owner) : NULL;
    pthread_mutex_unlock(&lock);
    return owner;
}

bool
ad_published_is_open(const ad_published *self)
{
    if (self->generation != ad_process_generation()) {
        return false;
    }
    pthread_mutex_lock(&lock);
    bool is_open = self->is_open;
    pthread_mutex_unlock(&lock);
    return is_open;
}

int64_t
ad_published_connections(const ad_published *self)
{
    return self->generation == ad_process_generation()
               ? atomic_load(&self->n_connections)
               : 0;
}

const char *
ad_server_name(void)
{
    return server.name;
}
