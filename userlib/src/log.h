/* SPDX-License-Identifier: BSD-3-Clause */
/* Log of the library: one line on stderr an event, filtered by ANGARA_LOG_LEVEL. */
#ifndef ANG_LOG_H
#define ANG_LOG_H

typedef enum { ANG_LOG_ERROR, ANG_LOG_WARN, ANG_LOG_INFO, ANG_LOG_DEBUG } ang_log_level_t;

/* Set once by the configuration, before any other thread exists. */
extern ang_log_level_t ang_log_level;

/* Read which rank this process is, for its lines: with the configuration, as program threads may
 * change the environment later. */
void ang_log_start(void);

void ang_log_print(ang_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define ang_log(_level, ...)                                    \
    do {                                                        \
        ang_log_level_t ang_level_ = (_level);                  \
        if (__builtin_expect(ang_level_ <= ang_log_level, 0)) { \
            ang_log_print(ang_level_, __VA_ARGS__);             \
        }                                                       \
    } while (0)

/*
 * What all processes of a node would say alike, as they have the same settings: the same text comes
 * from one of those of a job. For few lines: each takes a descriptor of the process that says it.
 */
void ang_log_print_alike(ang_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define ang_log_alike(_level, ...)                              \
    do {                                                        \
        ang_log_level_t ang_level_ = (_level);                  \
        if (__builtin_expect(ang_level_ <= ang_log_level, 0)) { \
            ang_log_print_alike(ang_level_, __VA_ARGS__);       \
        }                                                       \
    } while (0)

#define ang_error(...) ang_log(ANG_LOG_ERROR, __VA_ARGS__)
#define ang_warn(...)  ang_log(ANG_LOG_WARN, __VA_ARGS__)
#define ang_info(...)  ang_log(ANG_LOG_INFO, __VA_ARGS__)
#define ang_debug(...) ang_log(ANG_LOG_DEBUG, __VA_ARGS__)

#endif
