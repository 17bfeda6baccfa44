// SPDX-License-Identifier: Apache-2.0
// Where threads of another process spend their CPU time: samples of the host's performance events,
// by the kind of code that ran. Where the host does not permit that, there are none.
#ifndef ALIBI_BENCH_LAB_NETTEST_SAMPLER_H_
#define ALIBI_BENCH_LAB_NETTEST_SAMPLER_H_

enum SampleKind {
  kTranslated,  // code that the process has made itself: a guest's
  kProgram,     // the program's own
  kLibraries,
  kKernel,  // the host's
  kSampleKinds,
};

// One thread's samples from now on; NULL: not permitted.
struct Sampler;
struct Sampler* StartSampler(int thread);
// Counts the samples by kind, as the memory map of `process` says, and ends the sampler.
void EndSampler(struct Sampler* sampler, int process, unsigned long counts[kSampleKinds]);

#endif  // ALIBI_BENCH_LAB_NETTEST_SAMPLER_H_
