/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * angara_perf between two hosts: who listens, who connects, and how both agree on what to measure.
 * The connecting side sends a line of JSON, the listening side checks it and answers with one. What
 * comes from the network is checked here; it can ask for no more than the command line can.
 */
#define _GNU_SOURCE
#include "perf.h"

#include <errno.h>
#include <jansson.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PORT_DEFAULT "7470"
#define LINE_MAX_    4096
#define ANSWER_SEC   10 /* for what the other side has to say at once */

/* ---- lines of JSON --------------------------------------------------------------------------- */

static void set_timeout(int sock, time_t seconds)
{
    struct timeval timeout = {.tv_sec = seconds};

    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
}

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

/* Byte by byte: what comes behind the line is for others. @return NULL if it is no JSON in time. */
static json_t *receive_line(int sock)
{
    char   line[LINE_MAX_];
    size_t length = 0;

    set_timeout(sock, ANSWER_SEC);
    while (length < sizeof(line)) {
        if (recv(sock, &line[length], 1, 0) != 1) {
            return NULL;
        }
        if (line[length] == '\n') {
            set_timeout(sock, 0);
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
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:b, s:b, s:b, s:o}", "program", perf_name,
        "version", angara_version(), "size_min", (json_int_t)opt->size_min, "size_max",
        (json_int_t)opt->size_max, "iterations", (json_int_t)opt->iterations, "warm_up",
        (json_int_t)opt->warm_up, "shared", opt->shared, "check", opt->check, "gpu",
        opt->gpu != NULL ? opt->gpu->name : "", "managed", opt->origin == DEVICE_MANAGED,
        "buf_on_gpu", opt->buf_on_gpu, "mem_on_gpu", opt->mem_on_gpu, "tests", tests);
}

static int in_range(json_int_t value, json_int_t min, json_int_t max)
{
    return value >= min && value <= max;
}

static const char *take_tests(const json_t *tests, unsigned char *selected)
{
    size_t  index;
    json_t *test;

    memset(selected, 0, PERF_TESTS_MAX);
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
    if (json_unpack(json, "{s:I, s:I, s:I, s:I, s:b, s:b, s:s, s:b, s:b, s:b, s:o}", "size_min",
                    &size_min, "size_max", &size_max, "iterations", &iterations, "warm_up",
                    &warm_up, "shared", &opt->shared, "check", &opt->check, "gpu", &gpu, "managed",
                    &managed, "buf_on_gpu", &opt->buf_on_gpu, "mem_on_gpu", &opt->mem_on_gpu,
                    "tests", &tests) != 0 ||
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
    if ((gpu[0] != '\0') != (opt->gpu != NULL) ||
        ((opt->buf_on_gpu || opt->mem_on_gpu) && opt->gpu == NULL)) {
        return "GPU memory of an unknown kind";
    }
    return take_tests(tests, selected);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void tune(int sock)
{
    int on = 1;

    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(sock, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)); /* a host may vanish */
}

/* HOST, HOST:PORT, or [ADDRESS]:PORT. */
static struct addrinfo *find_host(const char *text)
{
    struct addrinfo  hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    char             host[256], *colon;
    const char      *port = PORT_DEFAULT;
    int              error;

    snprintf(host, sizeof(host), "%s", text[0] == '[' ? text + 1 : text);
    colon = text[0] == '[' ? strstr(host, "]") : strchr(host, ':');
    if (text[0] != '[' && colon != NULL && strchr(colon + 1, ':') != NULL) {
        colon = NULL; /* an address of IPv6 without port */
    }
    if (colon != NULL) {
        port   = colon[0] == ']' ? (colon[1] == ':' ? colon + 2 : PORT_DEFAULT) : colon + 1;
        *colon = '\0';
    }
    error = getaddrinfo(host, port, &hints, &list);
    if (error != 0) {
        perf_fail("host %s, port %s: %s", host, port, gai_strerror(error));
    }
    return list;
}

int perf_connect(const perf_options_t *opt, const unsigned char *selected)
{
    struct addrinfo *list = find_host(opt->host);
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
    answer = send_line(sock, request(opt, selected)) == 0 ? receive_line(sock) : NULL;
    if (answer == NULL || json_unpack(answer, "{s:s}", "answer", &why) != 0) {
        perf_fail("%s doesn't answer as %s does: is another one busy with it, or is it another "
                  "program?",
                  opt->host, perf_name);
    }
    if (strcmp(why, "ok") != 0) {
        perf_fail("%s refuses: %.200s", opt->host, why);
    }
    json_decref(answer);
    return sock;
}

static int open_listener(const char *port)
{
    struct addrinfo  hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list;
    int              error = getaddrinfo(NULL, port, &hints, &list);
    int              sock = -1, on = 1, off = 0;

    if (error != 0) {
        perf_fail("port %s: %s", port, gai_strerror(error));
    }
    /* One of IPv6 takes both, where there is IPv6. */
    for (int family = 0; family < 2 && sock < 0; ++family) {
        for (struct addrinfo *at = list; at != NULL && sock < 0; at = at->ai_next) {
            if ((at->ai_family == AF_INET6) == (family == 0)) {
                sock = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
                setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
                setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
                if (sock >= 0 &&
                    (bind(sock, at->ai_addr, at->ai_addrlen) != 0 || listen(sock, 1) != 0)) {
                    error = errno;
                    close(sock);
                    sock  = -1;
                    errno = error;
                }
            }
        }
    }
    freeaddrinfo(list);
    if (sock < 0) {
        perf_fail("can't listen at port %s: %s", port, strerror(errno));
    }
    return sock;
}

int perf_listen(perf_options_t *opt, unsigned char *selected)
{
    const char *port     = opt->listen_port != NULL ? opt->listen_port : PORT_DEFAULT;
    int         listener = open_listener(port);
    const char *why;
    json_t     *json;
    int         sock;

    fprintf(stderr, "%s: waiting at port %s for %s --host=NAME\n", perf_name, port, perf_name);
    for (;;) {
        sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (sock < 0) {
            perf_fail("port %s: %s", port, strerror(errno));
        }
        tune(sock);
        json = receive_line(sock);
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
