// SPDX-License-Identifier: Apache-2.0
// What a filter with kTrap says of a call that it denies: one line that names the call, and the end
// of the process.
#ifndef ALIBI_BASE_SANDBOX_DENIED_CALL_H_
#define ALIBI_BASE_SANDBOX_DENIED_CALL_H_

namespace alibi::sandbox {

// From now on. "WHO: the sandbox denies the system call N (NAME) ..." on stderr, status 70. The
// string must live as long as the process. A thread that blocks SIGSYS ends
// the process without the line.
void NameDeniedCalls(const char* who);

// On a thread that blocks all signals (base/worker_thread.h): so that it, too, says it.
void UnblockDeniedCalls();

// "?" for a number that the list does not have.
const char* CallName(int number);

}  // namespace alibi::sandbox

#endif  // ALIBI_BASE_SANDBOX_DENIED_CALL_H_
