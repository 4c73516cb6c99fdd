/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport stays off, and says why, where UCX isn't the very one that it was built for:
 * another release, or one that was configured so that the structs which both use differ.
 */
#define _GNU_SOURCE
#include "ut.h"

#include <ucs/datastruct/arbiter.h>
#include <ucs/debug/assert.h>
#include <uct/api/version.h>

#include <dlfcn.h>
#include <unistd.h>

/* Part of this test: how the process's UCX differs from the one built for. */
static int ve_without_assert;

/* In place of UCX's: as one that was configured without assertions does it. */
__attribute__((visibility("default"))) void ucs_arbiter_group_init(ucs_arbiter_group_t *group)
{
    void (*real)(ucs_arbiter_group_t *) = (void (*)(ucs_arbiter_group_t *))dlsym(
        RTLD_NEXT, "ucs_arbiter_group_init");

    if (ve_without_assert) {
        group->tail = NULL;
    } else {
        real(group);
    }
}

static int ve_is_registered(void)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    uct_component_h     *components;
    unsigned             count, i;
    int                  found = 0;

    CHECK_OK(uct_query_components(&components, &count));
    for (i = 0; i < count; ++i) {
        CHECK_OK(uct_component_query(components[i], &attr));
        found += (strcmp(attr.name, UT_NAME) == 0);
    }
    uct_release_component_list(components);
    return found;
}

/* Load the transport. It registers if @a said is NULL; else it says that and stays off. */
static void ve_load(const char *said)
{
    char    text[2000];
    FILE   *file  = tmpfile();
    int     saved = dup(STDERR_FILENO);
    void   *library;
    ssize_t length;

    CHECK((file != NULL) && (saved >= 0));
    CHECK(dup2(fileno(file), STDERR_FILENO) >= 0);
    library = dlopen("libuct_angara.so", RTLD_NOW);
    CHECK(dup2(saved, STDERR_FILENO) >= 0);
    CHECK(library != NULL);
    length = pread(fileno(file), text, sizeof(text) - 1, 0);
    CHECK(length >= 0);
    text[length] = '\0';
    fclose(file);
    close(saved);

    CHECK_EQ(ve_is_registered(), said == NULL);
    if (said == NULL) {
        CHECK(length == 0);
    } else if ((strstr(text, "] angara error: the transport was built for ") == NULL) ||
               (strstr(text, said) == NULL)) {
        rank_fail(__FILE__, __LINE__, "said: %s", text);
    }
}

static void version(ut_t *t)
{
    const char *pretended = t->arg;
    char        said[100];

    snprintf(said, sizeof(said), "but UCX %s runs here: it stays off", pretended);
    setenv("ANGARA_TEST_UCX_VERSION", pretended, 1);
    ve_load((strcmp(pretended, UCT_VERNO_STRING) == 0) ? NULL : said);
}

static void assertions(ut_t *t)
{
    (void)t;
    if (!UCS_ENABLE_ASSERT) {
        rank_skip("this UCX has no assertions");
    }
    ve_without_assert = 1;
    setenv("ANGARA_TEST_UCX_VERSION", UCT_VERNO_STRING, 1); /* which allows nothing */
    ve_load("and without assertions: it stays off");
}

static void statistics(ut_t *t)
{
    (void)t;
    CHECK(dlopen("$ORIGIN/ucs_with_stats.so", RTLD_NOW | RTLD_GLOBAL) != NULL);
    ve_load("runs with statistics and");
}

static void nothing_differs(ut_t *t)
{
    (void)t;
    ve_load(NULL);
}

#define VE_TEST(_name, _func, _arg) \
    static void _name(void **state) \
    {                               \
        (void)state;                \
        ut_run(1, _func, _arg);     \
    }

VE_TEST(test_same, nothing_differs, NULL)
VE_TEST(test_version_same, version, UCT_VERNO_STRING)
VE_TEST(test_version_other_minor, version, "1.14.0")
VE_TEST(test_version_other_release, version, "1.13.0")
VE_TEST(test_version_other_release_longer, version, UCT_VERNO_STRING "0")
VE_TEST(test_version_nonsense, version, "new")
VE_TEST(test_assertions, assertions, NULL)
VE_TEST(test_statistics, statistics, NULL)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_version_same),
        cmocka_unit_test(test_version_other_minor),
        cmocka_unit_test(test_version_other_release),
        cmocka_unit_test(test_version_other_release_longer),
        cmocka_unit_test(test_version_nonsense),
        cmocka_unit_test(test_assertions),
        cmocka_unit_test(test_statistics),
    };

    return ut_main(argc, argv, "version", tests, sizeof(tests) / sizeof(tests[0]));
}
