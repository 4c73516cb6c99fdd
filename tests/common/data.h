/* SPDX-License-Identifier: BSD-3-Clause */
/* Random numbers and the bytes of a test's messages: known to each process that knows the key. */
#ifndef ANGARA_TESTS_DATA_H
#define ANGARA_TESTS_DATA_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DATA_GOLDEN 0x9e3779b97f4a7c15ull

/** Close numbers give unrelated ones (the last step of splitmix64). */
static inline uint64_t random_mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

/** The next of the numbers that follow @a *state (splitmix64; Steele, Lea, Flood, OOPSLA 2014). */
static inline uint64_t random_next(uint64_t *state)
{
    return random_mix(*state += DATA_GOLDEN);
}

/** Word @a i of a message: it depends on its place, so that moved and repeated data shows. */
static inline uint64_t data_word(uint64_t key, size_t i)
{
    uint64_t value = random_mix(key + DATA_GOLDEN) + i * DATA_GOLDEN; /* not 0 for key 0 */

    return value ^ value >> 29;
}

/** The byte that a message has at @a at. */
static inline uint8_t data_byte(uint64_t key, size_t at)
{
    uint64_t word = data_word(key, at / sizeof(word));

    return ((const uint8_t *)&word)[at % sizeof(word)];
}

/** Write @a length bytes that depend on @a key and on their place. */
static inline void data_fill(void *data, size_t length, uint64_t key)
{
    uint8_t *bytes = data;
    uint64_t word;
    size_t   i;

    for (i = 0; i < length / sizeof(word); ++i) {
        word = data_word(key, i);
        memcpy(bytes + i * sizeof(word), &word, sizeof(word));
    }
    word = data_word(key, i);
    memcpy(bytes + i * sizeof(word), &word, length % sizeof(word));
}

/**
 * Compared as it was read: what comes too late makes no difference go away.
 *
 * @return where the first byte is that data_fill() writes otherwise; @a length: nowhere.
 */
static inline size_t data_difference(const void *data, size_t length, uint64_t key)
{
    const uint8_t *bytes = data;
    uint64_t       expected, found;
    size_t         at, size, i;

    for (at = 0; at < length; at += size) {
        expected = found = data_word(key, at / sizeof(expected));
        size             = length - at < sizeof(found) ? length - at : sizeof(found);
        memcpy(&found, bytes + at, size);
        __asm__ volatile("" : "+r"(found)); /* not to be read again */
        if (found != expected) {
            for (i = 0; ((uint8_t *)&found)[i] == ((uint8_t *)&expected)[i]; ++i) {
            }
            return at + i;
        }
    }
    return length;
}

#endif
