// SPDX-License-Identifier: Apache-2.0
// What the compiler may call by itself.

// Or it would make these functions of calls of themselves.
#pragma GCC optimize("no-tree-loop-distribute-patterns")

extern "C" {
void* memcpy(void* to, const void* from, __SIZE_TYPE__ n) {
  char* d = static_cast<char*>(to);
  const char* s = static_cast<const char*>(from);
  for (__SIZE_TYPE__ i = 0; i < n; i++) d[i] = s[i];
  return to;
}
void* memset(void* to, int value, __SIZE_TYPE__ n) {
  char* d = static_cast<char*>(to);
  for (__SIZE_TYPE__ i = 0; i < n; i++) d[i] = static_cast<char>(value);
  return to;
}
}
