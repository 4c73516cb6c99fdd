/* SPDX-License-Identifier: BSD-3-Clause */
/* See entry.h. Of the transport and of Open MPI's component: knows neither. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/entry.h"

#include <stddef.h>
#include <string.h>

#ifdef __aarch64__
#define UCT_ANGARA_JUMP_SLOT R_AARCH64_JUMP_SLOT
#else
#define UCT_ANGARA_JUMP_SLOT R_X86_64_JUMP_SLOT
#endif

typedef struct {
    const struct link_map *map;
    ElfW(Addr) entry;
} uct_angara_entry_question_t;

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

/* Is the entry in what the loader closes once it has bound it? */
static int uct_angara_entry_is_closed(struct dl_phdr_info *info, size_t size, void *arg)
{
    const uct_angara_entry_question_t *question = arg;
    int                                is_it = 0, is_closed = 0;
    ElfW(Half) i;

    (void)size;
    for (i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) start       = info->dlpi_addr + part->p_vaddr;

        if (part->p_type == PT_DYNAMIC) {
            is_it = start == (ElfW(Addr))question->map->l_ld;
        } else if (part->p_type == PT_GNU_RELRO) {
            is_closed = question->entry - start < part->p_memsz;
        }
    }
    return is_it && is_closed;
}

void **uct_angara_entry_find(const struct link_map *map, const char *name)
{
    uct_angara_entry_question_t question = {.map = map};
    const ElfW(Rela) *rela               = (const void *)uct_angara_entry_dynamic(map, DT_JMPREL);
    const ElfW(Sym) *symbols             = (const void *)uct_angara_entry_dynamic(map, DT_SYMTAB);
    const char *strings                  = (const void *)uct_angara_entry_dynamic(map, DT_STRTAB);
    size_t      count = uct_angara_entry_dynamic(map, DT_PLTRELSZ) / sizeof(*rela);

    if (uct_angara_entry_dynamic(map, DT_PLTREL) != DT_RELA) {
        return NULL;
    }
    for (; count > 0; --count, ++rela) {
        if ((ELF64_R_TYPE(rela->r_info) == UCT_ANGARA_JUMP_SLOT) &&
            (strcmp(strings + symbols[ELF64_R_SYM(rela->r_info)].st_name, name) == 0)) {
            question.entry = map->l_addr + rela->r_offset;
            return dl_iterate_phdr(uct_angara_entry_is_closed, &question) ? NULL :
                                                                            (void **)question.entry;
        }
    }
    return NULL;
}
