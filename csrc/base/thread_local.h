/* Variables of a thread.
 *
 * With glibc on x86-64 they are in the thread's static block, which exists as
 * long as the thread: an access is one instruction and allocates nothing. The
 * block has little room for libraries that are loaded late (some 1.5 kB for
 * all of them), so that these variables are few and small; a test adds them
 * up. Elsewhere the model is the default. musl allocates when it loads the
 * library. glibc on AArch64 may allocate at a thread's first access, and
 * aborts where there is no memory for it.
 */
#ifndef AD_BASE_THREAD_LOCAL_H
#define AD_BASE_THREAD_LOCAL_H

#include <stdint.h> /* which defines __GLIBC__ */

#if defined(__GLIBC__) && defined(__x86_64__)
#define AD_THREAD_LOCAL                                                       \
    _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define AD_THREAD_LOCAL _Thread_local
#endif

#endif /* AD_BASE_THREAD_LOCAL_H */
