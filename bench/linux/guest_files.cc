// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/guest_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "bench/child_process.h"
#include "bench/linux/initramfs.h"

namespace alibi::bench {
namespace {

using namespace std::chrono_literals;

// What a disk's size is a multiple of.
constexpr std::size_t kSector = 4096;

// What the dynamic program needs, where it looks for it: the host's own, which built it. On a host
// that has it elsewhere, execdyn fails in the guests and says so.
constexpr const char* kLibraries[] = {"/lib64/ld-linux-x86-64.so.2",
                                      "/lib/x86_64-linux-gnu/libc.so.6"};

// The native counterpart of a booted Debian, run by sh with TREE LINUXBENCH WORDS: the tree, which
// stays as it is, and a tmpfs in /mnt, as guest.sh makes it.
constexpr const char* kChroot = R"(
mount --rbind "$1" "$1"
cd "$1"
mount --rbind /proc proc
mount --rbind /dev dev
mount -t tmpfs -o size=75% bench mnt
cp "$2" mnt/linuxbench
mount -o remount,bind,ro,nosuid,nodev "$1"
exec /usr/sbin/chroot . /mnt/linuxbench run "$3" /mnt "")";

// Of `alibi bench disk`: more than linuxbench's programs touch.
constexpr std::uintmax_t kDiskBytes = 64 << 20;

// Run by sh with TAP ADDRESS COMMAND...
constexpr const char* kOwnNetwork = R"(
ip link set lo up
ip tuntap add dev "$1" mode tap
ip address add "$2/24" dev "$1"
ip link set "$1" up
shift 2
exec "$@")";

// User-Mode Linux keeps what a guest writes to its disk in a file, here a new one each time. Run by
// sh with FILE COMMAND...
constexpr const char* kNewCopy = R"(
rm -f "$1"
shift
exec "$@")";

constexpr const char* kForward = "hostfwd=tcp:127.0.0.1:%SERVER%-:%SERVER%";

// As option lists of Alibi and QEMU want file names.
std::string WithoutCommas(const std::string& path) {
  std::string text;
  for (char c : path) text += c == ',' ? ",," : std::string(1, c);
  return text;
}

// Of a whole Debian: at which address it finds who asks its servers (guest/asker.c).
std::string AskerWord(const char* address) {
  return fmt::format(":asker={}/%ASKER%/%SERVER%", address);
}

// In a namespace of that kind, in which users are root.
std::vector<std::string> Unshare(const char* kind) {
  std::vector<std::string> command = {"unshare", kind};
  if (geteuid() != 0) command.push_back("--map-root-user");
  return command;
}

void Append(std::vector<std::string>* command, const std::vector<std::string>& words) {
  command->insert(command->end(), words.begin(), words.end());
}

// The machine with that asker beside it.
std::vector<std::string> WithAsker(const LinuxFiles& files, const char* address,
                                   const std::vector<std::string>& machine) {
  std::vector<std::string> command = {files.linuxbench, "beside", address};
  Append(&command, machine);
  return command;
}

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

Result<LinuxFiles> FetchDebian(const std::string& kernel, const std::string& data_folder,
                               const std::function<void(const std::string&)>& progress) {
  // All but the last line is progress.
  std::string line;
  const auto take = [&](std::string_view text, int) {
    for (char c : text) {
      if (!line.empty() && line.back() == '\n') {
        line.pop_back();
        progress(line);
        line.clear();
      }
      line += c;
    }
  };
  const ChildResult child = RunChild(
      {"/usr/bin/env", "PYTHONDONTWRITEBYTECODE=1", "python3",
       data_folder + "/bench/linux/debian_image.py", RunsLinuxbench(kernel) ? "amd64" : "i386"},
      2h, take);
  if (child.exit_status != 0) {
    return Error{fmt::format("no Debian to boot ({})", child.Describe())};
  }
  const std::string image = line.substr(0, line.find('\n'));
  auto packages = ReadFile(image + "/packages.sha256");
  if (!packages.ok()) return packages.error();
  LinuxFiles files;
  files.linuxbench = data_folder + "/bench/linux/guest/linuxbench";
  files.program = RunsLinuxbench(kernel) ? files.linuxbench : files.linuxbench + "32";
  files.kernel = image + "/kernel";
  files.initramfs = image + "/initrd";
  files.ram_megabytes = kDebianRamMegabytes;
  files.disk = image + "/disk";
  files.tree = image + "/tree";
  files.packages = *packages;
  return files;
}

Status WriteProgramDisk(const std::string& folder, LinuxFiles* files) {
  auto program = ReadFile(files->program);
  if (!program.ok()) return program.error();
  program->resize((program->size() + kSector - 1) / kSector * kSector);
  files->program_disk = folder + "/linuxbench";
  std::ofstream file(files->program_disk, std::ios::trunc | std::ios::binary);
  file << *program;
  file.close();
  if (!file.good()) return Error{files->program_disk + ": cannot be written; is the disk full?"};
  return Ok();
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

Status WriteDiskGuest(const std::string& kernel, const std::string& alibi,
                      const std::string& data_folder, const std::string& folder,
                      LinuxFiles* files) {
  files->initramfs = folder + "/initramfs";
  const ChildResult child =
      RunChild({"/usr/bin/env", "ALIBI_PROGRAM=" + alibi, "PYTHONDONTWRITEBYTECODE=1", "python3",
                data_folder + "/bench/linux/boot.py", "--kernel", kernel, "--write-initrd",
                files->initramfs, "--modules", "virtio_pci,virtio_blk,ata_piix,sd_mod", "--add",
                files->linuxbench + ":bin/linuxbench", "--add",
                data_folder + "/bench/linux/guest/disk_setup.sh:etc/net"},
               10min);
  if (child.exit_status != 0) {
    return Error{fmt::format("no initial RAM disk with disk drivers ({})", child.Describe())};
  }
  // Their names are linuxbench's, which finds them here when it runs natively.
  files->virtio_disk = folder + "/virtio";
  files->ide_disk = folder + "/ide";
  for (const std::string& path : {files->virtio_disk, files->ide_disk}) {
    std::error_code error;
    if (std::ofstream(path, std::ios::trunc).good()) {
      std::filesystem::resize_file(path, kDiskBytes, error);
    }
    if (error || !std::filesystem::exists(path)) return Error{path + ": cannot be written"};
  }
  return Ok();
}

std::string LinuxbenchWords(const LinuxbenchOptions& options,
                            const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const auto word = [](const char* name, unsigned value, unsigned usual) {
    return value == usual ? "" : fmt::format(":{}={}", name, value);
  };
  return fmt::format("{}{}{}{}:only={}", options.quick ? "quick" : "full",
                     word("cpus", options.cpus, 1), word("workers", options.workers, kLeastWorkers),
                     options.stay ? ":stay" : "", fmt::join(names, ","));
}

std::string LinuxCommandLine(const LinuxFiles& files, const std::string& words,
                             const std::string& append) {
  std::string line = kLinuxKernelWords;
  if (files.IsDebian()) line = "root=/dev/vda rw " + line;
  if (!append.empty()) line += " " + append;
  if (!words.empty() && files.IsDebian()) {
    return line + " linuxbench=" + words + AskerWord(kGuestsHost);
  }
  // In a Debian it is this word that has the machine switched off, however little it runs.
  if (!words.empty() || files.IsDebian()) line += " linuxbench=" + words;
  return line;
}

std::vector<std::string> AlibiLinuxCommand(const LinuxFiles& files, const std::string& alibi,
                                           const std::string& words,
                                           const LinuxGuestOptions& guest) {
  std::vector<std::string> command = {alibi,        "run",
                                      "--kernel",   files.kernel,
                                      "--initrd",   files.initramfs,
                                      "--ram",      files.ram_megabytes + "M",
                                      "--append",   LinuxCommandLine(files, words, guest.append),
                                      "--tc-cache", guest.tc_cache,
                                      "--engine",   guest.engine};
  if (files.IsDebian()) {
    command.insert(command.end(),
                   {"--disk", WithoutCommas(files.disk) + ",format=raw,snapshot", "--disk",
                    WithoutCommas(files.program_disk) + ",format=raw,readonly", "--net",
                    std::string("user,loopback=on,") + kForward});
    command = WithAsker(files, kLoopback, command);
  }
  if (!files.virtio_disk.empty()) {
    command.insert(command.end(),
                   {"--disk", WithoutCommas(files.virtio_disk) + ",format=raw", "--disk",
                    WithoutCommas(files.ide_disk) + ",format=raw,interface=ide"});
  }
  if (guest.cpu != "host") command.insert(command.end(), {"--cpu", guest.cpu});
  if (guest.smp != 1) {
    command.insert(command.end(),
                   {"--smp", std::to_string(guest.smp), "--vcpu-threads", guest.vcpu_threads});
  }
  return command;
}

std::vector<std::string> QemuKernelCommand(const std::string& qemu,
                                           const std::string& ram_megabytes,
                                           const std::string& kernel, const std::string& initrd,
                                           const std::string& append) {
  return {qemu,   "-accel",  "tcg",         "-cpu",       "max",        "-machine",
          "pc",   "-m",      ram_megabytes, "-nographic", "-no-reboot", "-kernel",
          kernel, "-initrd", initrd,        "-append",    append};
}

std::vector<std::string> QemuLinuxCommand(const LinuxFiles& files, const std::string& qemu,
                                          const std::string& words,
                                          const LinuxGuestOptions& guest) {
  std::vector<std::string> command =
      QemuKernelCommand(qemu, files.ram_megabytes, files.kernel, files.initramfs,
                        LinuxCommandLine(files, words, guest.append));
  if (guest.smp != 1) {
    // Said, though it is what QEMU takes for such a guest: a thread for each CPU.
    command[2] = "tcg,thread=multi";
    command.insert(command.end(), {"-smp", std::to_string(guest.smp)});
  }
  const auto drive = [](const std::string& path, const char* how) {
    return fmt::format("file={},format=raw,{}", WithoutCommas(path), how);
  };
  if (files.IsDebian()) {
    command.insert(command.end(), {"-drive", drive(files.disk, "if=virtio,snapshot=on"), "-drive",
                                   drive(files.program_disk, "if=virtio,readonly=on"), "-nic",
                                   std::string("user,model=virtio-net-pci,") + kForward});
    command = WithAsker(files, kLoopback, command);
  }
  if (!files.virtio_disk.empty()) {
    command.insert(command.end(), {"-drive", drive(files.virtio_disk, "if=virtio"), "-drive",
                                   drive(files.ide_disk, "if=ide")});
  }
  return command;
}

UserModeLinux FindUserModeLinux(const std::string& data_folder, const std::string& folder) {
  return {FindProgram("linux.uml"), data_folder + "/bench/linux/uml_xstate.so", folder};
}

std::vector<std::string> UmlCommand(const UserModeLinux& uml, const std::string& ram_megabytes,
                                    const std::vector<std::string>& words) {
  // Its memory is a file: in /dev/shm, if the environment names no other place. Without a folder it
  // wants a home. Consoles that nobody names would open terminals. It has no reset to panic into.
  std::vector<std::string> command = {"env"};
  for (const char* place : {"TMPDIR", "TMP", "TEMP"}) Append(&command, {"-u", place});
  Append(&command, {"LD_PRELOAD=" + uml.preload, uml.program, "uml_dir=" + uml.folder,
                    "mem=" + ram_megabytes + "M", "con=null", "quiet", "panic=-1"});
  Append(&command, words);
  return command;
}

std::vector<std::string> UmlLinuxCommand(const LinuxFiles& files, const UserModeLinux& uml,
                                         const std::string& words) {
  if (!files.IsDebian()) {
    std::vector<std::string> own = {"initrd=" + files.initramfs, "con0=fd:0,fd:1"};
    if (!words.empty()) own.push_back("linuxbench=" + words);
    return UmlCommand(uml, files.ram_megabytes, own);
  }
  const std::string copy = files.folder + "/uml-disk";
  std::vector<std::string> command = {"sh", "-ec", kNewCopy, "sh", copy};
  Append(&command,
         UmlCommand(
             uml, files.ram_megabytes,
             {"ssl0=null,fd:1", "console=ttyS0", "root=/dev/ubda", "rw",
              fmt::format("ubd0={},{}", copy, files.disk), "ubd1r=" + files.program_disk, kUmlCard,
              "linuxbench=" + words + (words.empty() ? "" : AskerWord(kGuestsHost))}));
  return InOwnNetwork(WithAsker(files, kGuestsHost, command));
}

std::vector<std::string> InOwnNetwork(const std::vector<std::string>& command) {
  std::vector<std::string> all = Unshare("--net");
  Append(&all, {"sh", "-ec", kOwnNetwork, "sh", kTap, kGuestsHost});
  Append(&all, command);
  return all;
}

std::vector<std::string> NativeLinuxCommand(const LinuxFiles& files, const std::string& words) {
  if (!files.IsDebian()) {
    return {files.linuxbench, "run", words, files.folder, files.busybox};
  }
  std::vector<std::string> command = Unshare("--mount");
  Append(&command,
         {"sh", "-ec", kChroot, "native", files.tree, files.program, words + AskerWord(kLoopback)});
  return WithAsker(files, kLoopback, command);
}

ScratchFolder::ScratchFolder(Where where) {
  const char* folder = where == Where::kDisk ? "/var/tmp" : "/dev/shm";
  path_ = std::string(access(folder, W_OK) == 0 ? folder : "/tmp") + "/alibi-bench-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) path_.clear();
}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace alibi::bench
