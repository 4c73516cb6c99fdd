/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * angara_perf between two hosts: who listens, who connects, and how both agree on what to measure.
 * The connecting side sends a line of JSON, the listening side checks it and answers with one. What
 * comes from the network is checked here; it can ask for no more than the command line can.
 */
#define _GNU_SOURCE
#include "perf.h"

#include "src/clock.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_DEFAULT "7470"
#define REQUEST_MAX  4096
#define SILENT_SEC   5  /* after which the other host is asked whether it is there, each second */
#define SILENT_COUNT 10 /* so often */

/* ---- lines of JSON --------------------------------------------------------------------------- */

static int send_line(int sock, json_t *json)
{
    char   *text = json_dumps(json, JSON_COMPACT);
    size_t  length;
    ssize_t sent;

    json_decref(json);
    if (text == NULL) {
        perf_fail("no memory");
    }
    length       = strlen(text);
    text[length] = '\n'; /* in the place of the final 0 */
    sent         = send(sock, text, length + 1, MSG_NOSIGNAL);
    free(text);
    return sent == (ssize_t)length + 1 ? 0 : -1;
}

/* Something has come until then. */
static int wait_until(int sock, uint64_t deadline)
{
    struct pollfd poll_fd = {.fd = sock, .events = POLLIN};
    uint64_t      now     = ang_clock_ns(CLOCK_MONOTONIC);

    return now < deadline && poll(&poll_fd, 1, (int)((deadline - now) / 1000000) + 1) == 1;
}

/*
 * Byte by byte: what comes behind the line is for others.
 * @return NULL if there is no line of JSON within that many seconds
 */
static json_t *receive_line(int sock, unsigned seconds)
{
    uint64_t deadline = ang_clock_ns(CLOCK_MONOTONIC) + seconds * 1000000000ull;
    char     line[REQUEST_MAX];
    size_t   length = 0;

    while (length < sizeof(line) && wait_until(sock, deadline) &&
           recv(sock, &line[length], 1, 0) == 1) {
        if (line[length] == '\n') {
            return json_loadb(line, length, 0, NULL);
        }
        length++;
    }
    return NULL;
}

/* ---- what both do ---------------------------------------------------------------------------- */

static json_t *request(const perf_options_t *opt, const unsigned char *selected)
{
    json_t *tests = json_array();

    for (unsigned i = 0; i < perf_num_tests; ++i) {
        if (selected[i]) {
            json_array_append_new(tests, json_string(perf_tests[i].name));
        }
    }
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:s, s:b, s:b, s:b, s:o}", "program",
        perf_name, "version", angara_version(), "size_min", (json_int_t)opt->size_min, "size_max",
        (json_int_t)opt->size_max, "iterations", (json_int_t)opt->iterations, "warm_up",
        (json_int_t)opt->warm_up, "shared", opt->shared, "polls", opt->polls, "check", opt->check,
        "gpu", opt->gpu != NULL ? opt->gpu->name : "", "managed", opt->origin == DEVICE_MANAGED,
        "buf_on_gpu", opt->buf_on_gpu, "mem_on_gpu", opt->mem_on_gpu, "tests", tests);
}

static int in_range(json_int_t value, json_int_t min, json_int_t max)
{
    return value >= min && value <= max;
}

static const char *take_tests(const json_t *tests, const perf_options_t *opt,
                              unsigned char *selected)
{
    size_t  index;
    json_t *test;

    memset(selected, 0, PERF_TESTS_MAX);
    if (json_array_size(tests) == 0) {
        return "no test";
    }
    json_array_foreach(tests, index, test)
    {
        const char *name = json_string_value(test);
        unsigned    i    = 0;

        while (i < perf_num_tests && (name == NULL || strcmp(perf_tests[i].name, name) != 0)) {
            i++;
        }
        if (i == perf_num_tests) {
            return "a test that this side doesn't know";
        }
        if (opt->gpu != NULL && !perf_tests[i].gpu) {
            return "a test that doesn't use GPU memory, with GPU memory";
        }
        selected[i] = 1;
    }
    return NULL;
}

/* Do what the other side asks for. @return NULL, or why not */
static const char *take_request(json_t *json, perf_options_t *opt, unsigned char *selected)
{
    const char *program, *version, *gpu;
    json_int_t  size_min, size_max, iterations, warm_up;
    json_t     *tests;
    int         managed;

    if (json_unpack(json, "{s:s, s:s}", "program", &program, "version", &version) != 0 ||
        strcmp(program, perf_name) != 0) {
        return "no request of angara_perf";
    }
    if (strcmp(version, angara_version()) != 0) {
        return "another version of libangara: use one on both hosts";
    }
    if (json_unpack(json, "{s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:s, s:b, s:b, s:b, s:o}",
                    "size_min", &size_min, "size_max", &size_max, "iterations", &iterations,
                    "warm_up", &warm_up, "shared", &opt->shared, "polls", &opt->polls, "check",
                    &opt->check, "gpu", &gpu, "managed", &managed, "buf_on_gpu", &opt->buf_on_gpu,
                    "mem_on_gpu", &opt->mem_on_gpu, "tests", &tests) != 0 ||
        !in_range(size_max, 0, PERF_SIZE_MAX) || !in_range(size_min, 0, size_max) ||
        !in_range(iterations, 1, PERF_COUNT_MAX) || !in_range(warm_up, 0, PERF_COUNT_MAX)) {
        return "a request that makes no sense";
    }
    opt->size_min   = (size_t)size_min;
    opt->size_max   = (size_t)size_max;
    opt->iterations = (unsigned)iterations;
    opt->warm_up    = (unsigned)warm_up;
    opt->origin     = managed ? DEVICE_MANAGED : DEVICE_PLAIN;
    opt->gpu        = gpu[0] != '\0' ? device_runtime(gpu) : NULL;
    if ((gpu[0] != '\0') != (opt->gpu != NULL) || (managed && opt->gpu != &device_cuda) ||
        ((opt->buf_on_gpu || opt->mem_on_gpu) && opt->gpu == NULL)) {
        return "GPU memory of an unknown kind";
    }
    return take_tests(tests, opt, selected);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void tune(int sock)
{
    int on = 1, idle = SILENT_SEC, interval = 1, count = SILENT_COUNT;

    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    /* a host may vanish */
    setsockopt(sock, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(sock, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(sock, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(sock, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* HOST, HOST:PORT, or [ADDRESS]:PORT; HOST may be missing where this one is meant. */
static struct addrinfo *find_host(const char *text, int flags)
{
    struct addrinfo  hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct addrinfo *list;
    char             host[NI_MAXHOST], *colon;
    const char      *port = PORT_DEFAULT;
    int              error;

    if (strlen(text) >= sizeof(host)) {
        perf_fail("the name of the host is too long");
    }
    strcpy(host, text[0] == '[' ? text + 1 : text);
    colon = text[0] == '[' ? strchr(host, ']') : strchr(host, ':');
    if (text[0] != '[' && colon != NULL && strchr(colon + 1, ':') != NULL) {
        colon = NULL; /* an address of IPv6 without port */
    }
    if (colon != NULL) {
        port   = colon[0] == ']' ? (colon[1] == ':' ? colon + 2 : PORT_DEFAULT) : colon + 1;
        *colon = '\0';
    }
    error = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &list);
    if (error != 0) {
        perf_fail("host %s, port %s: %s", host[0] != '\0' ? host : "*", port, gai_strerror(error));
    }
    return list;
}

/* What another host says may be anything. */
static const char *printable(const char *text, char *copy, size_t size)
{
    size_t length = 0;

    for (; text[length] != '\0' && length < size - 1; ++length) {
        copy[length] = isascii((unsigned char)text[length]) &&
                               isprint((unsigned char)text[length]) ?
                           text[length] :
                           '?';
    }
    copy[length] = '\0';
    return copy;
}

int perf_connect(const perf_options_t *opt, const unsigned char *selected)
{
    struct addrinfo *list = find_host(opt->host, 0);
    char             copy[200];
    const char      *why;
    json_t          *answer;
    int              sock = -1;

    for (struct addrinfo *at = list; at != NULL && sock < 0; at = at->ai_next) {
        sock = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (sock >= 0 && connect(sock, at->ai_addr, at->ai_addrlen) != 0) {
            int error = errno;

            close(sock);
            sock  = -1;
            errno = error;
        }
    }
    freeaddrinfo(list);
    if (sock < 0) {
        perf_fail("can't connect to %s: %s. Start %s --listen there first", opt->host,
                  strerror(errno), perf_name);
    }
    tune(sock);
    answer = send_line(sock, request(opt, selected)) == 0 ? receive_line(sock, opt->patience) :
                                                            NULL;
    if (answer == NULL || json_unpack(answer, "{s:s}", "answer", &why) != 0) {
        perf_fail("%s doesn't answer as %s does: is another one busy with it, or is it another "
                  "program?",
                  opt->host, perf_name);
    }
    if (strcmp(why, "ok") != 0) {
        perf_fail("%s refuses: %s", opt->host, printable(why, copy, sizeof(copy)));
    }
    json_decref(answer);
    return sock;
}

static int listen_at(const struct addrinfo *at)
{
    int sock = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    int on = 1, off = 0, error;

    if (sock < 0) {
        return -1;
    }
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (at->ai_family == AF_INET6) {
        setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)); /* takes both */
    }
    if (bind(sock, at->ai_addr, at->ai_addrlen) != 0 || listen(sock, 1) != 0) {
        error = errno;
        close(sock);
        errno = error;
        return -1;
    }
    return sock;
}

static int open_listener(const char *where)
{
    struct addrinfo *list = find_host(where, AI_PASSIVE);
    int              sock = -1;

    for (int family = 0; family < 2; ++family) {
        for (const struct addrinfo *at = list; at != NULL && sock < 0; at = at->ai_next) {
            if ((at->ai_family == AF_INET6) == (family == 0)) {
                sock = listen_at(at);
            }
        }
    }
    freeaddrinfo(list);
    if (sock < 0) {
        perf_fail("can't listen at %s: %s", where, strerror(errno));
    }
    return sock;
}

/* The next one; connections that have gone already are passed over. */
static int next_client(int listener)
{
    int sock;

    do {
        sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    } while (sock < 0 && errno != EBADF && errno != EINVAL && errno != EMFILE && errno != ENFILE &&
             errno != ENOMEM && errno != ENOBUFS);
    if (sock < 0) {
        perf_fail("accepting a connection failed: %s", strerror(errno));
    }
    return sock;
}

int perf_listen(perf_options_t *opt, unsigned char *selected)
{
    const char *where    = opt->listen_at[0] != '\0' ? opt->listen_at : ":" PORT_DEFAULT;
    int         listener = open_listener(where);
    const char *why;
    json_t     *json;
    int         sock;

    fprintf(stderr, "%s: waiting at %s for %s --host=NAME\n", perf_name, where, perf_name);
    for (;;) {
        sock = next_client(listener);
        tune(sock);
        json = receive_line(sock, opt->patience);
        why  = json != NULL ? take_request(json, opt, selected) : "no request of angara_perf";
        json_decref(json);
        if (send_line(sock, json_pack("{s:s}", "answer", why != NULL ? why : "ok")) == 0 &&
            why == NULL) {
            close(listener);
            return sock;
        }
        fprintf(stderr, "%s: refused: %s\n", perf_name, why != NULL ? why : "it has gone");
        close(sock);
    }
}
