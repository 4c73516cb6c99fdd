/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that ANGARA_GPU leaves out is refused, but where UCX has a copy transport of its own for
 * it: there it is UCX's, and nothing is refused. This program is that transport, as far as ours can
 * see: a component of its name with one memory domain. Run with the transport preloaded.
 */
#include "device.h"
#include "standin_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include <uct/base/uct_component.h>
#include <uct/base/uct_md.h>

static ucs_status_t copier_open(uct_component_t *component, const char *md_name,
                                const uct_md_config_t *config, uct_md_h *md_p)
{
    (void)component;
    (void)md_name;
    (void)config;
    (void)md_p;
    return UCS_ERR_UNSUPPORTED;
}

static uct_component_t copier = {
    .query_md_resources = uct_md_query_single_md_resource,
    .md_open            = copier_open,
    .name               = "cuda_cpy",
    .md_config          = UCT_MD_DEFAULT_CONFIG_INITIALIZER,
    .cm_config          = UCS_CONFIG_EMPTY_GLOBAL_LIST_ENTRY,
    .tl_list            = UCT_COMPONENT_TL_LIST_INITIALIZER(&copier),
};

/* The domain of our copy transport, or NULL, in a program with a GPU. */
static uct_md_h open_domain(void)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                                               UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
    uct_component_h     *components;
    unsigned             num;
    uct_md_config_t     *config;
    uct_md_h             md = NULL;

    CHECK(device_cuda.open() > 0);
    CHECK_IS(uct_query_components(&components, &num), UCS_OK);
    for (unsigned i = 0; i < num; ++i) {
        CHECK_IS(uct_component_query(components[i], &attr), UCS_OK);
        if (strcmp(attr.name, "angara_gpu") == 0 && attr.md_resource_count == 1) {
            CHECK_IS(uct_md_config_read(components[i], NULL, NULL, &config), UCS_OK);
            CHECK_IS(uct_md_open(components[i], "angara_gpu", config, &md), UCS_OK);
            uct_config_release(config);
        }
    }
    uct_release_component_list(components);
    return md;
}

/* What the domain takes a buffer in a GPU's memory for. */
static ucs_status_t look(uct_md_h md, ucs_memory_type_t *type)
{
    void *addr = device_cuda.alloc(0, 4096, DEVICE_PLAIN);

    CHECK(addr != NULL);
    return uct_md_detect_memory_type(md, addr, 4096, type);
}

static void look_and_go_on(void)
{
    ucs_memory_type_t type;
    uct_md_h          md = open_domain();

    CHECK(md != NULL);
    look(md, &type);
    CHECK(!"goes on");
}

static void refused_none(void)
{
    setenv("ANGARA_GPU", "none", 1);
    look_and_go_on();
}

static void refused_other(void)
{
    setenv("ANGARA_GPU", "rocm", 1);
    look_and_go_on();
}

static void kept_none(void)
{
    setenv("ANGARA_GPU", "none", 1);
    uct_component_register(&copier);
    CHECK(open_domain() == NULL); /* there is nothing for it to do */
}

/* Beside that copy transport: what the domain answers. */
static void answers(const char *gpu, ucs_status_t status, ucs_memory_type_t wanted)
{
    ucs_memory_type_t type = UCS_MEMORY_TYPE_LAST;
    uct_md_h          md;

    setenv("ANGARA_GPU", gpu, 1);
    uct_component_register(&copier);
    md = open_domain();
    CHECK(md != NULL);
    CHECK_IS(look(md, &type), status);
    CHECK_IS(type, wanted);
    uct_md_close(md);
}

static void kept_other(void)
{
    answers("rocm", UCS_ERR_INVALID_ADDR, UCS_MEMORY_TYPE_LAST);
}

/* What isn't left out is recognised, whoever copies it. */
static void known(void)
{
    answers("cuda", UCS_OK, UCS_MEMORY_TYPE_CUDA);
}

static void test_refused(void **state)
{
    (void)state;
    ABORTS(refused_none, "which ANGARA_GPU leaves out");
    ABORTS(refused_other, "which ANGARA_GPU leaves out");
}

static void test_kept(void **state)
{
    (void)state;
    RUNS(kept_none);
    RUNS(kept_other);
}

static void test_known(void **state)
{
    (void)state;
    RUNS(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
