// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/spread.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "bench/lab/files.h"
#include "bench/lab/lab_data.h"
#include "bench/lab/lab_folder.h"
#include "bench/lab/report.h"
#include "bench/shell_word.h"

namespace alibi::bench::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kText = R"toml(
title = "Spread"
policies = ["never"]
peers = ["native"]
repeats = 2
observe = false
[[workload]]
program = "nanobench"
[[workload]]
program = "compute"
)toml";

Experiment Parsed() {
  auto parsed = ParseExperiment(kText, "x.toml");
  REQUIRE(parsed.ok());
  return std::move(*parsed);
}

class Folder {
 public:
  Folder() {
    const char* tmp = std::getenv("TEST_TMPDIR");
    path_ = fmt::format("{}/spread{}", tmp != nullptr ? tmp : "/tmp", ++Count());
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  static unsigned& Count() {
    static unsigned count = 0;
    return count;
  }
  std::string path_;
};

struct MadeOn {
  std::string host = "one", cpu = "A", text = kText;
  unsigned bytes = 100;
};

// What `alibi lab run --cell` leaves: natively `native` cycles, and `ours`.
void MakeCell(const std::string& folder, unsigned number, double native, double ours,
              const MadeOn& on = {}, const std::string& failure = "") {
  const Experiment experiment = Parsed();
  const std::string cell = CellFolder(folder, number);
  fs::create_directories(cell + "/logs");
  std::vector<RunSpec> runs = Matrix(experiment);
  std::erase_if(runs, [&](const RunSpec& run) { return run.cell != number; });
  std::map<std::string, Record> records;
  for (const RunSpec& run : runs) {
    const bool is_native = run.system.system == kNative;
    Record& record = records[run.id];
    record.values = {{"syscall", is_native ? native : ours, "cycles"}};
    if (!is_native) record.failure = failure;
    REQUIRE(WriteRecord(cell, run, record).ok());
    REQUIRE(WriteWholeFile(cell + "/logs/" + run.id + ".out", on.host).ok());
  }
  FolderFacts facts;
  facts.text = on.text;
  facts.version = "alibi 1";
  facts.began = fmt::format("2026-01-0{}", number);
  facts.program = {{"path", "/" + on.host}, {"bytes", on.bytes}, {"changed", number}};
  facts.host = {{"cpu", on.cpu}, {"kernel", "Linux"}, {"cores", 2}, {"name", on.host}};
  facts.planned = runs.size();
  REQUIRE(WriteExperiment(cell, experiment, facts, runs, records).ok());
}

std::string MergeError(const std::string& folder) {
  const auto merged = MergeCells(Parsed(), kText, "x.toml", folder);
  return merged.ok() ? "" : merged.error().message;
}

TEST_CASE("What hosts measured is merged, and no ratio is of two of them") {
  const Folder folder;
  // Cells 1 and 3 are nanobench's rounds. Host "slow" is ten times slower, and both were 2x native
  // and 3x native: across hosts there would be 20x and 0.3x.
  MakeCell(folder.path(), 1, 100, 200, {.host = "fast"});
  MakeCell(folder.path(), 3, 1000, 3000, {.host = "slow", .cpu = "B"});
  MakeCell(folder.path(), 2, 7, 14, {.host = "fast"});
  const Experiment experiment = Parsed();
  auto merged = MergeCells(experiment, kText, "x.toml", folder.path());
  INFO((merged.ok() ? "" : merged.error().message));
  REQUIRE(merged.ok());
  CHECK(merged->finished == 3);
  REQUIRE(merged->undone.size() == 1);
  CHECK(merged->undone[0].number == 4);
  CHECK(merged->summary.runs == 8);
  CHECK(merged->summary.done == 6);

  const auto data = LabData::Load(folder.path(), nullptr);
  INFO((data.ok() ? "" : data.error().message));
  REQUIRE(data.ok());
  CHECK(data.value().Hosts() == std::vector<std::string>{"fast", "slow"});
  const auto ratio = [&](const std::string& host, const std::string& workload) {
    const LabData own = data.value().OnHost(host);
    return own.Median(workload, {{kAlibi, "never"}, {}}, "syscall") /
           own.Median(workload, {{kNative, ""}, {}}, "syscall");
  };
  CHECK(ratio("fast", "nanobench") == 2);
  CHECK(ratio("slow", "nanobench") == 3);
  CHECK(ratio("fast", "compute") == 2);
  CHECK(std::isnan(ratio("slow", "compute")));
  CHECK(data.value().OnHost("slow").experiment()["host"]["cpu"] == "B");
  CHECK(data.value().OnHost("slow").experiment()["runs"].size() == 2);

  const std::string index = MakeHostIndex(data.value());
  CHECK_THAT(index, Catch::Contains("href=\"report-fast.html\"") &&
                        Catch::Contains("href=\"report-slow.html\""));
  CHECK_THAT(MakeReport(data.value().OnHost("slow")),
             Catch::Contains("B · Linux · 2 cores") && !Catch::Contains("fast"));
  // Their files come along, and merging again changes nothing.
  const std::string csv = ReadWholeFile(folder.path() + "/results.csv").value();
  CHECK(ReadWholeFile(folder.path() + "/logs/001-nanobench-native-1.out").value() == "fast");
  REQUIRE(MergeCells(experiment, kText, "x.toml", folder.path()).ok());
  CHECK(ReadWholeFile(folder.path() + "/results.csv").value() == csv);
}

TEST_CASE("A cell with a run that failed is not finished") {
  const Folder folder;
  MakeCell(folder.path(), 1, 100, 200, {}, "exit status 1");
  MakeCell(folder.path(), 2, 100, 200);
  MakeCell(folder.path(), 3, 100, 200);
  MakeCell(folder.path(), 4, 100, 200);
  // Stopped in the middle.
  fs::remove(RecordFile(CellFolder(folder.path(), 3), "005-nanobench-native-2"));
  const auto merged = MergeCells(Parsed(), kText, "x.toml", folder.path());
  REQUIRE(merged.ok());
  REQUIRE(merged.value().undone.size() == 2);
  CHECK(merged.value().undone[0].number == 1);
  CHECK(merged.value().undone[1].number == 3);
  CHECK(merged.value().summary.failures ==
        std::vector<std::string>{"002-nanobench-alibi-never-1 on one: exit status 1"});
}

TEST_CASE("Cells that do not belong together are not merged") {
  const Folder folder;
  MakeCell(folder.path(), 1, 100, 200);
  SECTION("another experiment") {
    MakeCell(folder.path(), 2, 1, 2, {.text = "title = \"T\""});
    CHECK_THAT(MergeError(folder.path()), Catch::Contains("cells/2: holds another experiment"));
  }
  SECTION("another build") {
    MakeCell(folder.path(), 2, 1, 2, {.host = "two", .bytes = 101});
    CHECK_THAT(MergeError(folder.path()), Catch::Contains("cells/2: was measured with another"));
  }
  SECTION("two hosts with one name") {
    MakeCell(folder.path(), 2, 1, 2, {.cpu = "B"});
    CHECK_THAT(MergeError(folder.path()),
               Catch::Contains("cells/2: two different hosts are called one"));
  }
  SECTION("no name") {
    MakeCell(folder.path(), 2, 1, 2, {.host = ""});
    CHECK_THAT(MergeError(folder.path()), Catch::Contains("does not say on which host"));
  }
  SECTION("what ours never has") {
    const std::string path = CellFolder(folder.path(), 2);
    fs::create_directories(path);
    for (const char* host : {"7", "{\"name\": 7}", "[]"}) {
      REQUIRE(WriteWholeFile(path + "/experiment.json",
                             fmt::format("{{\"experiment\": {}, \"host\": {}}}",
                                         nlohmann::json(kText).dump(), host))
                  .ok());
      CHECK_THAT(MergeError(folder.path()), Catch::Contains("cells/2/experiment.json: "));
    }
    // A file that was cut off is a cell that is not done.
    REQUIRE(WriteWholeFile(path + "/experiment.json", "{\"exp").ok());
    CHECK(MergeError(folder.path()).empty());
  }
}

std::string CommandOf(std::size_t engine, const std::vector<std::string>& options) {
  std::string text;
  for (const std::string& word : SpreadEngines().at(engine).command(
           "/data/my lab", CellJob("/opt/my alibi"), {1, 2, 3, 7}, options)) {
    text += (text.empty() ? "" : " ") + ShellWord(word);
  }
  return text;
}

TEST_CASE("The engines' commands") {
  const std::string job = R"('\''/opt/my alibi'\'' lab run spread.toml --out . --cell )";
  CHECK(CommandOf(0, {}) ==
        "parallel --will-cite --jobs 1 --workdir '/data/my lab' '" + job + "{}' ::: 1 2 3 7");
  // Files travel only where there is somewhere to go.
  CHECK(CommandOf(0, {"--sshlogin", "a,b"}) ==
        "parallel --will-cite --jobs 1 --workdir '/data/my lab' --basefile spread.toml "
        "--return 'cells/{}' --sshlogin a,b '" +
            job + "{}' ::: 1 2 3 7");
  CHECK(
      CommandOf(1, {"--partition=quiet"}) ==
      "sbatch --wait --job-name=alibi-lab --nodes=1 --ntasks=1 --exclusive '--chdir=/data/my lab' "
      "'--output=/data/my lab/cells/slurm-%a.txt' --array=1-3,7 --partition=quiet --wrap '" +
          job + "$SLURM_ARRAY_TASK_ID'");
}

TEST_CASE("Words for the shell, and ranges") {
  CHECK(ShellWord("/a/b-1.c") == "/a/b-1.c");
  CHECK(ShellWord("") == "''");
  CHECK(ShellWord("it's; rm") == "'it'\\''s; rm'");
  CHECK(Ranges({}) == "");
  CHECK(Ranges({5}) == "5");
  CHECK(Ranges({1, 2, 4, 5, 6, 9}) == "1-2,4-6,9");
}

}  // namespace
}  // namespace alibi::bench::lab
