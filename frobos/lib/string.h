// SPDX-License-Identifier: Apache-2.0
// The functions the compiler may call by itself, and their friends.
#ifndef ALIBI_FROBOS_LIB_STRING_H_
#define ALIBI_FROBOS_LIB_STRING_H_

#include <cstddef>

extern "C" {
void* memcpy(void* to, const void* from, size_t n);
void* memmove(void* to, const void* from, size_t n);
void* memset(void* to, int value, size_t n);
int memcmp(const void* a, const void* b, size_t n);
size_t strlen(const char* s);
int strcmp(const char* a, const char* b);
int strncmp(const char* a, const char* b, size_t n);
}

#endif  // ALIBI_FROBOS_LIB_STRING_H_
