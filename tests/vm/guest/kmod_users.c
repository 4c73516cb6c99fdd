/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several users of the NICs of two VMs: who reaches whom. Reports TAP in VM 0, as root. Usage:
 * kmod_users, or, as VM 0 starts it in VM 1, kmod_users serve.
 */
#include "kmod_agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT     7472
#define OTHER_VM "10.0.0.2"
#define ALICE    65533u
#define BOB      65534u
#define JOB      4711ull
#define GUESSES  50u
#define ALL_DONE ((1u << AGENT_OPS) - 1)
#define DEAD     (-9)

static const char *const nodes[] = {"/dev/angara0", "/dev/angara_memreg"};

static void nodes_allow(mode_t mode)
{
    for (unsigned i = 0; i < 2; ++i) {
        MUST(chmod(nodes[i], mode) == 0);
    }
}

/* ---- the other VM ---------------------------------------------------------------------------- */

static int serve(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int                one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), stream;
    request_t          request;

    MUST(listener >= 0);
    MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);
    MUST(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    MUST(listen(listener, 8) == 0);
    nodes_allow(0666);
    for (;;) {
        stream = accept(listener, NULL, NULL);
        MUST(stream >= 0 && stream_read(stream, &request, sizeof(request)));
        if (request.kind == REQUEST_END) {
            break;
        }
        if (fork() == 0) {
            close(listener);
            agent_serve(stream, &request);
            _exit(0);
        }
        close(stream);
    }
    while (wait(NULL) > 0) {
    }
    nodes_allow(0600);
    close(stream); /* all is done */
    return 0;
}

static int connect_other(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    double             end     = deadline_in(30);
    int                one     = 1, stream;

    inet_pton(AF_INET, OTHER_VM, &address.sin_addr);
    for (;;) {
        stream = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        MUST(stream >= 0);
        if (connect(stream, (struct sockaddr *)&address, sizeof(address)) == 0) {
            setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
            return stream;
        }
        close(stream);
        MUST(now_seconds() < end);
        sleep_ms(50);
    }
}

static void other_start(void)
{
    char    self[400];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    MUST(length > 0);
    self[length] = '\0';
    MUST(run("vm_rsh vm1 %s serve >/tmp/kmod_users.out 2>&1 &", self));
}

static void other_end(void)
{
    request_t request = {.kind = REQUEST_END};
    int       stream  = connect_other();

    stream_write(stream, &request, sizeof(request));
    OK_SAY(!stream_read(stream, &request, 1), "the other VM's users have ended");
    close(stream);
}

/* ---- agents ---------------------------------------------------------------------------------- */

typedef struct {
    int    stream;
    name_t name;
} agent_t;

static agent_t request_start(unsigned node, const request_t *request)
{
    agent_t agent;
    int     pair[2];

    fflush(stdout);
    if (node != 0) {
        agent.stream = connect_other();
        stream_write(agent.stream, request, sizeof(*request));
    } else {
        MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        if (fork() == 0) {
            close(pair[0]);
            agent_serve(pair[1], request);
            _exit(0);
        }
        close(pair[1]);
        agent.stream = pair[0];
    }
    MUST(stream_read(agent.stream, &agent.name, sizeof(agent.name)));
    return agent;
}

static void agent_end(agent_t *agent)
{
    order_t order = {.kind = ORDER_QUIT};

    stream_write(agent->stream, &order, sizeof(order));
    MUST(!stream_read(agent->stream, &order, 1)); /* its process has ended */
    close(agent->stream);
}

static agent_t agent_start(unsigned node, uint32_t uid, uint32_t flags, uint64_t job_key)
{
    request_t request = {.kind = REQUEST_AGENT, .uid = uid, .flags = flags, .job_key = job_key};
    agent_t   agent   = request_start(node, &request);

    MUST(agent.name.error == 0 && agent.name.node == node);
    return agent;
}

/* @return the errno of why there can't be one, or 0 */
static int agent_refused(unsigned node, uint32_t uid, uint32_t flags, uint64_t job_key)
{
    request_t request = {.kind = REQUEST_AGENT, .uid = uid, .flags = flags, .job_key = job_key};
    agent_t   agent   = request_start(node, &request);

    agent_end(&agent);
    return agent.name.error;
}

static int job(uint32_t kind, unsigned node, uint32_t uid, uint64_t value)
{
    request_t request = {.kind = kind, .uid = uid, .job_key = value};
    agent_t   agent   = request_start(node, &request);

    close(agent.stream);
    return agent.name.error;
}

static view_t look(agent_t *agent, int arm)
{
    order_t order = {.kind = ORDER_LOOK, .count = (uint32_t)arm};
    view_t  view;

    stream_write(agent->stream, &order, sizeof(order));
    MUST(stream_read(agent->stream, &view, sizeof(view)));
    return view;
}

static outcome_t try_name(agent_t *agent, const name_t *target)
{
    order_t   order = {.kind = ORDER_TRY, .target = *target};
    outcome_t outcome;

    stream_write(agent->stream, &order, sizeof(order));
    MUST(stream_read(agent->stream, &outcome, sizeof(outcome)));
    return outcome;
}

/* ---- who reaches whom ------------------------------------------------------------------------ */

static int reaches(agent_t *from, agent_t *to)
{
    outcome_t outcome = try_name(from, &to->name);

    return outcome.down == 0 && outcome.events == 0 && outcome.done == ALL_DONE &&
           outcome.notify == 0 && outcome.counted == AGENT_OPS + 3;
}

static int is_refused(const outcome_t *outcome)
{
    return outcome->down == AGENT_OPS + 1 && outcome->events == 0 && outcome->done == 0 &&
           outcome->notify == DEAD && outcome->counted == 0;
}

/* By its right name and a guessed one alike, and it doesn't notice. */
static void refused(const char *what, agent_t *from, agent_t *to)
{
    view_t    before  = look(to, 1), after;
    name_t    guessed = to->name, nobody = to->name;
    outcome_t right, wrong, none;

    guessed.generation++;
    nobody.index = 63; /* the last PE of a device, which isn't that often used */
    right        = try_name(from, &to->name);
    wrong        = try_name(from, &guessed);
    none         = try_name(from, &nobody);
    after        = look(to, 0);
    OK_SAY(is_refused(&right), "%s: refused", what);
    OK_SAY(memcmp(&right, &wrong, sizeof(right)) == 0 && memcmp(&right, &none, sizeof(right)) == 0,
           "%s: as a PE is that doesn't exist", what);
    OK_SAY(memcmp(&before, &after, sizeof(before)) == 0 && after.status.armed != 0,
           "%s: nothing of it is to be seen there", what);
}

static void slow(const char *what, agent_t *from, agent_t *to)
{
    order_t order = {.kind = ORDER_GUESS, .count = GUESSES, .target = to->name};
    double  seconds;

    stream_write(from->stream, &order, sizeof(order));
    MUST(stream_read(from->stream, &seconds, sizeof(seconds)));
    OK_SAY(seconds >= (GUESSES - 1) * 0.001, "%s: a guess costs a millisecond (%.1f ms)", what,
           seconds / GUESSES * 1e3);
}

static void test_users(void)
{
    agent_t   near = agent_start(0, ALICE, 0, 0), near2 = agent_start(0, ALICE, 0, 0);
    agent_t   far = agent_start(1, ALICE, 0, 0), bob = agent_start(0, BOB, 0, 0);
    agent_t   root  = agent_start(0, 0, 0, 0);
    long long count = value_read(COUNTERS, "key_mismatches");

    OK_SAY(reaches(&near, &near2), "a user reaches himself");
    OK_SAY(reaches(&near, &far) && reaches(&far, &near), "and on another node");
    refused("another user, on the own node", &bob, &near);
    refused("another user, on another node", &bob, &far);
    refused("the other way round", &far, &bob);
    refused("root, who is a user like others", &root, &near);
    refused("a user, root's", &near, &root);
    slow("another user's number", &bob, &near);
    slow("one of another node", &bob, &far);
    sleep_ms(100); /* the device tells now and then */
    OK_SAY(value_read(COUNTERS, "key_mismatches") > count, "the administrator sees the attempts");
    OK_SAY(reaches(&near, &far), "and the user himself still gets there");
    agent_end(&near);
    agent_end(&near2);
    agent_end(&far);
    agent_end(&bob);
    agent_end(&root);
}

static void test_openers(void)
{
    agent_t near    = agent_start(0, ALICE, 0, 0);
    agent_t inside  = agent_start(0, ALICE, AGENT_NAMESPACE, 0);
    agent_t inside2 = agent_start(0, ALICE, AGENT_NAMESPACE, 0);
    agent_t far     = agent_start(1, ALICE, AGENT_NAMESPACE, 0);
    agent_t root    = agent_start(0, 0, 0, 0);

    OK_SAY(reaches(&inside, &inside2), "user namespaces of one user reach each other");
    refused("a user namespace, that of another node", &inside, &far);
    refused("a user namespace, what is outside", &inside, &near);
    refused("its root, that outside", &inside, &root);
    refused("a user, his namespace", &near, &inside);
    OK_SAY(agent_refused(0, ALICE, AGENT_SAVED_ROOT, 0) == EPERM,
           "a program with several user ids can't open the device");
    agent_end(&near);
    agent_end(&inside);
    agent_end(&inside2);
    agent_end(&far);
    agent_end(&root);
}

static void test_granted(void)
{
    agent_t  own = agent_start(0, ALICE, 0, 0), own_far = agent_start(1, ALICE, 0, 0);
    agent_t  near, far, bob, imitator;
    uint32_t state;

    OK_SAY(agent_refused(0, ALICE, 0, JOB) == EACCES, "a key that isn't granted");
    MUST(job(REQUEST_GRANT, 0, ALICE, JOB) == 0 && job(REQUEST_GRANT, 1, ALICE, JOB) == 0);
    OK_SAY(job(REQUEST_GRANT, 0, ALICE, JOB) == EEXIST, "it can be granted once");
    OK_SAY(agent_refused(0, BOB, 0, JOB) == EACCES, "one that is granted to somebody else");
    OK_SAY(agent_refused(0, 0, 0, JOB) == EACCES, "nor does root get it without");
    MUST(job(REQUEST_GRANT, 0, BOB, JOB) == 0 && job(REQUEST_GRANT, 0, BOB, ALICE) == 0);
    near     = agent_start(0, ALICE, 0, JOB);
    far      = agent_start(1, ALICE, 0, JOB);
    bob      = agent_start(0, BOB, 0, JOB);
    imitator = agent_start(0, BOB, 0, ALICE);
    OK_SAY(reaches(&near, &far), "PEs of a granted key reach each other");
    OK_SAY(reaches(&bob, &far), "those of another user, too");
    refused("a granted key, the user's own", &near, &own_far);
    refused("the user's own key, a granted one", &own_far, &near);
    refused("a granted key with a user's number, that user", &imitator, &own);

    OK_SAY(reaches(&far, &near), "before it is revoked");
    MUST(job(REQUEST_REVOKE, 0, ALICE, JOB) == 0);
    state = look(&near, 0).status.state;
    OK_SAY(state == ANGARA_PE_GONE, "then the PE has gone");
    OK_SAY(look(&bob, 0).status.state == ANGARA_PE_RUNNING, "that of who keeps it hasn't");
    OK_SAY(look(&own, 0).status.state == ANGARA_PE_RUNNING, "nor the user's own");
    OK_SAY(agent_refused(0, ALICE, 0, JOB) == EACCES, "and there is no new one");
    OK_SAY(job(REQUEST_REVOKE, 0, ALICE, JOB) == ENOENT, "it can be revoked once");
    OK_SAY(reaches(&bob, &far), "others go on");
    agent_end(&near);
    agent_end(&far);
    agent_end(&bob);
    agent_end(&imitator);
    agent_end(&own);
    agent_end(&own_far);
    MUST(job(REQUEST_REVOKE, 0, BOB, JOB) == 0 && job(REQUEST_REVOKE, 0, BOB, ALICE) == 0);
    MUST(job(REQUEST_REVOKE, 1, ALICE, JOB) == 0);
}

/* angara_jobkey, and libangara with ANGARA_JOB_KEY. */
static void test_tool(void)
{
    static const char as_bob[] = "setpriv --reuid 65534 --regid 65534 --clear-groups "
                                 "env ANGARA_JOB_KEY=4711 $B/bin/angara_info --device nic";

    OK_SAY(run("%s 2>&1 | grep -q \"4711 isn't granted\"", as_bob), "libangara names the key");
    OK_SAY(run("$B/sbin/angara_jobkey add 65534 4711"), "angara_jobkey add");
    OK_SAY(run("$B/sbin/angara_jobkey list | grep -qE '^angara0 (nobody|65534) 4711$'"), "list");
    OK_SAY(run("%s | grep -q 'put window'", as_bob), "libangara has it");
    OK_SAY(run("$B/sbin/angara_jobkey add 65534 4711 2>&1 | grep -q 'has it already'"), "once");
    OK_SAY(run("! setpriv --reuid 65534 --clear-groups $B/sbin/angara_jobkey list 2>/dev/null"),
           "not for users");
    OK_SAY(run("$B/sbin/angara_jobkey del 65534 4711"), "del");
    OK_SAY(run("test -z \"$($B/sbin/angara_jobkey list)\""), "then there is none");
    OK_SAY(run("! $B/sbin/angara_jobkey -d angara7 list 2>/dev/null"), "another device");
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && strcmp(argv[1], "serve") == 0) {
        return serve();
    }
    other_start();
    nodes_allow(0666);
    test_users();
    test_openers();
    test_granted();
    test_tool();
    other_end();
    while (wait(NULL) > 0) {
    }
    nodes_allow(0600);
    OK(SYSFS("pe_used") == 0 && SYSFS("mr_used") == 0);
    return tap_finish();
}
