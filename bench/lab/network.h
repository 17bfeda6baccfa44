// SPDX-License-Identifier: Apache-2.0
// What the lab's programs `network` and `transmit` run: nettest in a Debian guest
// (bench/lab/nettest) with a server on the host, and FrobOS's transmit kernel.
#ifndef ALIBI_BENCH_LAB_NETWORK_H_
#define ALIBI_BENCH_LAB_NETWORK_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "bench/lab/experiment.h"
#include "bench/lab/tidy.h"
#include "bench/linux/guest_files.h"

namespace alibi::bench::lab {

// "send-512" ... "receive-65536": bytes per write and read.
std::vector<std::string> NetworkNames();
// The rows of frobos/bench/transmit.cc.
std::vector<std::string> TransmitNames();

inline constexpr const char* kLance = "lance";
inline constexpr const char* kVirtio = "virtio";
// What a card leads to: libslirp, of Alibi's or QEMU's; a TAP interface; or a UNIX socket, from
// which nettest carries frames to a TAP interface.
inline constexpr const char* kUserBackend = "user";
inline constexpr const char* kTapBackend = "tap";
inline constexpr const char* kSocketBackend = "socket";

// Paths.
struct NetworkFiles {
  std::string kernel, initrd;  // of the guest
  std::string nettest;
  std::string transmit;  // FrobOS's image
  std::string folder;    // for sockets
};

// The kernel is Debian's, downloaded the first time; the initial RAM disk is made in `folder`.
Result<NetworkFiles> FetchNetwork(const std::string& kernel, const std::string& alibi,
                                  const std::string& data_folder, const std::string& folder);

// What nettest is told to do; no names: nothing, so that the guest only boots.
std::vector<std::string> NetworkOperations(const std::vector<std::string>& names, bool quick,
                                           const std::string& address);

// The systems' commands; the console is stdout.
std::vector<std::string> AlibiNetworkCommand(const NetworkFiles& files, const std::string& alibi,
                                             const Workload& workload,
                                             const std::vector<std::string>& operations);
std::vector<std::string> QemuNetworkCommand(const NetworkFiles& files, const std::string& qemu,
                                            const Workload& workload,
                                            const std::vector<std::string>& operations);
// With TAP only, and without a card.
std::vector<std::string> UmlNetworkCommand(const NetworkFiles& files, const UserModeLinux& uml,
                                           const std::vector<std::string>& operations);
std::vector<std::string> NativeNetworkCommand(const NetworkFiles& files,
                                              const std::vector<std::string>& operations);
std::vector<std::string> AlibiTransmitCommand(const NetworkFiles& files, const std::string& alibi,
                                              const Workload& workload, bool quick);
std::vector<std::string> QemuTransmitCommand(const NetworkFiles& files, const std::string& qemu,
                                             bool quick);

// What nettest said: Mb/s for each operation; the part of the time that the guest was idle as
// NAME.idle; Mb per second of CPU time of the busiest thread, which runs the VCPU, as NAME.limit,
// and of all threads as NAME.all; which part of the busiest one's CPU time each kind of code took,
// as NAME.sampled.KIND, where the host permits to sample; and the host's CPU time as host.user and
// host.system. An error if not all `names` are there.
Result<std::vector<Value>> ParseNetwork(const std::string& output,
                                        const std::vector<std::string>& names);

// Where the time went, from the counters of `alibi run --stats-json` less those of a run that only
// boots: time.CATEGORY in cycles, count.COUNTER.
Result<std::vector<Value>> Distribution(const std::string& stats, const std::string& boot_stats);

// What the categories are, in their order, for the report.
struct TimeCategory {
  const char* metric;
  const char* meaning;
};
const std::vector<TimeCategory>& TimeCategories();
// The same of the samples' kinds; the metric is what follows "NAME.sampled.".
const std::vector<TimeCategory>& SampleKinds();

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_NETWORK_H_
