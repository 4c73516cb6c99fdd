/* SPDX-License-Identifier: BSD-3-Clause */
/* See uct_buffer.h. */
#include "uct_buffer.h"

#include <unistd.h>

#define POISON 0xee

const device_runtime_t *gpu;
unsigned                gpus_num;
standin_t               standin;
ucs_memory_type_t       gpu_type;

static int is_standin;

/* ---- the runtime ----------------------------------------------------------------------------- */

int gpu_find(void)
{
    int status = device_find(&gpu);

    if (status == -1) {
        setenv("ANGARA_GPU", gpu->name, 0);
    }
    return status;
}

void gpu_start(void)
{
    gpus_num = gpu->open();
    CHECK(gpus_num != 0);
    is_standin = standin_load(device_library(gpu), &standin);
    gpu_type   = gpu == &device_cuda ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_ROCM;
}

void standin_start(void)
{
    gpu_start();
    if (!is_standin) {
        rank_skip("a real runtime holds no copies, and fails none");
    }
}

void standin_fail(void)
{
    standin.fail_call("copy", 1, gpu == &device_cuda ? 700 : -1);
}

/* ---- memory ---------------------------------------------------------------------------------- */

buffer_t buffer_new(int is_gpu, size_t length)
{
    buffer_t buffer = {.length = length, .is_gpu = is_gpu, .memh = UCT_MEM_HANDLE_NULL};

    buffer.addr = is_gpu ? gpu->alloc(0, length, DEVICE_PLAIN) : calloc(1, length);
    CHECK(buffer.addr != NULL);
    return buffer;
}

buffer_t buffer_registered(ut_t *t, int is_gpu, size_t length, unsigned flags)
{
    buffer_t buffer = buffer_new(is_gpu, length);

    CHECK_OK(uct_md_mem_reg(t->md, buffer.addr, length, flags, &buffer.memh));
    return buffer;
}

void buffer_end(ut_t *t, buffer_t *buffer)
{
    if (buffer->memh != UCT_MEM_HANDLE_NULL) {
        CHECK_OK(uct_md_mem_dereg(t->md, buffer->memh));
    }
    if (buffer->is_gpu) {
        gpu->free(buffer->addr, DEVICE_PLAIN);
    } else {
        free(buffer->addr);
    }
}

void buffer_write(const buffer_t *buffer, size_t at, const void *bytes, size_t length)
{
    if (buffer->is_gpu && length > 0) {
        gpu->write(buffer->addr + at, bytes, length);
    } else if (length > 0) {
        memcpy(buffer->addr + at, bytes, length);
    }
}

void buffer_read(const buffer_t *buffer, size_t at, void *bytes, size_t length)
{
    if (buffer->is_gpu && length > 0) {
        gpu->read(bytes, buffer->addr + at, length);
    } else if (length > 0) {
        memcpy(bytes, buffer->addr + at, length);
    }
}

void buffer_poison(const buffer_t *buffer, size_t at, size_t length)
{
    char *bytes = malloc(length + 1);

    memset(bytes, POISON, length);
    buffer_write(buffer, at, bytes, length);
    free(bytes);
}

void buffer_fill(const buffer_t *buffer, size_t at, size_t length, uint64_t key)
{
    char *bytes = malloc(length + 1);

    data_fill(bytes, length, key);
    buffer_write(buffer, at, bytes, length);
    free(bytes);
}

void buffer_check(const buffer_t *buffer, size_t at, size_t length, uint64_t key)
{
    char *bytes = malloc(length + 2 * GUARD);

    buffer_read(buffer, at - GUARD, bytes, length + 2 * GUARD);
    CHECK_DATA(bytes + GUARD, length, key);
    for (size_t i = 0; i < GUARD; ++i) {
        CHECK_EQ((uint8_t)bytes[i], POISON);
        CHECK_EQ((uint8_t)bytes[GUARD + length + i], POISON);
    }
    free(bytes);
}

/* ---- the copy transport ---------------------------------------------------------------------- */

void copier_open(ut_t *t, ut_t *copier)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    uct_component_h     *components;
    uct_md_config_t     *config;
    unsigned             num, i;

    *copier = *t;
    memset(&copier->main, 0, sizeof(copier->main));
    CHECK_OK(uct_query_components(&components, &num));
    for (i = 0; i < num && strcmp(attr.name, "angara_gpu") != 0; ++i) {
        CHECK_OK(uct_component_query(components[i], &attr));
    }
    CHECK(strcmp(attr.name, "angara_gpu") == 0);
    copier->component = components[i - 1];
    uct_release_component_list(components);
    CHECK_OK(uct_md_config_read(copier->component, NULL, NULL, &config));
    CHECK_OK(uct_md_open(copier->component, "angara_gpu", config, &copier->md));
    uct_config_release(config);
    CHECK_OK(uct_md_query(copier->md, &copier->md_attr));
    snprintf(copier->dev_name, sizeof(copier->dev_name), "angara_gpu");
    ut_iface_open(copier, &copier->main);
    copier->ep[0] = ut_ep_create(&copier->main, &copier->main.addr);
}

void copier_close(ut_t *copier)
{
    uct_ep_destroy(copier->ep[0]);
    ut_iface_close(&copier->main);
    uct_md_close(copier->md);
}
