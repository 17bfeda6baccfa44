// SPDX-License-Identifier: Apache-2.0
#include "cli/drive_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "cli/cli.h"

namespace alibi::vmm {
namespace {

// Splits at single commas; two are one.
std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> words(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != ',') {
      words.back() += text[at];
    } else if (text.compare(at, 2, ",,") == 0) {
      words.back() += ',';
      ++at;
    } else {
      words.emplace_back();
    }
  }
  return words;
}

Result<bool> ParseSwitch(const std::string& key, const std::string& value) {
  if (value.empty() || value == "on") return true;
  if (value == "off") return false;
  return Error{fmt::format("{}={}: on or off is wanted", key, value)};
}

Status ParseKey(const std::string& key, const std::string& value, DriveRequest* request) {
  if (key == "format") {
    if (!block::IsFormat(value)) {
      return Error{fmt::format("format={}: known are {}", value, block::FormatList())};
    }
    request->image.format = value;
  } else if (key == "readonly" || key == "read-only" || key == "snapshot") {
    auto on = ParseSwitch(key, value);
    if (!on.ok()) return on.error();
    (key == "snapshot" ? request->image.snapshot : request->image.read_only) = *on;
  } else if (key == "interface" || key == "if") {
    if (value == "ide") {
      request->interface = DriveInterface::kIde;
    } else if (value == "virtio") {
      request->interface = DriveInterface::kVirtio;
    } else {
      return Error{fmt::format("{}={}: ide or virtio is wanted", key, value)};
    }
  } else if (key == "backing") {
    if (value != "allow" && value != "refuse") {
      return Error{fmt::format("backing={}: allow or refuse is wanted", value)};
    }
    request->image.allow_backing = value == "allow";
  } else if (key == "media") {
    if (value != "disk" && value != "cdrom") {
      return Error{fmt::format("media={}: disk or cdrom is wanted", value)};
    }
    request->cdrom = value == "cdrom";
  } else {
    return Error{fmt::format(
        "'{}' is no option of a drive; there are format, readonly, snapshot, interface, backing, "
        "media",
        key)};
  }
  return Ok{};
}

ExitCode ExitCodeOf(block::OpenFailure failure) {
  switch (failure) {
    case block::OpenFailure::kUnreadable:
      return kNoInput;
    case block::OpenFailure::kBadImage:
      return kBadImage;
    case block::OpenFailure::kRefused:
      return kRefused;
    case block::OpenFailure::kUnavailable:
      break;
  }
  return kUnsupportedHost;
}

}  // namespace

void AddDriveOptions(CLI::App& app, DriveOptions* options) {
  app.add_option("--disk", options->disks,
                 "a disk image: FILE[,format=F][,interface=virtio|ide][,readonly][,snapshot]\n"
                 "[,backing=allow]; a comma in a name is doubled. Formats: " +
                     block::FormatList() + "\n(by the name). Without a kernel the BIOS boots it")
      ->type_name("FILE,...")
      ->allow_extra_args(false);
  app.add_option("--cdrom", options->cdroms, "an ISO image in an IDE CD-ROM drive")
      ->type_name("ISO")
      ->allow_extra_args(false);
  app.add_flag("--snapshot", options->snapshot, "what is written to disks is forgotten at the end");
  app.add_option("--snapshot-size", options->snapshot_size,
                 "at most so much of it for each disk, then the guest sees errors: bytes, or with\n"
                 "K, M, G (" +
                     options->snapshot_size + ")");
  app.add_option("--drive", options->drives, "a disk in QEMU's spelling: file=FILE,if=ide,...")
      ->type_name("KEYS")
      ->allow_extra_args(false);
  // As QEMU's -hda to -hdd.
  app.add_option("--hda", options->hda)->group("");
  app.add_option("--hdb", options->hdb)->group("");
  app.add_option("--hdc", options->hdc)->group("");
  app.add_option("--hdd", options->hdd)->group("");
}

Result<DriveRequest> ParseDrive(const std::string& text, bool file_is_key) {
  DriveRequest request;
  if (file_is_key) request.interface = DriveInterface::kIde;  // as QEMU's default is
  bool file_follows = !file_is_key;
  for (const std::string& word : SplitList(text)) {
    if (std::exchange(file_follows, false)) {
      request.image.path = word;
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (file_is_key && key == "file") {
      request.image.path = value;
      continue;
    }
    Status parsed = ParseKey(key, value, &request);
    if (!parsed.ok()) return parsed.error();
  }
  if (request.image.path.empty()) return Error{fmt::format("'{}' names no file", text)};
  if (request.cdrom) request.image.read_only = true;
  return request;
}

Result<std::vector<DriveConfig>> OpenDrives(const DriveOptions& options, ExitCode* code) {
  *code = kUsage;
  auto snapshot_bytes = ParseSize(options.snapshot_size);
  if (!snapshot_bytes.ok()) return Error{"--snapshot-size: " + snapshot_bytes.error().message};
  std::vector<DriveRequest> requests;
  for (const std::string* file : {&options.hda, &options.hdb, &options.hdc, &options.hdd}) {
    if (file->empty()) continue;
    DriveRequest request;
    request.image.path = *file;
    request.interface = DriveInterface::kIde;
    requests.push_back(request);
  }
  const std::pair<const char*, const std::vector<std::string>*> lists[] = {
      {"--disk", &options.disks}, {"--drive", &options.drives}, {"--cdrom", &options.cdroms}};
  for (const auto& [option, texts] : lists) {
    for (const std::string& text : *texts) {
      auto request = ParseDrive(text, texts == &options.drives);
      if (!request.ok()) return Error{fmt::format("{}: {}", option, request.error().message)};
      if (texts == &options.cdroms) {
        request->cdrom = true;
        request->image.read_only = true;
      }
      requests.push_back(std::move(*request));
    }
  }
  constexpr std::ptrdiff_t kIdePlaces = 4;
  const auto on_ide = [](const DriveRequest& request) {
    return request.cdrom || request.interface == DriveInterface::kIde;
  };
  if (std::count_if(requests.begin(), requests.end(), on_ide) > kIdePlaces) {
    return Error{
        "there are four IDE drives at most, CD-ROM drives among them; disks can have "
        "interface=virtio"};
  }
  std::vector<DriveConfig> drives;
  for (DriveRequest& request : requests) {
    if (options.snapshot && !request.cdrom) request.image.snapshot = true;
    request.image.most_snapshot_bytes = *snapshot_bytes;
    request.image.confined = options.confined;
    block::OpenFailure failure;
    auto image = block::OpenImage(request.image, &failure);
    if (!image.ok()) {
      *code = ExitCodeOf(failure);
      return image.error();
    }
    DriveConfig drive;
    drive.image = std::move(*image);
    drive.name = request.image.path;
    drive.interface = request.cdrom ? DriveInterface::kIde : request.interface;
    drive.cdrom = request.cdrom;
    drives.push_back(std::move(drive));
  }
  return drives;
}

Result<std::string> FindBios() {
  for (const char* path : {"/usr/share/seabios/bios-256k.bin", "/usr/share/seabios/bios.bin",
                           "/usr/share/qemu/bios-256k.bin"}) {
    if (access(path, R_OK) == 0) return std::string(path);
  }
  return Error{
      "a drive is started by a BIOS, and none is installed; run: apt-get install seabios, or give "
      "--bios ROM"};
}

}  // namespace alibi::vmm
