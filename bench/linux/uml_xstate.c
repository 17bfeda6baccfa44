/* SPDX-License-Identifier: Apache-2.0 */
// Preloaded into User-Mode Linux (linux.uml) of Debian 12, which gives its processes a register
// state of up to 2,696 bytes with PTRACE_SETREGSET. On a host whose state is larger, because it has
// AMX, that fails, and with it the first process; the rest is taken from what the process has.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

long ptrace(enum __ptrace_request request, ...) {
  va_list arguments;
  va_start(arguments, request);
  const int process = va_arg(arguments, int);
  void* const address = va_arg(arguments, void*);
  void* data = va_arg(arguments, void*);
  va_end(arguments);
  long (*next)(enum __ptrace_request, ...);
  *(void**)&next = dlsym(RTLD_NEXT, "ptrace");

  static char state[1 << 16];
  struct iovec whole = {state, sizeof(state)};
  if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE &&
      next(PTRACE_GETREGSET, process, address, &whole) == 0) {
    const struct iovec* given = data;
    if (given->iov_len < whole.iov_len) {
      memcpy(state, given->iov_base, given->iov_len);
      data = &whole;
    }
  }
  return next(request, process, address, data);
}
