/* SPDX-License-Identifier: BSD-3-Clause */
/* The transport's last lines come in one piece, however long: a datagram each here. */
#include "base/say.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LINE_MAX_BYTES 1024 /* of the library's log */

static char text[2 * LINE_MAX_BYTES];

/* What a child has written that says, or aborts with, so much of the text. @return its status */
static int said(size_t length, int aborts, char *line, ssize_t *count)
{
    int   ends[2];
    int   status;
    pid_t child;

    memset(text, 'x', sizeof(text));
    text[length] = '\0';
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        if (aborts) {
            uct_angara_abort("%s", text);
        }
        uct_angara_stays_off("%s", text);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    *count = recv(ends[0], line, 2 * LINE_MAX_BYTES, MSG_DONTWAIT);
    assert_true(*count > 0);
    assert_int_equal(recv(ends[0], text, sizeof(text), MSG_DONTWAIT), -1); /* one piece */
    close(ends[0]);
    close(ends[1]);
    return status;
}

static void assert_line(size_t length, int aborts)
{
    char        line[2 * LINE_MAX_BYTES];
    const char *from;
    ssize_t     count;
    int         status = said(length, aborts, line, &count);
    size_t      head;

    assert_true(aborts ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT : status == 0);
    assert_int_equal(line[count - 1], '\n');
    line[count - 1] = '\0';
    from            = strstr(line, "] angara error: x");
    assert_non_null(from);
    head = (size_t)(from - line) + strlen("] angara error: ");
    assert_int_equal(strlen(line),
                     head + length < LINE_MAX_BYTES - 2 ? head + length : LINE_MAX_BYTES - 2);
}

static void test_said(void **state)
{
    (void)state;
    for (size_t length = 1; length < 300; ++length) {
        assert_line(length, 0);
    }
}

static void test_too_long(void **state)
{
    (void)state;
    for (size_t length = LINE_MAX_BYTES - 80; length < LINE_MAX_BYTES + 3; ++length) {
        assert_line(length, 0);
    }
}

static void test_abort(void **state)
{
    (void)state;
    assert_line(200, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_said),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_abort),
    };

    return cmocka_run_group_tests_name("say", tests, NULL, NULL);
}
