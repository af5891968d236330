/* Owners that know the extent of their memory. */

#include "base/owner.h"

#include "check.h"
#include "tracked.h"

static atomic_int n_released;
static ad_error err;

/* Takes over the owners. */
static ad_owner *
group_of(ad_owner *first, ad_owner *second)
{
    ad_owner *const owners[] = {first, second};
    ad_owner *out;
    CHECK_INT(ad_owner_group_new(owners, 2, &out, &err), AD_OK);
    ad_owner_unref(first);
    ad_owner_unref(second);
    return out;
}

static ad_owner *
owner_of(const void *data, size_t nbytes)
{
    ad_owner *out;
    CHECK_INT(ad_owner_with_extent(tracked_new(&n_released),
                                   (ad_extent){data, nbytes}, &out, &err),
              AD_OK);
    return out;
}

static void
test_bytes_of_one_owner(void)
{
    static const char around[65];
    const char *block = around + 1;
    ad_owner *owner = group_of(owner_of(block, 32), owner_of(block + 32, 32));
    CHECK(ad_owner_covers(owner, block, 32));
    CHECK(ad_owner_covers(owner, block + 31, 1));
    CHECK(ad_owner_covers(owner, block + 40, 24));
    CHECK(!ad_owner_covers(owner, block, 33)); /* two blocks are not one */
    CHECK(!ad_owner_covers(owner, block + 63, 2));
    CHECK(!ad_owner_covers(owner, block + 8, SIZE_MAX));
    CHECK(!ad_owner_covers(owner, block - 1, 1));
    CHECK(!ad_owner_covers(NULL, block, 1));
    n_released = 0;
    ad_owner_unref(owner);
    CHECK_INT(n_released, 2);
}

static void
test_own_memory(void)
{
    ad_host_block *memory;
    CHECK_INT(ad_host_block_new(100, &memory, &err), AD_OK);
    ad_owner *owner = group_of(NULL, &memory->base);
    CHECK(ad_owner_covers(owner, memory->data, 100));
    CHECK(!ad_owner_covers(owner, memory->data, 101));
    ad_owner_unref(owner);
}

static void
test_failed_allocation(void)
{
    static const char block[8];
    ad_owner *inner = tracked_new(&n_released);
    ad_owner *out;
    check_fail_nth(1);
    CHECK_INT(ad_owner_with_extent(inner, (ad_extent){block, 8}, &out, &err),
              AD_ERR_MEMORY);
    check_fail_nth(0);
    n_released = 0;
    ad_owner_unref(inner); /* still the caller's */
    CHECK_INT(n_released, 1);
}

/* 2^40 paths to one owner. */
static void
test_shared_members(void)
{
    static const char block[8];
    ad_owner *owner = owner_of(block, 8);
    for (int i = 0; i < 40; i++) {
        owner = group_of(owner, ad_owner_ref(owner));
    }
    CHECK(ad_owner_covers(owner, block, 8));
    CHECK(!ad_owner_covers(owner, block, 9));
    ad_owner_unref(owner);
}

/* A chain that is longer than the search: it does not use up the stack. */
static void
test_long_chain(void)
{
    static const char block[8];
    ad_owner *owner = owner_of(block, 8);
    for (int i = 0; i < 5000; i++) {
        owner = group_of(owner, NULL);
    }
    CHECK(!ad_owner_covers(owner, block, 8));
    ad_owner_unref(owner);
}

static bool
count_visit(ad_owner *owner, void *data)
{
    return --*(long *)data == 0;
}

/* Walks over the owner, at most so many visits long; returns their number. */
static long
walk_over(ad_owner *owner, long most)
{
    long n_left = most;
    CHECK_INT(ad_owner_walk(owner, count_visit, &n_left, &err), AD_OK);
    return most - n_left;
}

static void
test_walk_visits_every_member(void)
{
    CHECK_INT(walk_over(NULL, 10), 0);
    ad_owner *owner = tracked_new(&n_released);
    CHECK_INT(walk_over(owner, 10), 1);
    owner = group_of(owner, NULL);
    for (int i = 0; i < 500; i++) { /* more than are pending without memory */
        owner = group_of(group_of(tracked_new(&n_released), NULL), owner);
    }
    CHECK_INT(walk_over(owner, 10000), 2 + 3 * 500);
    CHECK_INT(walk_over(owner, 7), 7);
    ad_owner_unref(owner);
}

#define N_LINKS 1000000

static void
test_walk_along_a_chain(void)
{
    ad_owner *owner = tracked_new(&n_released);
    for (int i = 0; i < N_LINKS; i++) {
        owner = group_of(owner, NULL);
    }
    check_fail_nth(1); /* takes no memory */
    CHECK_INT(walk_over(owner, 2 * N_LINKS), N_LINKS + 1);
    CHECK(!check_failed_once());
    check_fail_nth(0);
    ad_owner_unref(owner);
}

/* The numbers of Fibonacci: `a` and `b` have different members. */
static void
test_walk_where_exponentially_many_ways_lead(void)
{
    ad_owner *a = tracked_new(&n_released);
    ad_owner *b = tracked_new(&n_released);
    for (int i = 0; i < 1000; i++) {
        ad_owner *next = group_of(ad_owner_ref(a), ad_owner_ref(b));
        ad_owner_unref(a);
        a = b;
        b = next;
    }
    long n_visits = walk_over(b, 1000000);
    CHECK(n_visits > 1000 && n_visits < 4000);
    n_released = 0;
    check_fail_nth(1);
    long n_left = 1000000;
    CHECK_INT(ad_owner_walk(b, count_visit, &n_left, &err), AD_ERR_MEMORY);
    check_fail_nth(0);
    ad_owner_unref(a);
    ad_owner_unref(b);
    CHECK_INT(n_released, 2);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_bytes_of_one_owner),
        CHECK_TEST(test_own_memory),
        CHECK_TEST(test_failed_allocation),
        CHECK_TEST(test_shared_members),
        CHECK_TEST(test_long_chain),
        CHECK_TEST(test_walk_visits_every_member),
        CHECK_TEST(test_walk_along_a_chain),
        CHECK_TEST(test_walk_where_exponentially_many_ways_lead),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
