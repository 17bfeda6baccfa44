// SPDX-License-Identifier: Apache-2.0
// How much of a core and of the host's memory a measured machine really has.
#ifndef ALIBI_BENCH_LINUX_PROCESS_USE_H_
#define ALIBI_BENCH_LINUX_PROCESS_USE_H_

namespace alibi::bench {

// CPU seconds of all processes in the process group so far, with their ended children (proc(5),
// /proc/PID/stat: to a clock tick, mostly 10 ms). 0 if there is no such group.
double GroupCpuSeconds(int group);

// Bytes of memory that all processes in the group have now, each page counted once (their PSS,
// proc(5), /proc/PID/smaps_rollup). Processes that may not be looked at, as root may all, count as
// nothing. 0 if there is no such group.
double GroupMemoryBytes(int group);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_PROCESS_USE_H_
