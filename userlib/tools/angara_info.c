/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * angara_info: what devices there are and what they can do, what is missing on this machine and how
 * to get it, and the configuration variables. Options and printing, as text or JSON.
 */
#include "info.h"
#include "usage.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *info_name = "angara_info";

static const struct {
    uint32_t    bit;
    const char *name;
    const char *help;
} caps[] = {
    {ANGARA_CAP_LOOPBACK, "loopback", "gets from the own node are performed by the NIC"},
    {ANGARA_CAP_WINDOW_DIRECT, "window-direct", "windows are written by plain stores"},
    {ANGARA_CAP_INLINE_OPS, "inline-ops", "ring operations may complete within the call"},
    {ANGARA_CAP_REG_CHEAP, "reg-cheap", "registration needs no cache"},
    {ANGARA_CAP_CHAOS, "chaos", "chaos mode is on: for tests"},
    {ANGARA_CAP_NODE_PEERS, "node-peers", "other PEs of the own node can be reached"},
    {ANGARA_CAP_GPU_MEMORY, "gpu-memory", "regions may be memory of a GPU"},
};

#define NUM_CAPS (sizeof(caps) / sizeof(caps[0]))

/* A device that was opened to look at it. */
typedef struct {
    angara_status_t  status;
    angara_attr_t    attr;
    angara_address_t address; /* of a PE made for the purpose */
    size_t           window;
    int              has_pe;
} device_t;

static void device_query(const char *name, device_t *device)
{
    angara_domain_h dom;
    angara_pe_h     pe;

    memset(device, 0, sizeof(*device));
    device->status = angara_open(name, &dom);
    if (device->status != ANGARA_OK) {
        return;
    }
    device->status = angara_query(dom, &device->attr);
    if ((device->status == ANGARA_OK) && (angara_pe_create(dom, NULL, &pe) == ANGARA_OK)) {
        device->has_pe = 1;
        angara_pe_address(pe, &device->address);
        angara_pe_window(pe, &device->window);
        angara_pe_destroy(pe);
    }
    angara_close(dom);
}

/* The soft fabric has no link that could be down; of a NIC the driver tells. */
static const char *device_link(const device_t *device)
{
    char        path[128], text[16] = "";
    const char *link = "unknown";
    FILE       *file;

    if (strcmp(device->attr.provider, "soft") == 0) {
        return "up";
    }
    snprintf(path, sizeof(path), "/sys/class/angara/%s/link", device->attr.device);
    file = fopen(path, "r");
    if (file != NULL) {
        if (fgets(text, sizeof(text), file) != NULL) {
            link = (strncmp(text, "up", 2) == 0) ? "up" : "down";
        }
        fclose(file);
    }
    return link;
}

/* ---- text ---------------------------------------------------------------------------------- */

static void print_device(const device_t *device)
{
    const angara_attr_t *attr = &device->attr;
    unsigned             i;

    printf("Device %s (provider %s)\n", attr->device, attr->provider);
    printf("  %-24s %u\n", "node", attr->node);
    printf("  %-24s %s\n", "link", device_link(device));
    if (device->has_pe) {
        printf("  %-24s %zu bytes, at most %zu\n", "put window", device->window, attr->window_max);
    } else {
        printf("  %-24s none can be created, see above\n", "PE");
    }
    printf("  %-24s %zu bytes\n", "largest window put", attr->put_max);
    printf("  %-24s %zu bytes\n", "largest offload", attr->offload_max);
    printf("  %-24s %zu bytes\n", "largest inline put", attr->inline_max);
    printf("  %-24s %zu\n", "regions of a domain", attr->mr_max);
    printf("  %-24s %u\n", "marker slots of a PE", attr->marker_slots);
    for (i = 0; i < NUM_CAPS; ++i) {
        printf("  %-24s %s (%s)\n", caps[i].name, ((attr->caps & caps[i].bit) != 0) ? "yes" : "no",
               caps[i].help);
    }
}

static void print_checks(const info_check_t *checks, unsigned count)
{
    unsigned i;

    printf("\nThis machine\n");
    for (i = 0; i < count; ++i) {
        printf("  %-8s %s: %s\n", info_state_name(checks[i].state), checks[i].name,
               checks[i].value);
        if (checks[i].fix[0] != '\0') {
            printf("  %-8s -> %s\n", "", checks[i].fix);
        }
    }
}

static void print_env(const info_env_t *env)
{
    printf("%-33s %-24s %-28s %s\n", "VARIABLE", "VALUE", "ORIGIN", "DEFAULT");
    for (unsigned i = 0; i < env->count; ++i) {
        const info_env_var_t *var = &env->vars[i];

        printf("%-33s %-24s %-28s %s\n", var->name, var->value[0] != '\0' ? var->value : "-",
               var->origin, var->default_text[0] != '\0' ? var->default_text : "-");
    }
    if (env->lacks[0] != '\0') {
        printf("(%s)\n", env->lacks);
    }
}

static void print_config(void)
{
    angara_config_var_t var;
    unsigned            i;

    for (i = 0; angara_config_var(i, &var) == ANGARA_OK; ++i) {
        printf("%s=%s\n    default %s. %s\n", var.name, var.value, var.default_text, var.help);
    }
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static json_t *json_caps(const angara_attr_t *attr)
{
    json_t  *list = json_object();
    unsigned i;

    for (i = 0; i < NUM_CAPS; ++i) {
        json_object_set_new(list, caps[i].name, json_boolean((attr->caps & caps[i].bit) != 0));
    }
    return list;
}

static json_t *json_device(const device_t *device)
{
    const angara_attr_t *attr = &device->attr;

    return json_pack("{s:s, s:s, s:I, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "device",
                     attr->device, "provider", attr->provider, "node", (json_int_t)attr->node,
                     "link", device_link(device), "capabilities", json_caps(attr), "window",
                     (json_int_t)device->window, "window_max", (json_int_t)attr->window_max,
                     "put_max", (json_int_t)attr->put_max, "offload_max",
                     (json_int_t)attr->offload_max, "inline_max", (json_int_t)attr->inline_max,
                     "mr_max", (json_int_t)attr->mr_max, "marker_slots",
                     (json_int_t)attr->marker_slots, "pe_created", device->has_pe);
}

static json_t *json_checks(const info_check_t *checks, unsigned count)
{
    json_t  *list = json_array();
    unsigned i;

    for (i = 0; i < count; ++i) {
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", checks[i].name,
                                              "state", info_state_name(checks[i].state), "value",
                                              checks[i].value, "fix", checks[i].fix));
    }
    return list;
}

static json_t *json_config(void)
{
    json_t             *list = json_array();
    angara_config_var_t var;
    unsigned            i;

    for (i = 0; angara_config_var(i, &var) == ANGARA_OK; ++i) {
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:s}", "name", var.name, "default",
                                        var.default_text, "value", var.value, "help", var.help));
    }
    return list;
}

static json_t *json_env(const info_env_t *env)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < env->count; ++i) {
        const info_env_var_t *var = &env->vars[i];

        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", var->name, "value",
                                              var->value, "origin", var->origin, "default",
                                              var->default_text));
    }
    return list;
}

static void print_json(json_t *root)
{
    json_dumpf(root, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(root);
}

/* ---- program ------------------------------------------------------------------------------- */

static void usage(FILE *out)
{
    fprintf(
        out,
        "Usage: %s [OPTION]...\n"
        "Show Angara devices, what they can do, and what is missing on this machine.\n\n"
        "  -d, --device=NAME   look at this device (default: ANGARA_DEVICE)\n"
        "  -c, --config        list the configuration variables instead\n"
        "  -e, --env           list the variables of library, transport and Open MPI component\n"
        "                      instead: value, origin, default\n"
        "  -j, --json          as JSON\n"
        "  -V, --version       version of the library\n"
        "  -h, --help          this text\n\n"
        "Exit status: 0, 1 if no device can be used, 2 for wrong usage.\n",
        info_name);
}

static int show_config(int json)
{
    if (json) {
        print_json(
            json_pack("{s:s, s:o}", "version", angara_version(), "variables", json_config()));
    } else {
        print_config();
    }
    return EXIT_SUCCESS;
}

static int show_env(int json)
{
    static info_env_t env; /* large */

    info_env(&env);
    if (json) {
        print_json(json_pack("{s:s, s:o, s:s}", "version", angara_version(), "variables",
                             json_env(&env), "lacks", env.lacks));
    } else {
        print_env(&env);
    }
    return EXIT_SUCCESS;
}

static int show_all(const char *name, int json)
{
    info_check_t checks[INFO_CHECKS_MAX];
    device_t     device;
    unsigned     count;
    json_t      *devices;

    device_query(name, &device);
    count = info_checks(checks);
    if (json) {
        devices = json_array();
        if (device.status == ANGARA_OK) {
            json_array_append_new(devices, json_device(&device));
        }
        print_json(json_pack("{s:s, s:o, s:o, s:o}", "version", angara_version(), "devices",
                             devices, "checks", json_checks(checks, count), "variables",
                             json_config()));
    } else {
        printf("libangara %s\n\n", angara_version());
        if (device.status == ANGARA_OK) {
            print_device(&device);
        } else {
            printf("No device: %s\n", angara_strerror(device.status));
        }
        print_checks(checks, count);
    }
    return device.has_pe ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"device", required_argument, NULL, 'd'},
        {"config", no_argument, NULL, 'c'},
        {"env", no_argument, NULL, 'e'},
        {"json", no_argument, NULL, 'j'},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *device = NULL;
    int         json = 0, config = 0, env = 0, c;

    while ((c = getopt_long(argc, argv, "d:cejVh", options, NULL)) != -1) {
        switch (c) {
        case 'd':
            device = optarg;
            break;
        case 'c':
            config = 1;
            break;
        case 'e':
            env = 1;
            break;
        case 'j':
            json = 1;
            break;
        case 'V':
            printf("%s %s\n", info_name, angara_version());
            return EXIT_SUCCESS;
        case 'h':
            usage(stdout);
            return EXIT_SUCCESS;
        default:
            fprintf(stderr, "Try '%s --help'.\n", info_name);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        usage_error(info_name, "unexpected argument '%s'", argv[optind]);
    }
    return env ? show_env(json) : config ? show_config(json) : show_all(device, json);
}
