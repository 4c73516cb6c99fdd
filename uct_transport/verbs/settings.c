/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parsers of the configuration tables: UCX's, with a better message. No state.
 */
#include "verbs/settings.h"

#include "base/alike.h"

int uct_angara_config_read(const char *buf, void *dest, const void *arg)
{
    const uct_angara_config_type_t *type          = arg;
    char                            expected[256] = "";

    if (type->parser.read(buf, dest, type->parser.arg)) {
        return 1;
    }

    type->parser.help(expected, sizeof(expected), type->parser.arg);
    uct_angara_log_alike(UCS_LOG_LEVEL_ERROR, "UCX_" UCT_ANGARA_CONFIG_PREFIX "%s=%s: expected %s",
                         type->name, buf, expected);
    return 0;
}

int uct_angara_config_write(char *buf, size_t max, const void *src, const void *arg)
{
    const uct_angara_config_type_t *type = arg;

    return type->parser.write(buf, max, src, type->parser.arg);
}

ucs_status_t uct_angara_config_clone(const void *src, void *dest, const void *arg)
{
    const uct_angara_config_type_t *type = arg;

    return type->parser.clone(src, dest, type->parser.arg);
}

void uct_angara_config_release(void *ptr, const void *arg)
{
    const uct_angara_config_type_t *type = arg;

    type->parser.release(ptr, type->parser.arg);
}

void uct_angara_config_help(char *buf, size_t max, const void *arg)
{
    const uct_angara_config_type_t *type = arg;

    type->parser.help(buf, max, type->parser.arg);
}
