// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/vmi.h"

#include <fmt/format.h>
#include <unistd.h>

#include "bench/lab/files.h"
#include "bench/linux/guest_files.h"
#include "bench/linux/initramfs.h"

namespace alibi::bench::lab {
namespace {

constexpr const char* kRamMegabytes = "256";
constexpr u32 kFolder = 0040755, kProgram = 0100755, kCharacterDevice = 0020600;

// vmi_init gets the words that the kernel does not know.
std::string CommandLine(bool quick) {
  return fmt::format("console=ttyS0 quiet panic=-1{}", quick ? " quick" : "");
}

}  // namespace

std::vector<std::string> VmibenchNames() {
  return {"clisti",      "saveflags", "cr2",      "cr3",       "ts",       "gdtentry",
          "cpuid",       "iret",      "sysenter", "ptechange", "ptemap",   "ptetouch",
          "pgfault_map", "tablelife", "delay",    "clock",     "apicread", "apicwrite"};
}

std::string VmibenchWords(bool quick, const std::vector<std::string>& only) {
  std::string words = quick ? "quick=yes samples=5" : "samples=5";
  if (!only.empty()) words += fmt::format(" only={}", fmt::join(only, ","));
  return words;
}

Result<VmiFiles> FindVmiFiles(const std::string& data_folder, const std::string& kernel,
                              const std::string& folder) {
  VmiFiles files;
  files.image = data_folder + "/frobos/bench/vmibench.elf";
  files.image64 = data_folder + "/frobos/bench/nanobench_vmi.elf";
  for (const std::string& image : {files.image, files.image64}) {
    if (access(image.c_str(), R_OK) != 0) return Error{image + ": missing"};
  }
  if (kernel.empty()) return files;
  if (access(kernel.c_str(), R_OK) != 0) return Error{kernel + ": cannot be read"};
  files.kernel = kernel;
  const auto program = ReadWholeFile(data_folder + "/bench/lab/vmi/vmi_init");
  if (!program.ok()) return program.error();
  CpioArchive archive;
  archive.Add("dev", kFolder);
  archive.Add("dev/console", kCharacterDevice, {}, 5, 1);
  archive.Add("init", kProgram, program.value());
  files.initramfs = folder + "/initramfs";
  if (Status written = WriteWholeFile(files.initramfs, archive.Finish()); !written.ok()) {
    return written.error();
  }
  return files;
}

std::vector<std::string> AlibiVmiLinuxCommand(const VmiFiles& files, const std::string& alibi,
                                              bool quick) {
  return {alibi,           "run",        "--engine",
          "translate",     "--tc-cache", "none",
          "--no-reboot",   "--ram",      std::string(kRamMegabytes) + "M",
          "--kernel",      files.kernel, "--initrd",
          files.initramfs, "--append",   CommandLine(quick)};
}

std::vector<std::string> QemuVmiLinuxCommand(const VmiFiles& files, const std::string& qemu,
                                             bool quick) {
  return QemuKernelCommand(qemu, kRamMegabytes, files.kernel, files.initramfs, CommandLine(quick));
}

}  // namespace alibi::bench::lab
