// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include "bench/child_process.h"
#include "bench/lab/reproduce/measure.h"
#include "bench/results.h"
#include "bench/runner.h"

namespace alibi::bench::lab {

using namespace std::chrono_literals;

Result<Figures> MeasureVmi(const MeasureOptions& options) {
  const std::string image = options.data_folder + "/frobos/bench/vmibench.elf";
  if (access(image.c_str(), R_OK) != 0) return Error{image + ": missing"};
  Figures figures;
  const std::string words = options.quick ? "quick=yes samples=5" : "samples=5";
  struct Variant {
    const char* name;
    const char* option;
  };
  constexpr Variant kVariants[] = {
      {"unmodified", ""}, {"transparent", "--vmi=transparent"}, {"paravirtual", "--vmi=full"}};
  Results results;
  for (unsigned round = 0; round < (options.quick ? 2u : 5u); ++round) {
    for (const Variant& variant : kVariants) {
      if (options.progress) options.progress(fmt::format("VMI, {}", variant.name));
      auto argv = AlibiImageCommand(options.alibi, image, options.policy, words);
      if (*variant.option != '\0') argv.emplace_back(variant.option);
      const ChildResult child = RunChild(argv, 1min);
      const ProgramOutput output = ParseProgramOutput(child.output);
      const SystemId system = {kAlibi, variant.name};
      for (const Measurement& m : output.measurements) results.Add(system, "", m);
      if (child.exit_status != kGuestSuccess || !output.done) {
        figures.failures.push_back(fmt::format("vmibench, {}: {}", variant.name, child.Describe()));
      }
    }
  }
  for (const std::string& name : results.Benchmarks()) {
    for (const Variant& variant : kVariants) {
      const SystemId system = {kAlibi, variant.name};
      if (results.Samples(name, system).empty()) continue;
      figures.Set(fmt::format("vmi.{}.{}", name, variant.name), results.Of(name, system).median);
    }
  }
  return figures;
}

}  // namespace alibi::bench::lab
