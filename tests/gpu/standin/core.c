/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-ins' configuration, failure injection and control interface. */
#include "core.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_CALLS 128

core_t core;

/* Of a function by name: calls so far, and the one that shall fail. */
typedef struct {
    char          name[48];
    unsigned long calls;
    unsigned long fail_at; /* 0: every one, if `code` is set */
    int           code;
} call_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  condition;
static int             prepared; /* the environment has been read */
static call_t          calls[MAX_CALLS];
static unsigned long   violations;
static const char     *stalled; /* function whose calls wait, or NULL */

static __thread unsigned long own_calls;

void core_bug(const char *format, ...)
{
    char    line[512];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    fprintf(stderr, "standin: %s\n", line);
    abort();
}

/* --- failures -------------------------------------------------------------------------------*/

static call_t *find_call(const char *name)
{
    unsigned i;

    for (i = 0; i < MAX_CALLS && calls[i].name[0] != '\0'; ++i) {
        if (strcmp(calls[i].name, name) == 0) {
            return &calls[i];
        }
    }
    if (i == MAX_CALLS || strlen(name) >= sizeof(calls[i].name)) {
        core_bug("no room for a call named %s", name);
    }
    strcpy(calls[i].name, name);
    return &calls[i];
}

static void set_failure(const char *name, unsigned nth, int code)
{
    call_t *call = find_call(name);

    call->fail_at = nth == 0 ? 0 : call->calls + nth;
    call->code    = code;
}

int core_count(const char *name)
{
    call_t *call = find_call(name);

    ++call->calls;
    ++own_calls;
    return call->fail_at == 0 || call->fail_at == call->calls ? call->code : 0;
}

void core_capture_violation(void)
{
    ++violations;
}

/* CALL:NTH:CODE,... */
static void read_failures(const char *text)
{
    char          name[48];
    char          nth[16];
    int           code, length;
    unsigned long number;

    while (*text != '\0') {
        if (sscanf(text, "%47[^:,]:%15[0-9*]:%d%n", name, nth, &code, &length) != 3 ||
            (text[length] != ',' && text[length] != '\0')) {
            core_bug("STANDIN_FAIL isn't CALL:NTH:CODE,... at '%s'", text);
        }
        number = strtoul(nth, NULL, 10); /* of "*": 0 */
        set_failure(name, (unsigned)number, code);
        text += length + (text[length] == ',');
    }
}

/* --- the environment ------------------------------------------------------------------------*/

static uint64_t read_number(const char *name, uint64_t value)
{
    static const char units[] = "KMG";
    const char       *text    = getenv(name);
    const char       *unit;
    char             *end;

    if (text == NULL || *text == '\0') {
        return value;
    }
    value = strtoull(text, &end, 0);
    unit  = *end != '\0' ? strchr(units, *end) : NULL;
    if (end == text || (unit == NULL ? *end : end[1]) != '\0') {
        core_bug("%s is '%s', not a number", name, text);
    }
    return unit != NULL ? value << 10 * (unit - units + 1) : value;
}

/* As CUDA reads its list: up to the first that isn't a number of a GPU. */
static void read_visible(int num_gpus)
{
    const char *list = getenv(core_visible_variable);
    char       *end;
    long        gpu;

    list = list != NULL ? list : getenv("STANDIN_VISIBLE");
    if (list == NULL) {
        for (int i = 0; i < num_gpus; ++i) {
            core.visible[i] = i;
        }
        core.num_visible = num_gpus;
        return;
    }
    while (core.num_visible < CORE_MAX_GPUS) {
        gpu = strtol(list, &end, 10);
        if (end == list || gpu < 0 || gpu >= num_gpus) {
            return;
        }
        core.visible[core.num_visible++] = (int)gpu;
        if (*end != ',') {
            return;
        }
        list = end + 1;
    }
}

/* --- the lock -------------------------------------------------------------------------------*/

static void init_condition(void)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* No other thread is left in a child of fork(), and its lock may have been anybody's. A process
 * that had not started the runtime leaves it to the child to do so. */
static void after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    init_condition();
    core.forked |= core.started;
    if (!core.forked) {
        prepared = 0;
    }
}

/*
 * A driver maps registers of its device, which is a character device, before it gives any memory:
 * the process can be seen to use a GPU by that. Kept to the process's end.
 */
void core_start(void)
{
    int device;

    if (core.started++ == 0) {
        device = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        if (device < 0 || mmap(NULL, CORE_PAGE, PROT_READ, MAP_SHARED, device, 0) == MAP_FAILED) {
            core_bug("/dev/zero can't be mapped");
        }
        close(device);
    }
}

static void prepare(void)
{
    static int hooked;
    uint64_t   num_gpus = read_number("STANDIN_GPUS", 2);

    if (num_gpus > CORE_MAX_GPUS) {
        core_bug("STANDIN_GPUS is more than %d", CORE_MAX_GPUS);
    }
    if (!hooked) {
        init_condition();
        pthread_atfork(NULL, NULL, after_fork);
        hooked = 1;
    }
    memset(&core, 0, sizeof(core));
    memset(calls, 0, sizeof(calls));
    read_visible((int)num_gpus);
    core.memory_size = read_number("STANDIN_MEMORY", (uint64_t)4 << 30);
    core.delay_us    = (unsigned)read_number("STANDIN_DELAY_US", 0);
    core.jitter      = getenv("STANDIN_JITTER") != NULL;
    core.seed        = read_number("STANDIN_JITTER", 0);
    core.peer        = read_number("STANDIN_PEER", 1) != 0;
    core.dmabuf      = read_number("STANDIN_DMABUF", 1) != 0;
    core.lock_shift  = read_number("STANDIN_LOCK_SHIFT", 0) != 0;
    core.late        = read_number("STANDIN_LATE", 0) != 0;
    read_failures(getenv("STANDIN_FAIL") != NULL ? getenv("STANDIN_FAIL") : "");
    prepared = 1;
}

void core_lock(void)
{
    pthread_mutex_lock(&lock);
    if (!prepared) {
        prepare();
    }
}

void core_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void core_wait(unsigned us)
{
    struct timespec until;

    if (us == 0) {
        pthread_cond_wait(&condition, &lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)us * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&condition, &lock, &until);
}

void core_changed(void)
{
    pthread_cond_broadcast(&condition);
}

int core_enter(const char *call)
{
    int code;

    core_lock();
    while (core.exclusive) {
        core_wait(0);
    }
    code = core_count(call);
    while (stalled != NULL && strcmp(stalled, call) == 0) {
        core_wait(0);
    }
    return code;
}

/* --- GPUs -----------------------------------------------------------------------------------*/

uint32_t core_pci(int gpu)
{
    return (uint32_t)(gpu / 4) << 16 | (uint32_t)(0x17 + gpu % 4 * 0x20) << 8;
}

int core_reaches(int from, int to)
{
    return from == to || core.peer;
}

/* --- control --------------------------------------------------------------------------------*/

void standin_fail_call(const char *call, unsigned nth, int code)
{
    core_lock();
    set_failure(call, nth, code);
    core_unlock();
}

unsigned long standin_calls(const char *call)
{
    unsigned long num = 0;

    core_lock();
    for (unsigned i = 0; call == NULL && i < MAX_CALLS; ++i) {
        num += calls[i].calls;
    }
    if (call != NULL) {
        num = find_call(call)->calls;
    }
    core_unlock();
    return num;
}

unsigned long standin_own_calls(void)
{
    return own_calls;
}

void standin_stall(const char *call)
{
    core_lock();
    stalled = call;
    core_changed();
    core_unlock();
}

void standin_hold(int on)
{
    core_lock();
    core.hold = on;
    core_changed();
    core_unlock();
}

void standin_capture(int on)
{
    core_lock();
    core.capture = on;
    core_unlock();
}

unsigned long standin_capture_violations(void)
{
    unsigned long num;

    core_lock();
    num = violations;
    core_unlock();
    return num;
}

void standin_allow_peer(int on)
{
    core_lock();
    core.peer = on;
    core_unlock();
}

void standin_allow_dmabuf(int on)
{
    core_lock();
    core.dmabuf = on;
    core_unlock();
}

void standin_deinit(void)
{
    core_lock();
    core.ended = 1;
    core_unlock();
}

/* Where the CPU finds [addr, addr + length), or NULL. */
static char *find_bytes(const void *addr, size_t length)
{
    uintptr_t start  = (uintptr_t)addr;
    memory_t *memory = memory_find(start);

    return memory != NULL && length <= memory->size - (start - memory->addr) ?
               memory->bytes + (start - memory->addr) :
               NULL;
}

int standin_read(const void *addr, void *buffer, size_t length)
{
    char *bytes;

    core_lock();
    bytes = find_bytes(addr, length);
    if (bytes != NULL) {
        memcpy(buffer, bytes, length);
    }
    core_unlock();
    return bytes != NULL ? 0 : -1;
}

int standin_write(const void *addr, const void *buffer, size_t length)
{
    char *bytes;

    core_lock();
    bytes = find_bytes(addr, length);
    if (bytes != NULL) {
        memcpy(bytes, buffer, length);
    }
    core_unlock();
    return bytes != NULL ? 0 : -1;
}

void *standin_view(const void *addr)
{
    char *bytes;

    core_lock();
    bytes = find_bytes(addr, 0);
    core_unlock();
    return bytes;
}

/* Kinds from `first` to `last`. */
static unsigned count_memories(memory_kind_t first, memory_kind_t last, int freed)
{
    unsigned  num = 0, index = 0;
    memory_t *memory;

    core_lock();
    while ((memory = memory_next(&index)) != NULL) {
        num += memory->kind >= first && memory->kind <= last && (!freed || memory_is_freed(memory));
    }
    core_unlock();
    return num;
}

unsigned standin_allocations(void)
{
    return count_memories(MEMORY_DEVICE, MEMORY_VIRTUAL, 0) +
           count_memories(MEMORY_MANAGED, MEMORY_PINNED, 0);
}

unsigned standin_registrations(void)
{
    return count_memories(MEMORY_REGISTERED, MEMORY_REGISTERED, 0);
}

unsigned standin_mappings(void)
{
    return count_memories(MEMORY_IMPORTED, MEMORY_IMPORTED, 0);
}

unsigned standin_mappings_freed(void)
{
    return count_memories(MEMORY_IMPORTED, MEMORY_IMPORTED, 1);
}

unsigned standin_pending(void)
{
    unsigned num;

    core_lock();
    num = queue_pending();
    core_unlock();
    return num;
}
