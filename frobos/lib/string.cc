// SPDX-License-Identifier: Apache-2.0
#include "frobos/lib/string.h"

#include "frobos/lib/types.h"

// GCC would recognise the loops below and compile each function into a call of itself.
#pragma GCC optimize("no-tree-loop-distribute-patterns")

extern "C" {

void* memcpy(void* to, const void* from, size_t n) {
  char* d = static_cast<char*>(to);
  const char* s = static_cast<const char*>(from);
  for (size_t i = 0; i < n; i++) d[i] = s[i];
  return to;
}

void* memmove(void* to, const void* from, size_t n) {
  char* d = static_cast<char*>(to);
  const char* s = static_cast<const char*>(from);
  if (d <= s) return memcpy(to, from, n);
  for (size_t i = n; i > 0; i--) d[i - 1] = s[i - 1];
  return to;
}

void* memset(void* to, int value, size_t n) {
  char* d = static_cast<char*>(to);
  for (size_t i = 0; i < n; i++) d[i] = static_cast<char>(value);
  return to;
}

int memcmp(const void* a, const void* b, size_t n) {
  const unsigned char* x = static_cast<const unsigned char*>(a);
  const unsigned char* y = static_cast<const unsigned char*>(b);
  for (size_t i = 0; i < n; i++) {
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  }
  return 0;
}

size_t strlen(const char* s) {
  size_t n = 0;
  while (s[n] != 0) n++;
  return n;
}

int strncmp(const char* a, const char* b, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    if (a[i] == 0) return 0;
  }
  return 0;
}

int strcmp(const char* a, const char* b) { return strncmp(a, b, ~size_t{0}); }

}  // extern "C"
