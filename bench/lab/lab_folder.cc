// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/lab_folder.h"

#include <fmt/format.h>

#include "bench/lab/files.h"

namespace alibi::bench::lab {
namespace {

using nlohmann::ordered_json;

constexpr int kFormat = 1;  // of experiment.json and of the runs' records

ordered_json ToJson(const RunSpec& run, const Record& record) {
  ordered_json json = {{"format", kFormat},
                       {"run", run.id},
                       {"workload", run.workload.name},
                       {"system", run.system.system},
                       {"policy", run.system.policy},
                       {"repeat", run.repeat},
                       {"command", record.command},
                       {"failure", record.failure}};
  if (!record.host.empty()) json["host"] = record.host;
  ordered_json& parameters = json["parameters"] = ordered_json::object();
  for (const auto& [name, value] : run.parameters) parameters[name] = value;
  ordered_json& values = json["values"] = ordered_json::array();
  for (const Value& value : record.values) {
    values.push_back({value.metric, value.value, value.unit});
  }
  return json;
}

bool FromJson(const ordered_json& json, Record* record) {
  if (!json.is_object() || json.value("format", 0) != kFormat) return false;
  const auto values = json.find("values");
  if (values == json.end() || !values->is_array()) return false;
  for (const auto& value : *values) {
    if (!value.is_array() || value.size() != 3 || !value[0].is_string() || !value[1].is_number() ||
        !value[2].is_string()) {
      return false;
    }
    record->values.push_back({value[0], value[1], value[2]});
  }
  record->failure = json.value("failure", std::string());
  record->command = json.value("command", std::vector<std::string>());
  record->host = json.value("host", std::string());
  return true;
}

}  // namespace

std::string RecordFile(const std::string& folder, const std::string& run) {
  return folder + "/logs/" + run + ".json";
}
std::string EventLogFile(const std::string& folder, const std::string& run) {
  return folder + "/logs/" + run + ".log";
}
std::string DigestFile(const std::string& folder, const std::string& run) {
  return folder + "/logs/" + run + ".digest.json";
}
std::string ProfileFile(const std::string& folder, const std::string& run) {
  return folder + "/logs/" + run + ".profile.json";
}

Status WriteRecord(const std::string& folder, const RunSpec& run, const Record& record) {
  return WriteWholeFile(RecordFile(folder, run.id), ToJson(run, record).dump(1) + "\n");
}

bool ReadRecord(const std::string& folder, const std::string& run, Record* record) {
  const auto file = ReadWholeFile(RecordFile(folder, run));
  return file.ok() && FromJson(ordered_json::parse(file.value(), nullptr, false), record);
}

Status WriteExperiment(const std::string& folder, const Experiment& experiment,
                       const FolderFacts& facts, const std::vector<RunSpec>& runs,
                       const std::map<std::string, Record>& records) {
  ordered_json json = {
      {"format", kFormat},       {"title", experiment.title}, {"question", experiment.question},
      {"file", facts.file},      {"version", facts.version},  {"began", facts.began},
      {"program", facts.program}};
  if (!facts.host.is_null()) json["host"] = facts.host;
  if (!facts.hosts.is_null()) json["hosts"] = facts.hosts;
  json["quick"] = experiment.quick;
  json["repeats"] = experiment.repeats;
  json["runs_planned"] = facts.planned;
  json["experiment"] = facts.text;
  if (!facts.notes.empty()) json["notes"] = facts.notes;
  ordered_json& names = json["parameters"] = ordered_json::array();
  for (const Parameter& parameter : experiment.parameters) names.push_back(parameter.name);
  ordered_json& workloads = json["workloads"] = ordered_json::array();
  for (const Workload& workload : experiment.workloads) {
    workloads.push_back({{"name", workload.name},
                         {"program", ProgramName(workload.program)},
                         {"kernel", workload.kernel}});
  }
  ordered_json& made = json["runs"] = ordered_json::array();
  for (const RunSpec& run : runs) {
    const auto record = records.find(run.id);
    if (record == records.end()) continue;
    ordered_json entry = ToJson(run, record->second);
    entry.erase("values");
    entry.erase("format");
    made.push_back(std::move(entry));
  }
  return WriteWholeFile(folder + "/experiment.json", json.dump(1) + "\n");
}

Status WriteResults(const std::string& folder, const Experiment& experiment,
                    const std::vector<RunSpec>& runs,
                    const std::map<std::string, Record>& records) {
  std::vector<TidyRow> rows;
  for (const RunSpec& run : runs) {
    const auto record = records.find(run.id);
    if (record == records.end()) continue;
    for (const Value& value : record->second.values) {
      rows.push_back({run.id, run.workload.name, run.system, run.parameters, run.repeat, value,
                      record->second.host});
    }
  }
  std::vector<std::string> parameters;
  for (const Parameter& parameter : experiment.parameters) parameters.push_back(parameter.name);
  return WriteWholeFile(folder + "/results.csv", WriteCsv(rows, parameters));
}

}  // namespace alibi::bench::lab
