/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * angara_jobkey: grants users of a NIC job keys besides their own, revokes and lists them. For the
 * administrator; it speaks to the kernel module alone.
 */
#include <misc/angara.h>

#include <angara/angara.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define NODE       "/dev/angara_jobkey"
#define EXIT_USAGE 2

static void usage(FILE *out)
{
    fputs("Usage: angara_jobkey [OPTION]... add USER VALUE\n"
          "       angara_jobkey [OPTION]... del USER VALUE\n"
          "       angara_jobkey [OPTION]... list\n"
          "Let programs of a user have a job key of that value on a NIC besides the user's own,\n"
          "revoke that, or list what users have been granted. Programs ask for it by\n"
          "ANGARA_JOB_KEY=VALUE. Revoking ends their endpoints that have it.\n\n"
          "USER is a name or a number, VALUE a number from 1 to 72057594037927935.\n\n"
          "  -d, --device=NAME   the NIC (angara0)\n"
          "  -V, --version       version\n"
          "  -h, --help          this text\n\n"
          "Exit status: 0, 1 if it can't be done, 2 for wrong usage.\n",
          out);
}

static int wrong(const char *what, const char *text)
{
    fprintf(stderr, "angara_jobkey: %s%s%s\nTry 'angara_jobkey --help'.\n", what,
            text != NULL ? ": " : "", text != NULL ? text : "");
    return EXIT_USAGE;
}

/* A number up to max, all of the text. @return is it one? */
static int number(const char *text, uint64_t max, uint64_t *value)
{
    char *end;

    if (*text < '0' || *text > '9') {
        return 0;
    }
    errno  = 0;
    *value = strtoull(text, &end, 0);
    return errno == 0 && *end == '\0' && *value <= max;
}

static int parse_device(const char *text, uint32_t *device)
{
    uint64_t value;

    if (strncmp(text, "angara", 6) != 0 || !number(text + 6, UINT32_MAX, &value)) {
        return 0;
    }
    *device = (uint32_t)value;
    return 1;
}

static int parse_user(const char *text, uint32_t *uid)
{
    const struct passwd *entry = getpwnam(text);
    uint64_t             value;

    if (entry != NULL) {
        *uid = entry->pw_uid;
        return 1;
    }
    if (!number(text, UINT32_MAX - 1, &value)) {
        return 0;
    }
    *uid = (uint32_t)value;
    return 1;
}

/* What an errno of the module's means here. */
static const char *reason(int error)
{
    switch (error) {
    case EPERM:
        return "only root may do that";
    case EEXIST:
        return "the user has it already";
    case ENOENT:
        return "the user doesn't have it";
    case ENOSPC:
        return "as many as the parameter job_keys of the module angara_nic allows are granted";
    case ENXIO:
        return "there is no such NIC";
    case ENODEV:
        return "the NIC has gone or failed; dmesg has why";
    default:
        return strerror(error);
    }
}

static int failed(const char *what, uint32_t device)
{
    fprintf(stderr, "angara_jobkey: %s, angara%u: %s\n", what, device, reason(errno));
    return EXIT_FAILURE;
}

static int list(int fd, struct angara_ioc_job *job)
{
    const struct passwd *entry;

    while (ioctl(fd, ANGARA_IOC_JOB_NEXT, job) == 0) {
        entry = getpwuid(job->uid);
        if (entry != NULL) {
            printf("angara%u %s %llu\n", job->device, entry->pw_name,
                   (unsigned long long)job->value);
        } else {
            printf("angara%u %u %llu\n", job->device, job->uid, (unsigned long long)job->value);
        }
    }
    return errno == ENOENT ? EXIT_SUCCESS : failed("list", job->device);
}

static int run(const char *command, struct angara_ioc_job *job)
{
    int fd = open(NODE, O_RDWR | O_CLOEXEC), result;

    if (fd < 0) {
        fprintf(stderr, "angara_jobkey: %s: %s\n", NODE,
                errno == EACCES || errno == EPERM ? "only root may open it" :
                errno == ENOENT                   ? "load the module angara_nic" :
                                                    strerror(errno));
        return EXIT_FAILURE;
    }
    if (strcmp(command, "list") == 0) {
        result = list(fd, job);
    } else if (ioctl(fd, command[0] == 'a' ? ANGARA_IOC_JOB_ADD : ANGARA_IOC_JOB_DEL, job) != 0) {
        result = failed(command, job->device);
    } else {
        result = EXIT_SUCCESS;
    }
    close(fd);
    return result;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"device", required_argument, NULL, 'd'},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct angara_ioc_job job = {.size = sizeof(job)};
    uint64_t              value;
    const char           *command;
    int                   c, words;

    while ((c = getopt_long(argc, argv, "d:Vh", options, NULL)) != -1) {
        switch (c) {
        case 'd':
            if (!parse_device(optarg, &job.device)) {
                return wrong("no name of a NIC", optarg);
            }
            break;
        case 'V':
            printf("angara_jobkey %d.%d.%d\n", ANGARA_VERSION_MAJOR, ANGARA_VERSION_MINOR,
                   ANGARA_VERSION_PATCH);
            return EXIT_SUCCESS;
        case 'h':
            usage(stdout);
            return EXIT_SUCCESS;
        default:
            fputs("Try 'angara_jobkey --help'.\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind == argc) {
        return wrong("add, del or list is wanted", NULL);
    }
    command = argv[optind++];
    words   = strcmp(command, "list") == 0 ? 0 : 2;
    if (words != 0 && strcmp(command, "add") != 0 && strcmp(command, "del") != 0) {
        return wrong("no such command", command);
    }
    if (argc - optind != words) {
        return wrong("wrong number of arguments", command);
    }
    if (words != 0) {
        if (!parse_user(argv[optind], &job.uid)) {
            return wrong("no such user", argv[optind]);
        }
        if (!number(argv[optind + 1], ANGARA_JOB_VALUES - 1, &value) || value == 0) {
            return wrong("no value of a job key", argv[optind + 1]);
        }
        job.value = value;
    }
    return run(command, &job);
}
