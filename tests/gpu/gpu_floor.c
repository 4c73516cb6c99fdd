/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_floor: bare copies of CUDA's driver, the floor of what messages between GPU buffers can take:
 * one copy and a wait (latency), and windows of copies with one wait, as osu_bw's (bandwidth). The
 * driver is loaded at run time; there is neither MPI nor libangara here.
 */
#include "../common/data.h"
#include "cuda_program.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM       "gpu_floor"
#define SIZES         "8,65536,1048576,4194304,16777216,67108864"
#define SIZES_MAX     32
#define REPEATS       5
#define REPEATS_MAX   99
#define GPUS_MAX      16
#define WINDOW        64
#define SMALL         65536 /* bytes: times of shorter copies vary more */
#define SMALL_COPIES  200
#define LARGE_COPIES  20
#define WINDOWS_BYTES (1ul << 30) /* so much is copied in windows... */
#define WINDOWS_MAX   20          /* ...in so many at most */
#define PCI_LENGTH    32
#define NAME_LENGTH   128
#define HOST_PINNED   (-1)
#define HOST_PAGEABLE (-2)

typedef struct {
    size_t sizes[SIZES_MAX];
    int    num_sizes;
    int    repeats;
    int    bandwidth;
    int    list;
} options_t;

/* One end of a copy: a GPU's number, or host memory. */
typedef struct {
    int         gpu;
    CUdeviceptr ptr; /* also of host memory: CUDA has one address space */
} place_t;

static cuda_program_t cuda;
static CUcontext      contexts[GPUS_MAX];
static int            num_gpus;

static void usage(FILE *out)
{
    fprintf(out,
            "Usage: " PROGRAM " [options] [FROM TO]\n"
            "Times copies of CUDA's driver from FROM to TO: D0, D1, ...: memory of that GPU, H:\n"
            "pinned host memory, P: pageable. Without them: all pairs that matter.\n"
            "  -s SIZE,...  bytes (" SIZES ")\n"
            "  -b           bandwidth, of windows of %d copies, instead of latency\n"
            "  -r N         repeats, the median counts (%d)\n"
            "  -l           list the GPUs\n",
            WINDOW, REPEATS);
}

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, PROGRAM ": %s%s\n", what, detail);
    exit(EXIT_FAILURE);
}

static void check(CUresult result, const char *call)
{
    const char *name = NULL;

    if (result != CUDA_SUCCESS) {
        if (cuda.get_error_name != NULL) {
            cuda.get_error_name(result, &name);
        }
        fprintf(stderr, PROGRAM ": %s: %s (%d)\n", call, name != NULL ? name : "?", result);
        exit(EXIT_FAILURE);
    }
}

#define MUST(_call) check(_call, #_call)

/* ---- command line ---------------------------------------------------------------------------- */

/* A decimal number that ends at a character of @a ends, or with the text. */
static int parse_number(const char **text, const char *ends, unsigned long max,
                        unsigned long *value_p)
{
    char *stop;

    if (**text < '0' || **text > '9') {
        return 0;
    }
    errno    = 0;
    *value_p = strtoul(*text, &stop, 10);
    *text    = stop;
    return errno == 0 && *value_p <= max && (*stop == '\0' || strchr(ends, *stop) != NULL);
}

static int parse_sizes(const char *text, options_t *opts)
{
    unsigned long size;

    opts->num_sizes = 0;
    do {
        if (opts->num_sizes == SIZES_MAX || !parse_number(&text, ",", INT_MAX, &size) ||
            size == 0) {
            return 0;
        }
        opts->sizes[opts->num_sizes++] = size;
    } while (*text++ == ',');
    return 1;
}

static void parse_options(int argc, char **argv, options_t *opts)
{
    unsigned long number;
    const char   *text;
    int           letter, ok = 1;

    *opts = (options_t){.repeats = REPEATS};
    parse_sizes(SIZES, opts);
    while ((letter = getopt(argc, argv, "s:br:lh")) != -1) {
        switch (letter) {
        case 's':
            ok = parse_sizes(optarg, opts);
            break;
        case 'b':
            opts->bandwidth = 1;
            break;
        case 'r':
            text          = optarg;
            ok            = parse_number(&text, "", REPEATS_MAX, &number) && number > 0;
            opts->repeats = ok ? (int)number : 0;
            break;
        case 'l':
            opts->list = 1;
            break;
        case 'h':
            usage(stdout);
            exit(EXIT_SUCCESS);
        default:
            usage(stderr);
            exit(EXIT_FAILURE);
        }
        if (!ok) {
            fprintf(stderr, PROGRAM ": wrong value '%s' of option -%c\n", optarg, letter);
            exit(EXIT_FAILURE);
        }
    }
    if (optind != argc && optind + 2 != argc) {
        fail("FROM and TO, or neither", "");
    }
}

static place_t parse_place(const char *word)
{
    const char   *text = word + 1;
    unsigned long gpu  = 0;

    if (strcmp(word, "H") == 0 || strcmp(word, "P") == 0) {
        return (place_t){.gpu = word[0] == 'H' ? HOST_PINNED : HOST_PAGEABLE};
    }
    if (word[0] != 'D' || !parse_number(&text, "", INT_MAX, &gpu)) {
        fail("neither D0, D1, ... nor H or P: ", word);
    }
    if (gpu >= (unsigned long)num_gpus) {
        fail("there is no such GPU: ", word);
    }
    return (place_t){.gpu = (int)gpu};
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static void open_gpus(void)
{
    if (!cuda_program_load(&cuda, NULL) || cuda.init(0) != CUDA_SUCCESS ||
        cuda.device_get_count(&num_gpus) != CUDA_SUCCESS || num_gpus == 0) {
        fail("there is no GPU of cuda: libcuda.so.1 isn't here, or it finds none", "");
    }
    num_gpus = num_gpus < GPUS_MAX ? num_gpus : GPUS_MAX;
}

static void list_gpus(void)
{
    char     name[NAME_LENGTH], pci[PCI_LENGTH];
    CUdevice device;
    int      version;

    MUST(cuda.driver_get_version(&version));
    printf("# CUDA %d.%d\n", version / 1000, version % 1000 / 10);
    for (int i = 0; i < num_gpus; ++i) {
        MUST(cuda.device_get(&device, i));
        MUST(cuda.device_get_name(name, sizeof(name), device));
        MUST(cuda.device_get_pci_bus_id(pci, sizeof(pci), device));
        printf("%d %s %s\n", i, pci, name);
    }
}

/* Makes the GPU's context the current one. */
static void use_gpu(int gpu)
{
    CUdevice device;

    if (contexts[gpu] == NULL) {
        MUST(cuda.device_get(&device, gpu));
        MUST(cuda.primary_ctx_retain(&contexts[gpu], device));
    }
    MUST(cuda.ctx_set_current(contexts[gpu]));
}

/* @return 0: the GPU doesn't reach the other one's memory. Then there is no copy between them. */
static int reaches(int gpu, int peer)
{
    CUdevice device, peer_device;
    int      can = 0;

    MUST(cuda.device_get(&device, gpu));
    MUST(cuda.device_get(&peer_device, peer));
    MUST(cuda.device_can_access_peer(&can, device, peer_device));
    return can;
}

/* Lets the GPU's copies go straight to the other one. */
static void connect_gpus(int gpu, int peer)
{
    CUresult result;

    if (!reaches(gpu, peer)) {
        fail("these GPUs don't reach each other's memory", "");
    }
    use_gpu(peer);
    use_gpu(gpu);
    result = cuda.ctx_enable_peer_access(contexts[peer], 0);
    if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        check(result, "cuCtxEnablePeerAccess");
    }
}

static void place_alloc(place_t *place, size_t size)
{
    void *host = NULL;

    switch (place->gpu) {
    case HOST_PAGEABLE:
        if (posix_memalign(&host, 4096, size) != 0) {
            fail("no memory", "");
        }
        memset(host, 0, size);
        break;
    case HOST_PINNED:
        MUST(cuda.mem_host_alloc(&host, size, CU_MEMHOSTALLOC_PORTABLE));
        break;
    default:
        use_gpu(place->gpu);
        MUST(cuda.mem_alloc(&place->ptr, size));
        return;
    }
    place->ptr = (CUdeviceptr)(uintptr_t)host;
}

static void place_free(place_t *place)
{
    switch (place->gpu) {
    case HOST_PAGEABLE:
        free((void *)(uintptr_t)place->ptr);
        break;
    case HOST_PINNED:
        MUST(cuda.mem_free_host((void *)(uintptr_t)place->ptr));
        break;
    default:
        use_gpu(place->gpu);
        MUST(cuda.mem_free(place->ptr));
        break;
    }
}

static void place_name(const place_t *place, char *name, size_t size)
{
    if (place->gpu >= 0) {
        snprintf(name, size, "GPU %d", place->gpu);
    } else {
        snprintf(name, size, "%s host memory", place->gpu == HOST_PINNED ? "pinned" : "pageable");
    }
}

/* ---- measuring ------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Seconds of one of @a rounds, each of @a count copies and a wait. */
static double time_rounds(place_t from, place_t to, size_t size, int rounds, int count,
                          CUstream stream)
{
    double start = now();

    for (int i = 0; i < rounds; ++i) {
        for (int k = 0; k < count; ++k) {
            MUST(cuda.memcpy_async(to.ptr, from.ptr, size, stream));
        }
        MUST(cuda.stream_synchronize(stream));
    }
    return (now() - start) / rounds;
}

static double measure(place_t from, place_t to, size_t size, const options_t *opts, CUstream stream)
{
    double times[REPEATS_MAX];
    int    count = opts->bandwidth ? WINDOW : 1;
    size_t rounds;

    if (opts->bandwidth) {
        rounds = 1 + WINDOWS_BYTES / (size * WINDOW);
        rounds = rounds < WINDOWS_MAX ? rounds : WINDOWS_MAX;
    } else {
        rounds = size <= SMALL ? SMALL_COPIES : LARGE_COPIES;
    }
    time_rounds(from, to, size, 1, count, stream);
    for (int i = 0; i < opts->repeats; ++i) {
        times[i] = time_rounds(from, to, size, (int)rounds, count, stream);
    }
    qsort(times, (size_t)opts->repeats, sizeof(times[0]), compare);
    return times[opts->repeats / 2];
}

/* Whether the bytes are really there: a copy that does nothing is no floor. */
static void verify(place_t from, place_t to, size_t size, CUstream stream)
{
    void       *bytes = malloc(size);
    CUdeviceptr host  = (CUdeviceptr)(uintptr_t)bytes;

    if (bytes == NULL) {
        fail("no memory", "");
    }
    data_fill(bytes, size, size);
    MUST(cuda.memcpy(from.ptr, host, size));
    MUST(cuda.ctx_synchronize());
    time_rounds(from, to, size, 1, 1, stream);
    memset(bytes, 0, size);
    MUST(cuda.memcpy(host, to.ptr, size));
    if (data_difference(bytes, size, size) != size) {
        fail("a copy has delivered something else", "");
    }
    free(bytes);
}

static void print_table(place_t from, place_t to, const options_t *opts)
{
    char     names[2][32];
    size_t   largest = 0;
    double   seconds;
    CUstream stream;

    if (from.gpu < 0 && to.gpu < 0) {
        fail("one end must be a GPU's", "");
    }
    for (int i = 0; i < opts->num_sizes; ++i) {
        largest = opts->sizes[i] > largest ? opts->sizes[i] : largest;
    }
    if (from.gpu >= 0 && to.gpu >= 0 && from.gpu != to.gpu) {
        connect_gpus(from.gpu, to.gpu);
    }
    use_gpu(from.gpu >= 0 ? from.gpu : to.gpu);
    MUST(cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING));
    place_alloc(&to, largest);
    place_alloc(&from, largest);
    use_gpu(from.gpu >= 0 ? from.gpu : to.gpu);
    verify(from, to, largest, stream);

    place_name(&from, names[0], sizeof(names[0]));
    place_name(&to, names[1], sizeof(names[1]));
    printf("# CUDA copies from %s to %s\n%-10s%18s\n", names[0], names[1], "# Size",
           opts->bandwidth ? "Bandwidth (MB/s)" : "Latency (us)");
    for (int i = 0; i < opts->num_sizes; ++i) {
        seconds = measure(from, to, opts->sizes[i], opts, stream);
        printf("%-10zu%18.2f\n", opts->sizes[i],
               opts->bandwidth ? (double)opts->sizes[i] * WINDOW / 1e6 / seconds : seconds * 1e6);
        fflush(stdout);
    }
    MUST(cuda.stream_destroy(stream));
    place_free(&from);
    place_free(&to);
}

/* Both tables of every pair of places that matters. */
static void print_all(options_t *opts)
{
    static const char *const pairs[][2] = {{"D0", "D0"}, {"D0", "D1"}, {"H", "D0"},
                                           {"D0", "H"},  {"P", "D0"},  {"D0", "P"}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); ++i) {
        if (strcmp(pairs[i][1], "D1") == 0 && (num_gpus == 1 || !reaches(0, 1))) {
            continue;
        }
        for (opts->bandwidth = 0; opts->bandwidth < 2; ++opts->bandwidth) {
            print_table(parse_place(pairs[i][0]), parse_place(pairs[i][1]), opts);
        }
    }
}

int main(int argc, char **argv)
{
    options_t opts;

    parse_options(argc, argv, &opts);
    open_gpus();
    if (opts.list) {
        list_gpus();
    } else if (optind == argc) {
        print_all(&opts);
    } else {
        print_table(parse_place(argv[optind]), parse_place(argv[optind + 1]), &opts);
    }
    return EXIT_SUCCESS;
}
