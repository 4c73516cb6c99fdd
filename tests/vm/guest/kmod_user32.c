/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A 32-bit caller of the kernel modules, in a VM, as root: calls, mappings, and data by each ring.
 * It has no C library, so that a 64-bit machine can build it: system calls are made here. Reports
 * TAP.
 */
#include <asm-generic/errno-base.h>
#include <asm-generic/errno.h>
#include <misc/angara.h>
#include <stddef.h>
#include <stdint.h>

#ifndef __i386__
#error "this is for -m32"
#endif

#define PAGE      4096u
#define WINDOW    (1u << 20)
#define SPINS_MAX 200000000u

/* ---- system calls ---------------------------------------------------------------------------- */

enum { SYS_EXIT = 1, SYS_WRITE = 4, SYS_OPEN = 5, SYS_CLOSE = 6, SYS_IOCTL = 54, SYS_MMAP2 = 192 };

enum { O_RDWR = 2, MAP_SHARED = 1, PROT_READ = 1, PROT_WRITE = 2 };

/* @return the result, or a negative errno */
int system_call(int number, ...);

__asm__(".text\n"
        "system_call:\n"
        "    push %ebp\n    push %ebx\n    push %esi\n    push %edi\n"
        "    mov 20(%esp), %eax\n    mov 24(%esp), %ebx\n    mov 28(%esp), %ecx\n"
        "    mov 32(%esp), %edx\n    mov 36(%esp), %esi\n    mov 40(%esp), %edi\n"
        "    mov 44(%esp), %ebp\n"
        "    int $0x80\n"
        "    pop %edi\n    pop %esi\n    pop %ebx\n    pop %ebp\n"
        "    ret\n");

static int call(int fd, unsigned long number, void *argument)
{
    return system_call(SYS_IOCTL, fd, number, argument);
}

/* @return the address, or a negative errno as an address */
static void *map(int fd, uint64_t offset, uint32_t length, int prot)
{
    return (void *)system_call(SYS_MMAP2, 0, length, prot, MAP_SHARED, fd,
                               (uint32_t)(offset / PAGE));
}

static int mapping_failed(const void *base)
{
    return (uintptr_t)base > -PAGE;
}

/* The compiler calls these too. */
void *memset(void *to, int value, size_t length);
void *memcpy(void *to, const void *from, size_t length);

void *memset(void *to, int value, size_t length)
{
    volatile char *at = to;

    while (length-- > 0) {
        *at++ = (char)value;
    }
    return to;
}

void *memcpy(void *to, const void *from, size_t length)
{
    volatile char *at     = to;
    const char    *source = from;

    while (length-- > 0) {
        *at++ = *source++;
    }
    return to;
}

static int same(const volatile void *a, const void *b, size_t length)
{
    const volatile char *left  = a;
    const char          *right = b;

    while (length > 0 && *left++ == *right++) {
        length--;
    }
    return length == 0;
}

/* ---- TAP ------------------------------------------------------------------------------------- */

static unsigned tests, failures;

static void print(const char *text)
{
    size_t length = 0;

    while (text[length] != '\0') {
        length++;
    }
    system_call(SYS_WRITE, 1, text, length);
}

static void print_number(unsigned value)
{
    char  digits[12];
    char *at = &digits[sizeof(digits) - 1];

    *at = '\0';
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    print(at);
}

static void ok(int condition, const char *text)
{
    failures += !condition;
    print(condition ? "ok " : "not ok ");
    print_number(++tests);
    print(" - ");
    print(text);
    print("\n");
}

static void end(void)
{
    print("1..");
    print_number(tests);
    print("\n");
    system_call(SYS_EXIT, failures != 0);
    __builtin_unreachable();
}

/* Setting up: there is no going on without. */
static void must(int condition, const char *text)
{
    if (!condition) {
        ok(0, text);
        end();
    }
}

#define OK(condition)   ok(!!(condition), #condition)
#define MUST(condition) must(!!(condition), #condition)

/* ---- a PE ------------------------------------------------------------------------------------ */

static struct angara_ioc_info           info;
static struct angara_ioc_pe_create      pe;
static volatile struct angara_doorbell *doorbell;
static volatile struct angara_status   *status;
static volatile struct angara_desc     *cmd;
static volatile uint64_t               *marker;
static volatile struct angara_put      *pio;
static volatile uint64_t               *window;
static unsigned                         cmd_prod;

static int word_wait(const volatile uint32_t *word, uint32_t value)
{
    unsigned spins = 0;

    while (*word != value && ++spins < SPINS_MAX) {
        __builtin_ia32_pause();
    }
    return *word == value;
}

static void *part(unsigned number, uint32_t length, int prot)
{
    void *base = map(pe.fd, (uint64_t)number << ANGARA_MMAP_SHIFT, length, prot);

    MUST(!mapping_failed(base));
    return base;
}

static void parts_map(void)
{
    int rw = PROT_READ | PROT_WRITE;

    doorbell = part(ANGARA_MMAP_DOORBELL, PAGE, rw);
    status   = part(ANGARA_MMAP_STATUS, PAGE, PROT_READ);
    cmd      = part(ANGARA_MMAP_CMD, info.cmd_entries * sizeof(*cmd), rw);
    part(ANGARA_MMAP_EVENT, info.event_entries * sizeof(struct angara_event_record), PROT_READ);
    marker = part(ANGARA_MMAP_MARKER, (info.marker_slots * 8 + PAGE - 1) & ~(PAGE - 1), PROT_READ);
    pio    = part(ANGARA_MMAP_PIO, info.pio_bytes, rw);
    window = part(ANGARA_MMAP_WINDOW, WINDOW, rw);
}

static int desc_post(const struct angara_desc *desc)
{
    memcpy((void *)&cmd[cmd_prod % info.cmd_entries], desc, sizeof(*desc));
    __atomic_store_n(&doorbell->cmd_prod, ++cmd_prod, __ATOMIC_RELEASE);
    return word_wait(&status->cmd_cons, cmd_prod);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void test_calls(int domain)
{
    info.size    = sizeof(info);
    info.version = 99;
    OK(call(domain, ANGARA_IOC_INFO, &info) == -EPROTO && info.version == ANGARA_UAPI_VERSION);
    OK(call(domain, ANGARA_IOC_INFO, &info) == 0 && same(info.name, "angara0", 8));
    OK(info.window_max >= WINDOW && info.offload_max > WINDOW);
    info.flags = 1;
    OK(call(domain, ANGARA_IOC_INFO, &info) == -EINVAL);
    OK(call(domain, ANGARA_IOC_INFO, NULL) == -EFAULT);
    OK(call(domain, _IO(ANGARA_IOC_TYPE, 0x7f), &info) == -ENOTTY);

    pe.size        = sizeof(pe);
    pe.window_size = (uint64_t)WINDOW << 20;
    OK(call(domain, ANGARA_IOC_PE_CREATE, &pe) == -EINVAL);
    pe.window_size = WINDOW;
    OK(call(domain, ANGARA_IOC_PE_CREATE, &pe) == 0 && pe.generation != 0);
}

static void test_window(void)
{
    struct angara_ioc_window_commit commit = {sizeof(commit), 0, 1ull << 32, PAGE};
    struct angara_desc              desc   = {.op = ANGARA_OP_PAIR};

    OK(call(pe.fd, ANGARA_IOC_WINDOW_COMMIT, &commit) == -ERANGE);
    commit.offset = 0;
    OK(call(pe.fd, ANGARA_IOC_WINDOW_COMMIT, &commit) == 0);
    OK(map(pe.fd, (uint64_t)ANGARA_MMAP_STATUS << ANGARA_MMAP_SHIFT, PAGE,
           PROT_READ | PROT_WRITE) == (void *)-EACCES);
    OK(map(pe.fd, 7ull << ANGARA_MMAP_SHIFT, PAGE, PROT_READ) == (void *)-EINVAL);
    parts_map();
    OK(status->state == ANGARA_PE_RUNNING);

    /* To itself: the emulated NIC is in loopback mode. */
    desc.operand = (uint64_t)info.node << 32 | pe.index;
    desc.compare = pe.generation;
    OK(desc_post(&desc));
    pio[0].op          = ANGARA_PIO_PUT_FLAG;
    pio[0].length      = 8;
    pio[0].pair        = 0;
    pio[0].offset      = 64;
    pio[0].flag_offset = 8;
    pio[0].flag        = 0x1122334455667788;
    memcpy((void *)pio[0].data, "thirty-2", 8);
    __atomic_store_n(&pio[0].valid, 1, __ATOMIC_RELEASE);
    OK(word_wait((volatile uint32_t *)&window[1], 0x55667788) && window[1] == 0x1122334455667788);
    OK(same(&window[8], "thirty-2", 8));
}

static void test_regions(int domain, int memreg)
{
    static char                from[3 * PAGE] __attribute__((aligned(4096)));
    static char                to[3 * PAGE] __attribute__((aligned(4096)));
    struct angara_ioc_mr_reg   source  = {.size      = sizeof(source),
                                          .domain_fd = domain,
                                          .addr      = (uintptr_t)&from[5],
                                          .length    = 2 * PAGE};
    struct angara_ioc_mr_reg   target  = source;
    struct angara_ioc_mr_reg   nowhere = source;
    struct angara_desc         desc    = {.op = ANGARA_OP_PUT, .length = 2 * PAGE, .pio_prod = 1};
    struct angara_desc         mark    = {.op = ANGARA_OP_MARKER, .operand = 77, .pio_prod = 1};
    struct angara_ioc_mr_check check   = {.size = sizeof(check), .length = 2 * PAGE};
    volatile uint32_t         *stale;
    unsigned                   i;

    nowhere.addr = 1ull << 32 | source.addr;
    OK(call(memreg, ANGARA_IOC_MR_REG, &nowhere) == -EFAULT);
    nowhere.addr   = source.addr;
    nowhere.length = 1ull << 32;
    OK(call(memreg, ANGARA_IOC_MR_REG, &nowhere) == -EFAULT);
    nowhere.length    = 1;
    nowhere.domain_fd = memreg;
    OK(call(memreg, ANGARA_IOC_MR_REG, &nowhere) == -EBADF);

    for (i = 0; i < sizeof(from); ++i) {
        from[i] = (char)(i * 7 + i / 256);
    }
    target.addr   = (uintptr_t)&to[9];
    target.access = ANGARA_MR_REMOTE_WRITE;
    OK(call(memreg, ANGARA_IOC_MR_REG, &source) == 0 && source.key != 0);
    OK(call(memreg, ANGARA_IOC_MR_REG, &target) == 0 && target.key != source.key);
    desc.lkey = source.key;
    desc.rkey = target.key;
    OK(desc_post(&desc) && desc_post(&mark));
    OK(word_wait((volatile uint32_t *)&marker[0], 77) && marker[0] == 77);
    OK(same(&to[9], &from[5], 2 * PAGE) && to[8] == 0 && to[9 + 2 * PAGE] == 0);

    check.handle = source.handle;
    stale        = map(memreg, 0, PAGE, PROT_READ);
    OK(!mapping_failed((void *)stale) && stale[source.handle] == 0);
    OK(call(memreg, ANGARA_IOC_MR_CHECK, &check) == 0 && check.stale == 0);
    check.handle = target.handle + 1;
    OK(call(memreg, ANGARA_IOC_MR_CHECK, &check) == -ENOENT);
    for (i = 0; i < 2; ++i) {
        struct angara_ioc_mr_dereg dereg = {.size   = sizeof(dereg),
                                            .handle = i == 0 ? source.handle : target.handle};

        OK(call(memreg, ANGARA_IOC_MR_DEREG, &dereg) == 0);
        OK(call(memreg, ANGARA_IOC_MR_DEREG, &dereg) == -ENOENT);
    }
}

void _start(void);

__attribute__((force_align_arg_pointer)) void _start(void)
{
    int domain = system_call(SYS_OPEN, "/dev/angara0", O_RDWR);
    int memreg = system_call(SYS_OPEN, "/dev/angara_memreg", O_RDWR);

    MUST(domain >= 0 && memreg >= 0);
    test_calls(domain);
    test_window();
    test_regions(domain, memreg);
    OK(system_call(SYS_CLOSE, pe.fd) == 0 && system_call(SYS_CLOSE, domain) == 0);
    end();
}
