/* SPDX-License-Identifier: BSD-3-Clause */
/* See entry.h. Of the transport and of Open MPI's component: knows neither. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/entry.h"

#include <stddef.h>
#include <string.h>

static ElfW(Addr) uct_angara_entry_dynamic(const struct link_map *map, ElfW(Sxword) tag)
{
    const ElfW(Dyn) * entry;

    for (entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == tag) {
            return entry->d_un.d_ptr;
        }
    }
    return 0;
}

void **uct_angara_entry_find(const struct link_map *map, const char *name)
{
    const ElfW(Rela) *rela   = (const void *)uct_angara_entry_dynamic(map, DT_JMPREL);
    const ElfW(Sym) *symbols = (const void *)uct_angara_entry_dynamic(map, DT_SYMTAB);
    const char *strings      = (const void *)uct_angara_entry_dynamic(map, DT_STRTAB);
    size_t      count        = uct_angara_entry_dynamic(map, DT_PLTRELSZ) / sizeof(*rela);

    /* bound at the start: the table is closed after that */
    if ((uct_angara_entry_dynamic(map, DT_FLAGS) & DF_BIND_NOW) ||
        (uct_angara_entry_dynamic(map, DT_FLAGS_1) & DF_1_NOW) ||
        (uct_angara_entry_dynamic(map, DT_PLTREL) != DT_RELA)) {
        return NULL;
    }
    for (; count > 0; --count, ++rela) {
        if (strcmp(strings + symbols[ELF64_R_SYM(rela->r_info)].st_name, name) == 0) {
            return (void **)(map->l_addr + rela->r_offset);
        }
    }
    return NULL;
}
