// SPDX-License-Identifier: Apache-2.0
#include "bench/runner.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "bench/child_process.h"

namespace alibi::bench {
namespace {

using namespace std::chrono_literals;

ChildResult Shell(const std::string& script, std::chrono::milliseconds limit = 20s) {
  return RunChild({"/bin/sh", "-c", script}, limit);
}

std::string Folder() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return folder != nullptr ? folder : "/tmp";
}

std::string Script(const std::string& name, const std::string& body) {
  const std::string path = Folder() + "/" + name;
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  chmod(path.c_str(), 0755);
  return path;
}

TEST_CASE("A child's output, errors and status") {
  const ChildResult child = Shell("echo out; echo first >&2; echo last >&2; exit 3");
  CHECK(child.output == "out\n");
  CHECK(child.exit_status == 3);
  CHECK(child.Describe() == "exit status 3: last");
}

TEST_CASE("A child reads nothing and may write much") {
  CHECK(Shell("cat; yes | head -c 300000").output.size() == 300000);
}

TEST_CASE("A crash is told by its signal") {
  const ChildResult child = Shell("kill -SEGV $$");
  CHECK(child.signal == 11);
  CHECK_THAT(child.Describe(), Catch::StartsWith("killed by signal 11"));
}

TEST_CASE("A hanging child is killed with its own children") {
  const auto begin = std::chrono::steady_clock::now();
  const ChildResult child = Shell("echo begun; sleep 100 & sleep 100", 300ms);
  CHECK(child.timed_out);
  CHECK(child.output == "begun\n");
  CHECK_THAT(child.Describe(), Catch::StartsWith("no end within 0 s"));
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
}

TEST_CASE("A child that closed its output but goes on is killed, too") {
  CHECK(Shell("exec >&- 2>&-; sleep 100", 300ms).timed_out);
}

TEST_CASE("A missing program is an error, not a child") {
  const ChildResult child = RunChild({"/no/such/program"}, 1s);
  CHECK_FALSE(child.started);
  CHECK_THAT(child.Describe(), Catch::Contains("/no/such/program"));
  CHECK(FindProgram("no-such-program-here").empty());
  CHECK_FALSE(FindProgram("sh").empty());
}

TEST_CASE("A missing image says how to get it") {
  auto programs = FindPrograms("/no/such/folder", "alibi");
  REQUIRE_FALSE(programs.ok());
  CHECK_THAT(programs.error().message,
             Catch::Contains("/no/such/folder/frobos/bench/nanobench.elf: missing") &&
                 Catch::Contains("./alibi bench"));
}

// Systems made of shell scripts: all that the runner does but the measuring.
Programs Scripts(const std::string& alibi_body) {
  const std::string line = R"(echo '{"name":"syscall","samples":[100,102]}'; )";
  Programs programs;
  programs.native_nanobench = Script("native", line + "echo '{\"done\":true}'");
  programs.native_compute = programs.native_compute32 = programs.native_nanobench;
  programs.alibi = Script("alibi", alibi_body);
  programs.qemu = Script("qemu", line + "echo '{\"done\":true}'; exit 1");
  programs.nanobench_image = programs.compute_image = programs.compute32_image = "image";
  return programs;
}

RunnerOptions TwoRounds() {
  RunnerOptions options;
  options.policies = {"never", "always"};
  options.repeats = 2;
  options.only = {"syscall"};
  return options;
}

TEST_CASE("Rounds pool their samples, per system and policy") {
  const Programs programs = Scripts(R"(
    for last; do :; done
    echo '{"runtime":{"translations":1,"translated_instructions":10,"translated_guest_bytes":30,
          "emitted_bytes":90,"translation_cycles":5000}}' > "$last"
    echo '{"name":"syscall","samples":[50]}'; echo '{"done":true}'; exit 1)");
  const RunReport report = RunAll(programs, TwoRounds());
  CHECK(report.rounds == 2);
  CHECK(report.results.Misses().empty());
  CHECK(report.results.Samples("syscall", {kNative, ""}).size() == 4);
  CHECK(report.results.Samples("syscall", {kAlibi, "never"}).size() == 2);
  CHECK(report.results.Samples("syscall", {kAlibi, "always"}).size() == 2);
  CHECK(report.results.Of("syscall", {kQemuTcg, ""}).median == 101);
  CHECK(report.results.Of("translation", {kAlibi, "always"}).median == 500);
  CHECK(report.results.Translation({kAlibi, "never"}).guest_bytes == 60);
}

TEST_CASE("Event logs: a file for each run of Alibi, named after it") {
  const std::string said = Folder() + "/arguments";
  RunnerOptions options = TwoRounds();
  options.policies = {"never", "./my.so(2)"};
  options.logs = {Folder(), "1M"};
  (void)RunAll(Scripts("echo \"$*\" >> " + said + "; echo '{\"done\":true}'; exit 1"), options);
  std::ifstream file(said);
  for (const char* name : {"nanobench-never-1", "nanobench-._my.so(2)-1", "nanobench-never-2",
                           "nanobench-._my.so(2)-2"}) {
    std::string line;
    REQUIRE(std::getline(file, line));
    CHECK_THAT(line, Catch::EndsWith("--log " + Folder() + "/" + name + ".log --log-size 1M"));
  }
}

TEST_CASE("A crash keeps what was measured, is reported once, and the others go on") {
  const Programs programs =
      Scripts("echo '{\"name\":\"syscall\",\"samples\":[50]}'; echo broken >&2; kill -SEGV $$");
  const RunReport report = RunAll(programs, TwoRounds());
  CHECK(report.results.Samples("syscall", {kAlibi, "never"}).size() == 1);
  CHECK(report.results.Samples("syscall", {kQemuTcg, ""}).size() == 4);
  REQUIRE(report.results.Misses().size() == 2);
  CHECK_THAT(report.results.Misses()[0].second,
             Catch::StartsWith("nanobench after syscall: killed by signal 11"));
  CHECK(report.results.Failed(kAlibi));
}

TEST_CASE("The hardware engine is one more system; computing is left out where KVM emulates") {
  const std::string said = Folder() + "/engines";
  RunnerOptions options = TwoRounds();
  options.policies = {};
  options.hardware = true;
  options.only = {"callret", "compute_fib"};
  const RunReport report = RunAll(
      Scripts("echo \"$*\" >> " + said +
              R"(; echo '{"name":"callret","samples":[3000]}'; echo '{"done":true}'; exit 1)"),
      options);
  CHECK(report.results.Samples("callret", {kHardware, ""}).size() == 2);
  CHECK(report.results.Failed(kHardware));
  CHECK_FALSE(report.results.Failed(kAlibi));
  std::ifstream file(said);
  unsigned runs = 0;
  for (std::string line; std::getline(file, line); ++runs) {
    CHECK_THAT(line, Catch::Contains("--engine hardware") && Catch::Contains("only=callret"));
  }
  CHECK(runs == 2);
}

TEST_CASE("An image that stops in the middle is a miss") {
  const RunReport report = RunAll(Scripts("exit 1"), TwoRounds());
  REQUIRE(report.results.Misses().size() == 2);
  CHECK(report.results.Misses()[0].second == "nanobench: its output is incomplete");
}

TEST_CASE("The time limit holds whatever a system does") {
  RunnerOptions options = TwoRounds();
  options.total_limit = 1s;
  options.run_limit = 500ms;
  const auto begin = std::chrono::steady_clock::now();
  const RunReport report = RunAll(Scripts("sleep 100"), options);
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
  CHECK(report.results.Misses().size() >= 2);
}

TEST_CASE("Only what was asked for runs: no compute program without a compute_ name") {
  RunnerOptions options = TwoRounds();
  std::vector<std::string> said;
  options.progress = [&said](const std::string& what) { said.push_back(what); };
  options.only = {"compute_sort"};
  (void)RunAll(Scripts("exit 1"), options);
  for (const std::string& what : said) CHECK_THAT(what, Catch::EndsWith("compute"));
  CHECK_FALSE(said.empty());
  said.clear();
  options.only = {"compute32_sort"};
  (void)RunAll(Scripts("exit 1"), options);
  for (const std::string& what : said) CHECK_THAT(what, Catch::EndsWith("compute32"));
  CHECK_FALSE(said.empty());
}

}  // namespace
}  // namespace alibi::bench
