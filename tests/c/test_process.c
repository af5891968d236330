/* Forks: the generation, and the hooks that run in a child. */

#include "base/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static int n_first, n_second;

static void
count_first(void)
{
    n_first++;
}

static void
count_second(void)
{
    n_second++;
}

static ad_child_hook first = {.run = count_first};
static ad_child_hook second = {.run = count_second};

static int
in_child(int (*check)(void))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        _exit(check());
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static unsigned parent;

static int
differs_from_parent(void)
{
    return ad_process_generation() == parent;
}

static void
test_generation_differs_in_each_child(void)
{
    parent = ad_process_generation();
    CHECK(parent != 0);
    CHECK_INT(in_child(differs_from_parent), 0);
    CHECK_INT(ad_process_generation(), parent);
}

static int
second_hook_runs_in_grandchild_only(void)
{
    return !(n_first == 2 && n_second == 1);
}

static int
first_hook_runs_once(void)
{
    if (n_first != 1 || n_second != 0 ||
        ad_process_add_child_hook(&second) != 0) {
        return 1;
    }
    return in_child(second_hook_runs_in_grandchild_only);
}

static void
test_hook_runs_once_in_each_child(void)
{
    CHECK_INT(ad_process_add_child_hook(&first), 0);
    CHECK_INT(ad_process_add_child_hook(&first), 0);
    CHECK_INT(in_child(first_hook_runs_once), 0);
    CHECK_INT(n_first, 0);
}

int
main(void)
{
    static const check_test tests[] = {
        CHECK_TEST(test_generation_differs_in_each_child),
        CHECK_TEST(test_hook_runs_once_in_each_child),
    };
    return check_run(tests, sizeof(tests) / sizeof(tests[0]));
}
