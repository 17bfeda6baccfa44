// SPDX-License-Identifier: Apache-2.0
// What a measured Linux machine boots: Debian's kernel, and the initial RAM disk made for it; or a
// whole Debian with its own, and a disk.
#ifndef ALIBI_BENCH_LINUX_GUEST_FILES_H_
#define ALIBI_BENCH_LINUX_GUEST_FILES_H_

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace alibi::bench {

inline constexpr const char* kLinuxRamMegabytes = "512";
inline constexpr const char* kDebianRamMegabytes = "2048";
// Both machines restart on a panic at once; `-no-reboot` and alibi run end there.
inline constexpr const char* kLinuxKernelWords = "console=ttyS0 quiet panic=-1";

// All paths.
struct LinuxFiles {
  std::string kernel, busybox, linuxbench, initramfs;
  std::string dynamic;  // the dynamic program beside linuxbench
  std::string folder;   // on tmpfs, for the native runs' files
  std::string ram_megabytes = kLinuxRamMegabytes;
  // Of a whole Debian only. Its disk, which stays as it is; the same files, for native runs; and
  // what is installed, as a checksum.
  std::string disk, tree, packages;
  std::string program;       // linuxbench for it
  std::string program_disk;  // the same as a disk
  // Of `alibi bench disk` only: images that the machines write.
  std::string virtio_disk, ide_disk;
  bool IsDebian() const { return !disk.empty(); }
};

// linuxbench is a 64-bit program: other kernels only boot.
bool RunsLinuxbench(const std::string& kernel);

// The kernel (one of those of ./alibi linux) and busybox out of Debian's packages, downloaded the
// first time. `data_folder`: laid out like bazel-bin.
Result<LinuxFiles> FetchLinux(const std::string& kernel, const std::string& alibi,
                              const std::string& data_folder);

// The kernels that there is a whole Debian for: of 64 bits, and of 32 with programs of 32.
inline constexpr const char* kDebianKernels[] = {"cloud-amd64", "686"};
// The Debian with this kernel that tools/linux/debian_image.py makes, the first time, and keeps.
// `progress`: what it says meanwhile.
Result<LinuxFiles> FetchDebian(const std::string& kernel, const std::string& data_folder,
                               const std::function<void(const std::string&)>& progress);

// files->program_disk, in `folder`.
Status WriteProgramDisk(const std::string& folder, LinuxFiles* files);

// files->initramfs, in `folder`. Compressed, as initial RAM disks are; left as it is where gzip is
// missing.
Status WriteInitramfs(const std::string& folder, bool with_linuxbench, LinuxFiles* files);

// files->initramfs with the drivers of the two disks, and the disks, in `folder`. The kernel is the
// one that FetchLinux() got; `alibi` and `data_folder` as there.
Status WriteDiskGuest(const std::string& kernel, const std::string& alibi,
                      const std::string& data_folder, const std::string& folder, LinuxFiles* files);

// What both machines are told beside the kernel and its files.
struct LinuxGuestOptions {
  std::string append = "";            // more for the kernel's command line
  std::string cpu = "host";           // as for `alibi run --cpu`; QEMU's is "max"
  unsigned smp = 1;                   // CPUs, of QEMU's machine, too
  std::string vcpu_threads = "auto";  // as for `alibi run`
  // As for `alibi run`: without it no machine gains from one that ran before.
  std::string tc_cache = "none";
  std::string engine = "translate";  // as for `alibi run`
};

// How linuxbench runs its workloads.
inline constexpr unsigned kLeastWorkers = 2;
struct LinuxbenchOptions {
  bool quick = false;
  unsigned cpus = 1;                 // natively, of the host's
  unsigned workers = kLeastWorkers;  // that share each workload of parallel.inc
  bool stay = false;                 // for a moment, at the end
};
// What it is told to run these; "" for none.
std::string LinuxbenchWords(const LinuxbenchOptions& options,
                            const std::vector<std::string>& names);

// `words`: linuxbench's, such as "quick:only=getppid"; "": the machine boots and powers off.
std::string LinuxCommandLine(const LinuxFiles& files, const std::string& words,
                             const std::string& append);

// The machines' commands, the console being stdout.
std::vector<std::string> AlibiLinuxCommand(const LinuxFiles& files, const std::string& alibi,
                                           const std::string& words,
                                           const LinuxGuestOptions& guest = {});
std::vector<std::string> QemuLinuxCommand(const LinuxFiles& files, const std::string& qemu,
                                          const std::string& words,
                                          const LinuxGuestOptions& guest = {});
// QEMU TCG's machine with a kernel and an initial RAM disk, and no more than that.
std::vector<std::string> QemuKernelCommand(const std::string& qemu,
                                           const std::string& ram_megabytes,
                                           const std::string& kernel, const std::string& initrd,
                                           const std::string& append);
// User-Mode Linux is a kernel as a program. A whole Debian on it is in its own network: it has
// nothing like the others' user-mode network.
struct UserModeLinux {
  std::string program;  // "": not here
  std::string preload;  // bench/linux/uml_xstate.c
  std::string folder;   // where it keeps the sockets of its machines
};
UserModeLinux FindUserModeLinux(const std::string& data_folder, const std::string& folder);
std::vector<std::string> UmlCommand(const UserModeLinux& uml, const std::string& ram_megabytes,
                                    const std::vector<std::string>& words);
std::vector<std::string> UmlLinuxCommand(const LinuxFiles& files, const UserModeLinux& uml,
                                         const std::string& words);
// `command` in a network of its own: a namespace of the host's, which root may make, and users
// where the host lets them. Its other end is the machine behind the TAP interface kTap.
std::vector<std::string> InOwnNetwork(const std::vector<std::string>& command);
inline constexpr const char* kTap = "tap0";
// The word that gives User-Mode Linux a card there, which takes large segments as virtio's does.
inline constexpr const char* kUmlCard = "vec0:transport=tap,ifname=tap0,gro=1";
// Where guests find the host: in its own network the host itself, else the user-mode network's
// router, which leads to the host's loopback.
inline constexpr const char* kGuestsHost = "10.0.2.2";
inline constexpr const char* kLoopback = "127.0.0.1";
// On the host, without a machine; of a whole Debian in a chroot, as root or in a user namespace.
std::vector<std::string> NativeLinuxCommand(const LinuxFiles& files, const std::string& words);

// A folder that goes away with this object, and with it what machines and native runs leave there.
class ScratchFolder {
 public:
  enum class Where {
    kMemory,  // on tmpfs where there is one
    kDisk,    // on a file system such as images of disks lie on
  };
  // path() is "" if it cannot be made.
  explicit ScratchFolder(Where where = Where::kMemory);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace alibi::bench

#endif  // ALIBI_BENCH_LINUX_GUEST_FILES_H_
