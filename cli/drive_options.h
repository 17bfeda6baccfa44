// SPDX-License-Identifier: Apache-2.0
// The drives of the command line: `--disk FILE,key=value,...`, `--cdrom`, and QEMU's spellings.
#ifndef ALIBI_CLI_DRIVE_OPTIONS_H_
#define ALIBI_CLI_DRIVE_OPTIONS_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/exit_codes.h"
#include "devices/block/open_image.h"
#include "pc/pc_storage.h"

namespace CLI {
class App;
}

namespace alibi::vmm {

struct DriveOptions {
  std::vector<std::string> disks;   // --disk
  std::vector<std::string> drives;  // --drive: the file is a key
  std::vector<std::string> cdroms;
  std::string hda, hdb, hdc, hdd;
  bool snapshot = false;  // of all disks
  std::string snapshot_size = "16G";
  bool confined = true;  // programs that read images can open nothing else
  bool empty() const {
    return disks.empty() && drives.empty() && cdroms.empty() && hda.empty() && hdb.empty() &&
           hdc.empty() && hdd.empty();
  }
};

void AddDriveOptions(CLI::App& app, DriveOptions* options);

// One drive as it was written.
struct DriveRequest {
  block::ImageOptions image;
  DriveInterface interface = DriveInterface::kVirtio;
  bool cdrom = false;
};
// "FILE,key=value,key,..."; a comma in the file's name is doubled. `file_is_key`: as QEMU's -drive.
Result<DriveRequest> ParseDrive(const std::string& text, bool file_is_key);

// Opens them all. On failure `*code` is what the program ends with.
Result<std::vector<DriveConfig>> OpenDrives(const DriveOptions& options, ExitCode* code);

// Debian's SeaBIOS, for guests that start from a drive; an error names the package.
Result<std::string> FindBios();

}  // namespace alibi::vmm

#endif  // ALIBI_CLI_DRIVE_OPTIONS_H_
