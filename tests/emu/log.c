/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log of what guests hand to the device and what it decides: emu.h has the kinds of lines.
 * replay.c reads it. Bytes are those that the device has copied and looked at, not what the guest
 * may have made of them since.
 */
#include "emu.h"

#include <stdarg.h>

void emu_log(emu_node_t *node, char kind, int pe, const void *bytes, size_t length,
             const char *format, ...)
{
    FILE   *log = node->emu->log;
    char    text[160];
    va_list args;

    if (log == NULL && !node->emu->replaying) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (node->emu->replaying) {
        emu_replay_decided(node, kind, pe, text);
        return;
    }
    fprintf(log, "%c %llu %u %d %s :", kind, (unsigned long long)node->emu->now, node->id, pe,
            text);
    if (length != 0) {
        fputc(' ', log);
    }
    for (size_t i = 0; i < length; ++i) {
        fprintf(log, "%02x", ((const uint8_t *)bytes)[i]);
    }
    fputc('\n', log);
}
