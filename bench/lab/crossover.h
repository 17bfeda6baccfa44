// SPDX-License-Identifier: Apache-2.0
// From how many kernel entries on translating user code is faster than running it directly: as
// prices predict it, and as it was measured.
#ifndef ALIBI_BENCH_LAB_CROSSOVER_H_
#define ALIBI_BENCH_LAB_CROSSOVER_H_

#include <optional>
#include <vector>

namespace alibi::bench::lab {

// What one program took, entering its kernel at some rate.
struct EntryPoint {
  double rate = 0;  // kernel entries per second that the program runs natively
  // In times of what it took natively.
  double translate = 0, direct = 0;
};

// Translated, a native second of user code takes `slowdown` seconds. Run directly it takes one, and
// one more stop for each kernel entry. What the kernel does costs the same, for it is translated
// under both engines. Entries per native second where both are equal; nothing if translated user
// code is as fast as native: then there is no such rate.
std::optional<double> PredictedCrossover(double slowdown, double stop_seconds);

// How many times native direct execution takes by that reckoning, without the kernel, at a rate of
// stops.
double PredictedDirect(double rate, double stop_seconds);

// Where the measured curves cross, between the two points around it in proportion of the
// logarithms; points in any order. Nothing if they do not, that is, if one engine wins everywhere.
std::optional<double> MeasuredCrossover(std::vector<EntryPoint> points);

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_CROSSOVER_H_
