/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows of the configuration tables. They are UCX's, except that a wrong value is reported with the
 * full name of its variable, which UCX's own message leaves out.
 */
#ifndef UCT_ANGARA_CONFIG_H
#define UCT_ANGARA_CONFIG_H

#include "base/compat.h"

#define UCT_ANGARA_CONFIG_PREFIX "ANGARA_"

/** A type of UCX's under the name of a variable. */
typedef struct uct_angara_config_type {
    const char         *name;
    ucs_config_parser_t parser;
} uct_angara_config_type_t;

int          uct_angara_config_read(const char *buf, void *dest, const void *arg);
int          uct_angara_config_write(char *buf, size_t max, const void *src, const void *arg);
ucs_status_t uct_angara_config_clone(const void *src, void *dest, const void *arg);
void         uct_angara_config_release(void *ptr, const void *arg);
void         uct_angara_config_help(char *buf, size_t max, const void *arg);

/**
 * One row: name without prefix, default, help text, struct and field, type (UCS_CONFIG_TYPE_*).
 */
#define UCT_ANGARA_CONFIG_FIELD(_name, _default, _doc, _struct, _field, ...)        \
    {                                                                               \
        _name, _default, _doc, ucs_offsetof(_struct, _field),                       \
        {                                                                           \
            .read = uct_angara_config_read, .write = uct_angara_config_write,       \
            .clone = uct_angara_config_clone, .release = uct_angara_config_release, \
            .help                      = uct_angara_config_help,                    \
            UCT_ANGARA_PARSER_MORE.arg = &(const uct_angara_config_type_t)          \
            {                                                                       \
                _name, __VA_ARGS__                                                  \
            }                                                                       \
        }                                                                           \
    }

#endif
