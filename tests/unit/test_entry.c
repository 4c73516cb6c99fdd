/* SPDX-License-Identifier: BSD-3-Clause */
/* A library's entry for a function that it calls: found, changed and put back; not where closed. */
#define _GNU_SOURCE
#include "base/entry.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

typedef int (*caller_t)(void);

static caller_t open_caller(const char *path, void ***entry)
{
    void            *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    struct link_map *map;
    caller_t         call;

    assert_non_null(library);
    assert_int_equal(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
    *entry = uct_angara_entry_find(map, "getpid");
    assert_null(uct_angara_entry_find(map, "getppid"));
    *(void **)&call = dlsym(library, "entry_call");
    assert_non_null(call);
    return call;
}

static int ours(void)
{
    return 7;
}

static int others(void)
{
    return 8;
}

static void test_lazy(void **state)
{
    void   **entry, *former;
    caller_t call = open_caller(ENTRY_LAZY, &entry);

    (void)state;
    assert_non_null(entry);
    former = uct_angara_entry_set(entry, (void *)ours);
    assert_int_equal(call(), 7);
    uct_angara_entry_restore(entry, (void *)ours, former);
    assert_ptr_equal(*entry, former);
    assert_int_equal(call(), getpid());
}

/* Who has put another function there since keeps it. */
static void test_others(void **state)
{
    void   **entry, *former;
    caller_t call = open_caller(ENTRY_LAZY, &entry);

    (void)state;
    former = uct_angara_entry_set(entry, (void *)ours);
    uct_angara_entry_set(entry, (void *)others);
    uct_angara_entry_restore(entry, (void *)ours, former);
    assert_int_equal(call(), 8);
    uct_angara_entry_set(entry, former);
}

static void test_closed(void **state)
{
    void   **entry;
    caller_t call = open_caller(ENTRY_NOW, &entry);

    (void)state;
    assert_null(entry);
    assert_int_equal(call(), getpid());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lazy),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
