// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/experiment.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "bench/lab/matrix.h"
#include "bench/lab/tidy.h"
#include "testsuite/golden.h"

namespace alibi::bench::lab {
namespace {

constexpr const char* kHead = "title = \"T\"\n";
constexpr const char* kWorkload = "[[workload]]\nprogram = \"nanobench\"\n";

// A document around `lines`, which begin on line 2.
std::string MessageFor(const std::string& lines, const std::string& workload = kWorkload) {
  const auto parsed = ParseExperiment(kHead + lines + "\n" + workload, "x.toml");
  return parsed.ok() ? "" : parsed.error().message;
}

TEST_CASE("An experiment file has defaults for all but its title and its workloads") {
  const auto parsed = ParseExperiment(std::string(kHead) + kWorkload, "x.toml");
  REQUIRE(parsed.ok());
  const Experiment& e = parsed.value();
  CHECK(e.title == "T");
  CHECK(e.policies == std::vector<std::string>{"hysteresis"});
  CHECK(e.repeats == 3);
  CHECK(e.observe);
  REQUIRE(e.workloads.size() == 1);
  CHECK(e.workloads[0].name == "nanobench");
  CHECK(e.workloads[0].only.empty());
}

TEST_CASE("Every key is read") {
  const auto parsed = ParseExperiment(R"toml(
title = "All"
question = "Why?"
policies = ["never", "threshold(4)"]
peers = ["native", "qemu-tcg"]
repeats = 7
order = "shuffled"
seed = 42
time-limit = 90
quick = true
observe = false
cpu-time = true
[parameters]
coherence = ["eager", "dropped"]
engine = ["direct", "hardware"]
ram = "256M"
[[workload]]
program = "linux"
name = "processes"
only = ["forkwait", "entries/300"]
[[workload]]
program = "boot"
kernel = "686-pae"
)toml",
                                      "x.toml");
  INFO((parsed.ok() ? "" : parsed.error().message));
  REQUIRE(parsed.ok());
  const Experiment& e = parsed.value();
  CHECK(e.question == "Why?");
  CHECK(e.policies == std::vector<std::string>{"never", "threshold(4)"});
  CHECK(e.peers == std::vector<std::string>{"native", "qemu-tcg"});
  CHECK(e.repeats == 7);
  CHECK(e.order == Order::kShuffled);
  CHECK(e.seed == 42);
  CHECK(e.time_limit == std::chrono::seconds(90));
  CHECK(e.quick);
  CHECK_FALSE(e.observe);
  CHECK(e.cpu_time);
  REQUIRE(e.parameters.size() == 3);
  CHECK(e.parameters[0].name == "coherence");
  CHECK(e.parameters[1].values == std::vector<std::string>{"direct", "hardware"});
  CHECK(e.parameters[2].values == std::vector<std::string>{"256M"});
  REQUIRE(e.workloads.size() == 2);
  CHECK(e.workloads[0].name == "processes");
  CHECK(e.workloads[0].kernel == "cloud-amd64");
  CHECK(e.workloads[0].only == std::vector<std::string>{"forkwait", "entries/300"});
  CHECK(e.workloads[1].program == Program::kBoot);
  CHECK(e.workloads[1].kernel == "686-pae");
}

TEST_CASE("What is wrong with a file is said on one line, with its place and what is known") {
  struct Row {
    const char* lines;
    const char* message;  // what it begins with
  };
  const Row rows[] = {
      {"polices = [\"never\"]", "x.toml:2: unknown key 'polices'; there are title, question, poli"},
      {"\nrepeats = 0", "x.toml:3: repeats is a number from 1 to 1000"},
      {"repeats = \"3\"", "x.toml:2: repeats is a number from 1 to 1000"},
      {"seed = -1", "x.toml:2: seed is a number from 0 to"},
      {"time-limit = 1.5", "x.toml:2: time-limit is a number from 1 to 86400"},
      {"quick = 1", "x.toml:2: quick is true or false"},
      {"question = 1", "x.toml:2: question is a text in quotes"},
      {"order = \"random\"", "x.toml:2: order: there is no 'random'; there are interleaved, shuf"},
      {"order = [\"shuffled\", \"interleaved\"]", "x.toml:2: order is one of interleaved, shuffle"},
      {"policies = [\"sometimes\"]", "x.toml:2: policies: "},
      {"policies = [\"never\", \"never\"]", "x.toml:2: policies: 'never' is there twice"},
      {"policies = [3]", "x.toml:2: policies is a list of texts in quotes"},
      {"policies = []", "x.toml:1: no policies and no peers"},
      {"peers = [\"xen\"]", "x.toml:2: peers: there is no 'xen'; there are native, qemu-tcg, uml"},
      {"parameters = 3", "x.toml:2: parameters is a table"},
      {"[parameters]\nspeed = [\"1\"]", "x.toml:3: unknown key 'speed' of [parameters]; there are"},
      {"[parameters]\nram = []", "x.toml:3: ram has no values"},
      {"[parameters]\nram = [\"big\"]", "x.toml:3: ram: 'big' is no size; write one like 64K"},
      {"[parameters]\ncoherence = \"lazy\"", "x.toml:3: coherence: there is no 'lazy'; there are"},
      {"[parameters]\nengine = \"diesel\"",
       "x.toml:3: engine: there is no 'diesel'; there are tran"},
      {"[parameters]\nengine = \"hardware\"", "x.toml:1: engine hardware keeps no event log"},
      {"repeats = ", "x.toml:2: not TOML: "},
      {"title = \"again\"", "x.toml:2: not TOML: "},
  };
  for (const Row& row : rows) {
    INFO(row.lines);
    const std::string message = MessageFor(row.lines);
    CHECK_THAT(message, Catch::StartsWith(row.message));
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("What is wrong with a workload is said as well") {
  struct Row {
    const char* workload;  // begins on line 3
    const char* message;
  };
  const Row rows[] = {
      {"", "x.toml:1: no [[workload]] with program = one of nanobench, compute, compute32, linux"},
      {"workload = 3", "x.toml:3: a workload begins with a line [[workload]]"},
      {"workload = [3]", "x.toml:3: a workload begins with a line [[workload]]"},
      {"[workload]\nprogram = \"boot\"", "x.toml:3: a workload begins with a line [[workload]]"},
      {"[[workload]]", "x.toml:3: a workload has program = one of nanobench"},
      {"[[workload]]\nprogram = \"specint\"", "x.toml:4: program: there is no 'specint'; there ar"},
      {"[[workload]]\nprogram = \"nanobench\"\nonly = [\"sort\"]",
       "x.toml:5: only: there is no 'sort'; there are syscall, in, in_dev"},
      {"[[workload]]\nprogram = \"compute\"\nonly = [\"syscall\"]",
       "x.toml:5: only: there is no 'syscall'; there are isprime, sort"},
      {"[[workload]]\nprogram = \"debian\"\nonly = [\"getppid\"]",
       "x.toml:5: only: there is no 'getppid'; there are true, python-start"},
      {"[[workload]]\nprogram = \"debian\"\nkernel = \"amd64\"",
       "x.toml:5: there is a whole Debian with these kernels: cloud-amd64, 686"},
      {"[[workload]]\nprogram = \"boot\"\nonly = [\"init\"]",
       "x.toml:5: boot has no benchmarks to choose from"},
      {"[[workload]]\nprogram = \"compute\"\nkernel = \"686\"",
       "x.toml:5: compute has no kernel to choose"},
      {"[[workload]]\nprogram = \"boot\"\nkernel = \"arm64\"",
       "x.toml:5: kernel: there is no 'arm64'; there are cloud-amd64, amd64, 686, 686-pae"},
      {"[[workload]]\nprogram = \"linux\"\nkernel = \"686\"",
       "x.toml:5: linux runs a 64-bit program, which 686 cannot"},
      {"[[workload]]\nprogram = \"boot\"\nname = \"a b\"", "x.toml:3: 'a b' is no name"},
      {"[[workload]]\nprogram = \"boot\"\nruns = 3",
       "x.toml:5: unknown key 'runs' of a workload; there are program, name, only, kernel"},
      {"[[workload]]\nprogram = \"boot\"\n[[workload]]\nprogram = \"boot\"",
       "x.toml:5: two workloads are called 'boot'"},
      {"[[workload]]\nprogram = \"network\"\nbackend = \"vde\"",
       "x.toml:5: backend: there is no 'vde'; there are user, tap, socket"},
      {"[[workload]]\nprogram = \"transmit\"\nbackend = \"tap\"", "x.toml:5: transmit has no wire"},
  };
  for (const Row& row : rows) {
    INFO(row.workload);
    CHECK_THAT(MessageFor("", row.workload), Catch::StartsWith(row.message));
  }
}

Experiment TwoByTwo() {
  Experiment e;
  e.workloads = {{"nano", Program::kNanobench, {}, ""}, {"boot", Program::kBoot, {}, "686"}};
  e.policies = {"never", "hysteresis(2,256)"};
  e.peers = {kNative, kQemuTcg};
  e.parameters = {{"coherence", {"eager", "dropped"}}, {"ram", {"64M"}}};
  e.repeats = 2;
  return e;
}

std::string Ids(const std::vector<RunSpec>& runs) {
  std::string text;
  for (const RunSpec& run : runs) text += run.id + "\n";
  return text;
}

TEST_CASE("The matrix is every combination, round after round; peers have no parameters") {
  const std::vector<RunSpec> runs = Matrix(TwoByTwo());
  // nano: 2 peers and 4 configurations; boot: not natively. Twice, and the observed runs.
  REQUIRE(runs.size() == 2 * (6 + 5) + 8);
  CHECK(runs[0].id == "001-nano-native-1");
  CHECK(runs[0].parameters.empty());
  CHECK(runs[2].id == "003-nano-alibi-never-eager-64M-1");
  CHECK(runs[3].id == "004-nano-alibi-never-dropped-64M-1");
  CHECK(runs[4].id == "005-nano-alibi-hysteresis_2_256_-eager-64M-1");
  CHECK(runs[4].system.policy == "hysteresis(2,256)");
  CHECK(runs[4].parameters == std::vector<Setting>{{"coherence", "eager"}, {"ram", "64M"}});
  CHECK(runs[6].id == "007-boot-qemu-tcg-1");
  CHECK(runs[11].id == "012-nano-native-2");
  CHECK(runs[22].id == "023-nano-alibi-never-eager-64M-observed");
  CHECK(runs[22].repeat == kObserved);
  std::set<std::string> ids;
  for (const RunSpec& run : runs) ids.insert(run.id);
  CHECK(ids.size() == runs.size());
}

TEST_CASE("Shuffling keeps rounds together, and a seed's order") {
  Experiment e = TwoByTwo();
  const std::vector<RunSpec> plain = Matrix(e);
  e.order = Order::kShuffled;
  e.seed = 7;
  const std::vector<RunSpec> shuffled = Matrix(e);
  CHECK(Ids(shuffled) == Ids(Matrix(e)));
  CHECK(Ids(shuffled) != Ids(plain));
  e.seed = 8;
  CHECK(Ids(shuffled) != Ids(Matrix(e)));
  for (std::size_t i = 0; i < 11; ++i) {
    CHECK(shuffled[i].repeat == 1);
    CHECK(shuffled[11 + i].repeat == 2);
  }
  std::multiset<std::string> a, b;
  for (const RunSpec& run : plain) a.insert(run.id);
  for (const RunSpec& run : shuffled) b.insert(run.id);
  CHECK(a == b);
}

std::vector<TidyRow> Rows() {
  return {
      {"001-nano-native-1", "nano", {kNative, ""}, {}, 1, {"syscall", 283.25, "cycles"}},
      {"002-nano-alibi",
       "nano",
       {kAlibi, "hysteresis(2,256)"},
       {{"coherence", "eager"}},
       1,
       {"syscall", 74.1, "cycles"}},
      {"002-nano-alibi",
       "nano",
       {kAlibi, "hysteresis(2,256)"},
       {{"coherence", "eager"}},
       1,
       {"runtime.translations", 1e16, "count"}},
      {"003-x",
       "say \"x\"",
       {kAlibi, "never"},
       {{"coherence", "dropped"}},
       0,
       {"getppid", 1.26e-07, "s/call"}},
  };
}

TEST_CASE("User-Mode Linux runs what has 64 bits, and networks behind TAP") {
  Experiment e = TwoByTwo();
  e.workloads.push_back({"programs", Program::kLinux, {}, "cloud-amd64"});
  e.workloads.push_back({"debian", Program::kDebian, {}, "cloud-amd64"});
  e.workloads.push_back({"debian32", Program::kDebian, {}, "686"});
  e.workloads.push_back({"slirp", Program::kNetwork, {}, "amd64", "virtio", "user"});
  e.workloads.push_back({"tap", Program::kNetwork, {}, "amd64", "virtio", "tap"});
  e.workloads.push_back({"wire", Program::kNetwork, {}, "amd64", "virtio", "tap", "100M"});
  e.peers = {kUml};
  e.repeats = 1;
  std::string names;
  for (const RunSpec& run : Matrix(e)) {
    if (run.system.system != kUml) continue;
    CHECK(run.parameters.empty());
    names += run.workload.name + " ";
  }
  CHECK(names == "programs debian tap ");
}

TEST_CASE("VMI's workloads are machines' only, by each value of vmi") {
  const auto parsed = ParseExperiment(R"toml(
title = "VMI"
peers = ["native", "qemu-tcg", "uml"]
repeats = 1
observe = false
parameters = {vmi = ["none", "flags,mmu"]}
[[workload]]
program = "vmibench"
only = ["clisti", "tablelife"]
[[workload]]
program = "vmibench64"
only = ["ptebatch"]
[[workload]]
program = "vmi-linux"
)toml",
                                      "x.toml");
  INFO((parsed.ok() ? "" : parsed.error().message));
  REQUIRE(parsed.ok());
  CHECK(Ids(Matrix(parsed.value())) ==
        "001-vmibench-qemu-tcg-1\n"
        "002-vmibench-alibi-hysteresis-none-1\n"
        "003-vmibench-alibi-hysteresis-flags_mmu-1\n"
        "004-vmibench64-qemu-tcg-1\n"
        "005-vmibench64-alibi-hysteresis-none-1\n"
        "006-vmibench64-alibi-hysteresis-flags_mmu-1\n"
        "007-vmi-linux-qemu-tcg-1\n"
        "008-vmi-linux-alibi-hysteresis-none-1\n"
        "009-vmi-linux-alibi-hysteresis-flags_mmu-1\n");
  CHECK_THAT(MessageFor("", "[[workload]]\nprogram = \"vmibench\"\nonly = [\"syscall\"]\n"),
             Catch::Contains("there is no 'syscall'; there are clisti"));
  CHECK_THAT(MessageFor("", "[[workload]]\nprogram = \"vmi-linux\"\nkernel = \"686\"\n"),
             Catch::Contains("vmi-linux has no kernel to choose"));
}

TEST_CASE("Results as CSV") {
  const std::string text = WriteCsv(Rows(), {"coherence"});
  CHECK(testsuite::CompareWithGolden("bench/lab/golden/results.csv", text) == "");
}

TEST_CASE("CSV is read back as it was written") {
  const std::string text = WriteCsv(Rows(), {"coherence"});
  const auto read = ReadCsv(text, "results.csv");
  REQUIRE(read.ok());
  REQUIRE(read.value().size() == 4);
  CHECK(WriteCsv(read.value(), {"coherence"}) == text);
  CHECK(read.value()[0].parameters.empty());
  CHECK(read.value()[1].system.policy == "hysteresis(2,256)");
  CHECK(read.value()[3].workload == "say \"x\"");
}

TEST_CASE("Results of several hosts have a column for them") {
  std::vector<TidyRow> rows = Rows();
  for (TidyRow& row : rows) row.host = "one";
  rows[3].host = "two";
  const std::string text = WriteCsv(rows, {"coherence"});
  CHECK_THAT(text, Catch::StartsWith("run,workload,system,policy,host,coherence,repeat,"));
  const auto read = ReadCsv(text, "results.csv");
  REQUIRE(read.ok());
  CHECK(WriteCsv(read.value(), {"coherence"}) == text);
  CHECK(read.value()[0].host == "one");
  CHECK(read.value()[3].host == "two");
  CHECK(read.value()[3].parameters == std::vector<Setting>{{"coherence", "dropped"}});
}

TEST_CASE("A cell is one round of one workload, with all that ratios are taken of") {
  for (const char* order : {"interleaved", "shuffled"}) {
    const auto parsed = ParseExperiment(
        fmt::format("{}policies = [\"never\", \"always\"]\npeers = [\"native\"]\nrepeats = 2\n"
                    "order = \"{}\"\n{}[[workload]]\nprogram = \"compute\"\n",
                    kHead, order, kWorkload),
        "x.toml");
    REQUIRE(parsed.ok());
    const std::vector<Cell> cells = Cells(parsed.value());
    REQUIRE(cells.size() == 6);  // 2 workloads x (2 rounds and the observed one)
    std::set<std::string> runs;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      CHECK(cells[i].number == i + 1);
      CHECK(cells[i].workload == (i % 2 == 0 ? "nanobench" : "compute"));
      CHECK(cells[i].repeat == (i < 2 ? 1 : i < 4 ? 2 : kObserved));
      CHECK(cells[i].runs.size() == (i < 4 ? 3 : 2));
      runs.insert(cells[i].runs.begin(), cells[i].runs.end());
    }
    CHECK(runs.size() == Matrix(parsed.value()).size());
  }
}

TEST_CASE("A CSV file that is none of ours is refused with its line") {
  const std::string head = "run,workload,system,policy,repeat,metric,value,unit\n";
  const auto message = [](const std::string& text) {
    const auto read = ReadCsv(text, "r.csv");
    return read.ok() ? "" : read.error().message;
  };
  CHECK(message("a,b\n") == "r.csv:1: these are not the columns of an experiment's results");
  CHECK(message("") == "r.csv:1: these are not the columns of an experiment's results");
  CHECK(message(head + "r,w,native,,1,m,1,s\nr,w\n") == "r.csv:3: 2 cells instead of 8");
  CHECK(message(head + "r,w,native,,1,m,fast,s\n") == "r.csv:2: 'fast' is no value");
  CHECK(message(head + "r,w,native,,x,m,1,s\n") == "r.csv:2: 'x' is no repeat");
}

TEST_CASE("The experiment files that come with it are right") {
  unsigned files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("bench/lab/experiments")) {
    const std::string file = entry.path();
    std::ifstream in(file);
    REQUIRE(in.good());
    std::stringstream text;
    text << in.rdbuf();
    const auto parsed = ParseExperiment(text.str(), file);
    INFO((parsed.ok() ? "" : parsed.error().message));
    REQUIRE(parsed.ok());
    const auto quick = ParseExperiment(QuickForm(text.str()), file + " --quick");
    INFO((quick.ok() ? "" : quick.error().message));
    REQUIRE(quick.ok());
    CHECK(quick.value().quick);
    CHECK(Matrix(quick.value()).size() <= Matrix(parsed.value()).size());
    ++files;
  }
  CHECK(files > 10);
}

TEST_CASE("The quick form is short runs, each once, of all that the file has") {
  const std::string text = QuickForm(R"toml(
title = "T"
repeats = 5
[parameters]
ram = ["64M", "128M"]
[[workload]]
program = "nanobench"
only = ["callret"]
[[workload]]
program = "boot"
)toml");
  const auto parsed = ParseExperiment(text, "x.toml");
  INFO(text);
  REQUIRE(parsed.ok());
  CHECK(parsed.value().title == "T");
  CHECK(parsed.value().quick);
  CHECK(parsed.value().repeats == 1);
  CHECK_FALSE(parsed.value().observe);
  REQUIRE(parsed.value().workloads.size() == 2);
  CHECK(parsed.value().workloads[0].only == std::vector<std::string>{"callret"});
  CHECK(Matrix(parsed.value()).size() == 4);
  CHECK(QuickForm(text) == text);
}

}  // namespace
}  // namespace alibi::bench::lab
