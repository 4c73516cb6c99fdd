/* SPDX-License-Identifier: BSD-3-Clause */
/* A library whose constructor takes as long as the program likes: it calls the program. */
void slow_library_loading(void);

__attribute__((constructor)) static void loading(void)
{
    slow_library_loading();
}
