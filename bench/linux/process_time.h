// SPDX-License-Identifier: Apache-2.0
// How much of a core a measured machine really got.
#ifndef ALIBI_BENCH_LINUX_PROCESS_TIME_H_
#define ALIBI_BENCH_LINUX_PROCESS_TIME_H_

namespace alibi::bench {

// CPU seconds of all processes in the process group so far, with their ended children (proc(5),
// /proc/PID/stat: to a clock tick, mostly 10 ms). 0 if there is no such group.
double GroupCpuSeconds(int group);

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_PROCESS_TIME_H_
