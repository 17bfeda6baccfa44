// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "bench/lab/files.h"
#include "bench/lab/lab_folder.h"
#include "bench/lab/spread.h"

namespace alibi::bench::lab {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

// A host by what does not change between two looks at it, as its clock's rate does.
bool IsSameHost(const ordered_json& a, const ordered_json& b) {
  for (const char* member : {"cpu", "kernel", "cores"}) {
    if (a.value(member, ordered_json()) != b.value(member, ordered_json())) return false;
  }
  return true;
}

class Merger {
 public:
  Merger(const Experiment& experiment, const std::string& text, const std::string& file,
         const std::string& folder)
      : experiment_(experiment), folder_(folder), runs_(Matrix(experiment)) {
    facts_.text = text;
    facts_.file = file;
    facts_.hosts = ordered_json::object();
  }

  Result<Merged> Run() {
    std::error_code error;
    fs::create_directories(folder_ + "/logs", error);
    if (error) return Error{fmt::format("{}/logs: {}", folder_, error.message())};
    for (const Cell& cell : Cells(experiment_)) {
      try {
        auto planned = Take(cell);
        if (!planned.ok()) return planned.error();
        facts_.planned += *planned;
      } catch (const ordered_json::exception& wrong) {  // another type than ours has
        return Error{
            fmt::format("{}/experiment.json: {}", CellFolder(folder_, cell.number), wrong.what())};
      }
    }
    merged_.summary.runs = static_cast<unsigned>(facts_.planned);
    for (const auto& [run, record] : records_) {
      ++merged_.summary.done;
      if (!record.failure.empty()) {
        merged_.summary.failures.push_back(
            fmt::format("{} on {}: {}", run, record.host, record.failure));
      }
    }
    if (Status written = WriteResults(folder_, experiment_, runs_, records_); !written.ok()) {
      return written.error();
    }
    if (Status written = WriteExperiment(folder_, experiment_, facts_, runs_, records_);
        !written.ok()) {
      return written.error();
    }
    return merged_;
  }

 private:
  // What the cell's folder holds. The result: how many runs it asks for.
  Result<std::size_t> Take(const Cell& cell) {
    const std::string from = CellFolder(folder_, cell.number), path = from + "/experiment.json";
    const auto text = ReadWholeFile(path);
    const ordered_json json =
        text.ok() ? ordered_json::parse(text.value(), nullptr, false) : ordered_json();
    if (!json.is_object()) {
      merged_.undone.push_back(cell);
      return cell.runs.size();
    }
    if (json.value("experiment", std::string()) != facts_.text) {
      return Error{
          fmt::format("{}: holds another experiment; remove it, or give another --out", from)};
    }
    const ordered_json host = json.value("host", ordered_json::object());
    const std::string name = host.value("name", std::string());
    if (name.empty()) return Error{path + ": does not say on which host it was measured"};
    if (Status known = Know(host, name, json, from); !known.ok()) return known.error();
    bool complete = true;
    // Hosts leave out what they cannot do: see the notes.
    const std::size_t planned = json.value("runs_planned", cell.runs.size());
    std::size_t there = 0;
    for (const std::string& run : cell.runs) {
      Record record;
      if (!ReadRecord(from, run, &record)) continue;
      ++there;
      complete = complete && record.failure.empty();
      record.host = name;
      if (Status linked = TakeFiles(from, run); !linked.ok()) return linked.error();
      records_[run] = std::move(record);
    }
    complete = complete && there == planned;
    if (complete) {
      ++merged_.finished;
    } else {
      merged_.undone.push_back(cell);
    }
    return planned;
  }

  Status Know(const ordered_json& host, const std::string& name, const ordered_json& json,
              const std::string& from) {
    // Where the program lies on a host, and since when, does not matter.
    ordered_json program = json.value("program", ordered_json::object());
    program.erase("path");
    program.erase("changed");
    const std::string version = json.value("version", std::string());
    if (facts_.program.is_null()) {
      facts_.program = program;
      facts_.version = version;
    } else if (facts_.program != program || facts_.version != version) {
      return Error{
          fmt::format("{}: was measured with another build of alibi than other cells; "
                      "install the same one everywhere, and remove what the other one "
                      "measured",
                      from)};
    }
    if (facts_.hosts.contains(name) && !IsSameHost(facts_.hosts[name], host)) {
      return Error{
          fmt::format("{}: two different hosts are called {}; give them names of their "
                      "own, and remove what one of them measured",
                      from, name)};
    }
    if (!facts_.hosts.contains(name)) facts_.hosts[name] = host;
    const std::string began = json.value("began", std::string());
    if (facts_.began.empty() || began < facts_.began) facts_.began = began;
    for (const auto& note : json.value("notes", std::vector<std::string>())) {
      const std::string with_host = name + ": " + note;
      if (std::count(facts_.notes.begin(), facts_.notes.end(), with_host) == 0) {
        facts_.notes.push_back(with_host);
      }
    }
    return Ok();
  }

  // Logs can be large: links, where the file system has them.
  Status TakeFiles(const std::string& from, const std::string& run) const {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(from + "/logs", error)) {
      const std::string name = entry.path().filename();
      // Ids begin with their number, which all have with as many digits.
      if (!name.starts_with(run + ".")) continue;
      const fs::path to = fs::path(folder_) / "logs" / name;
      std::error_code failed;
      fs::remove(to, failed);
      fs::create_hard_link(entry.path(), to, failed);
      if (failed) fs::copy_file(entry.path(), to, fs::copy_options::overwrite_existing, failed);
      if (failed) return Error{fmt::format("{}: {}", to.string(), failed.message())};
    }
    if (error) return Error{fmt::format("{}/logs: {}", from, error.message())};
    return Ok();
  }

  const Experiment& experiment_;
  const std::string& folder_;
  std::vector<RunSpec> runs_;
  FolderFacts facts_;
  std::map<std::string, Record> records_;
  Merged merged_;
};

}  // namespace

Result<Merged> MergeCells(const Experiment& experiment, const std::string& text,
                          const std::string& file, const std::string& folder) {
  return Merger(experiment, text, file, folder).Run();
}

}  // namespace alibi::bench::lab
