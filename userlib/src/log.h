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
 * Has another process of this job on this node said that? Else it is this one's to say from here
 * on, and a descriptor of this process stays with it.
 */
int ang_log_is_said(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What processes would say alike, as they have the same settings: one of a node says it. */
#define ang_log_alike(_level, ...)                                                               \
    do {                                                                                         \
        ang_log_level_t ang_level_ = (_level);                                                   \
        if (__builtin_expect(ang_level_ <= ang_log_level, 0) && !ang_log_is_said(__VA_ARGS__)) { \
            ang_log_print(ang_level_, __VA_ARGS__);                                              \
        }                                                                                        \
    } while (0)

#define ang_error(...) ang_log(ANG_LOG_ERROR, __VA_ARGS__)
#define ang_warn(...)  ang_log(ANG_LOG_WARN, __VA_ARGS__)
#define ang_info(...)  ang_log(ANG_LOG_INFO, __VA_ARGS__)
#define ang_debug(...) ang_log(ANG_LOG_DEBUG, __VA_ARGS__)

#endif
