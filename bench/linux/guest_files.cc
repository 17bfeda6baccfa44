// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/guest_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "bench/child_process.h"
#include "bench/linux/initramfs.h"

namespace alibi::bench {
namespace {

using namespace std::chrono_literals;

// What the dynamic program needs, where it looks for it: the host's own, which built it. On a host
// that has it elsewhere, execdyn fails in the guests and says so.
constexpr const char* kLibraries[] = {"/lib64/ld-linux-x86-64.so.2",
                                      "/lib/x86_64-linux-gnu/libc.so.6"};

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file.good() && !file.eof()) return Error{path + ": cannot be read"};
  if (text.empty()) return Error{path + ": missing or empty"};
  return text;
}

}  // namespace

bool RunsLinuxbench(const std::string& kernel) { return kernel.find("amd64") != std::string::npos; }

Result<LinuxFiles> FetchLinux(const std::string& kernel, const std::string& alibi,
                              const std::string& data_folder) {
  LinuxFiles files;
  files.linuxbench = data_folder + "/bench/linux/guest/linuxbench";
  files.dynamic = data_folder + "/bench/linux/guest/dynamic";
  const ChildResult child =
      RunChild({"/usr/bin/env", "ALIBI_PROGRAM=" + alibi, "PYTHONDONTWRITEBYTECODE=1", "python3",
                data_folder + "/bench/linux/boot.py", "--fetch-only", "--kernel", kernel},
               10min);
  if (child.exit_status != 0) {
    return Error{
        fmt::format("no kernel to boot ({}); it comes through apt once: is there a network?",
                    child.Describe())};
  }
  files.kernel = child.output.substr(0, child.output.find('\n'));
  const std::size_t boot = files.kernel.rfind("/boot/");
  files.busybox = files.kernel.substr(0, boot) + "/bin/busybox";
  return files;
}

Status WriteInitramfs(const std::string& folder, bool with_linuxbench, LinuxFiles* files) {
  std::vector<std::pair<std::string, std::string>> wanted = {{"bin/busybox", files->busybox}};
  if (with_linuxbench) {
    wanted.emplace_back("bin/linuxbench", files->linuxbench);
    wanted.emplace_back("bin/dynamic", files->dynamic);
    for (const char* library : kLibraries) {
      if (access(library, R_OK) == 0) wanted.emplace_back(library + 1, library);
    }
  }
  std::vector<InitramfsFile> contents;
  for (const auto& [name, path] : wanted) {
    auto data = ReadFile(path);
    if (!data.ok()) return data.error();
    contents.push_back({name, std::move(data).value()});
  }
  files->initramfs = folder + "/initramfs";
  std::ofstream file(files->initramfs, std::ios::trunc | std::ios::binary);
  file << MakeInitramfs(contents);
  file.close();
  if (!file.good()) {
    return Error{files->initramfs + ": cannot be written; is the disk full?"};
  }
  if (RunChild({"gzip", "-1", "-f", files->initramfs}, 30s).exit_status == 0) {
    files->initramfs += ".gz";
  }
  return Ok();
}

std::string LinuxbenchWords(bool quick, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  return fmt::format("{}:only={}", quick ? "quick" : "full", fmt::join(names, ","));
}

std::string LinuxCommandLine(const std::string& words, const std::string& append) {
  std::string line = kLinuxKernelWords;
  if (!append.empty()) line += " " + append;
  if (!words.empty()) line += " linuxbench=" + words;
  return line;
}

std::vector<std::string> AlibiLinuxCommand(const LinuxFiles& files, const std::string& alibi,
                                           const std::string& words,
                                           const LinuxGuestOptions& guest) {
  std::vector<std::string> command = {alibi,      "run",
                                      "--kernel", files.kernel,
                                      "--initrd", files.initramfs,
                                      "--ram",    std::string(kLinuxRamMegabytes) + "M",
                                      "--append", LinuxCommandLine(words, guest.append)};
  if (guest.cpu != "host") command.insert(command.end(), {"--cpu", guest.cpu});
  return command;
}

std::vector<std::string> QemuLinuxCommand(const LinuxFiles& files, const std::string& qemu,
                                          const std::string& words,
                                          const LinuxGuestOptions& guest) {
  return {qemu,
          "-accel",
          "tcg",
          "-cpu",
          "max",
          "-machine",
          "pc",
          "-m",
          kLinuxRamMegabytes,
          "-nographic",
          "-no-reboot",
          "-kernel",
          files.kernel,
          "-initrd",
          files.initramfs,
          "-append",
          LinuxCommandLine(words, guest.append)};
}

std::vector<std::string> NativeLinuxCommand(const LinuxFiles& files, const std::string& words) {
  return {files.linuxbench, "run", words, files.folder, files.busybox};
}

ScratchFolder::ScratchFolder() {
  path_ = std::string(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + "/alibi-bench-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) path_.clear();
}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  for (const char* name : {"initramfs", "initramfs.gz", "file", "input", "output"}) {
    unlink((path_ + "/" + name).c_str());
  }
  rmdir(path_.c_str());
}

}  // namespace alibi::bench
