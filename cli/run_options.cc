// SPDX-License-Identifier: Apache-2.0
#include "cli/run_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>

#include "adapt/engine_policy.h"
#include "adapt/policy.h"
#include "machine/cpu_model.h"
#include "pc/boot/file.h"
#include "pc/boot/vmi_rom.h"

namespace alibi::vmm {

void AddKernelOptions(CLI::App& app, RunOptions* options) {
  app.add_option("IMAGE,--kernel", options->image,
                 "the kernel: a Linux bzImage, or ELF with a multiboot 1 "
                 "header or a PVH note;\n"
                 "compressed by gzip or not");
  app.add_option("--bios", options->bios,
                 "a ROM to start instead: a multiple of 4K, up to 16M; at the "
                 "top of 4 GB and,\n"
                 "its last 128K, below 1 MB")
      ->type_name("ROM");
  app.add_option("--append", options->append, "the kernel's command line, behind the image's name");
  app.add_option("--initrd", options->initrd,
                 "Linux's initial RAM disk; or modules for a multiboot kernel, "
                 "separated by\n"
                 "commas: FILE or \"FILE arguments\"; a comma in a name is doubled")
      ->type_name("FILES");
  app.add_option("--entry", options->entry,
                 "a Linux bzImage's entry: 16 (through a BIOS), 32, or 64 (64, "
                 "if the kernel has it)")
      ->type_name("BITS")
      ->check(CLI::IsMember({"16", "32", "64"}));
}

void AddMachineOptions(CLI::App& app, RunOptions* options) {
  app.add_option("--cpu", options->cpu,
                 "the CPU that the guest sees: " + CpuModelList() +
                     " (host);\nMODEL,enforce: fail if the host lacks "
                     "instructions of it")
      ->type_name("MODEL");
  app.add_option("--ram,--memory", options->ram,
                 "guest memory: bytes, or with K, M, G behind (128M)");
  app.add_option("--smp", options->smp,
                 fmt::format("CPUs of the guest's machine, 1 to {} (1)", vcpu::kMaxVcpus))
      ->type_name("N");
  AddDriveOptions(app, &options->drives);
  app.add_option("--net", options->net,
                 "a network card (none), virtio, or with lance, before it an AMD PCnet-PCI II:\n"
                 "user[,hostfwd=tcp::PORT-:PORT][,restrict=on][,loopback=on][,"
                 "mtu=N], behind a\n"
                 "router, needs no rights; restrict: from the host it is "
                 "reached, and no more;\n"
                 "loopback: it reaches services at 127.0.0.1 of the host, as "
                 "10.0.2.2;\n"
                 "tftp=FOLDER,bootfile=NAME: the router offers the folder's files, and DHCP tells "
                 "the name;\n"
                 "tap,ifname=NAME, an interface of the host;\n"
                 "socket,path=NAME,peer=NAME: UNIX datagrams to another machine or alibi "
                 "net-sink;\n"
                 "all take mac=52:54:00:12:34:56, capture=FILE (pcap), rate=100M (of the wire) "
                 "and\n"
                 "rom=FILE, an expansion ROM (ipxe-qemu has some): without IMAGE, a BIOS boots by "
                 "it")
      ->type_name("none|[CARD,]user|tap|socket");
  app.add_option("--vmi", options->vmi,
                 "a VMI ROM for paravirtual kernels (docs/vmi.md); alone: full. With which of its\n"
                 "calls served by the VMM itself: full, transparent (none), or some of\n" +
                     loader::VmiGroupNames())
      ->type_name("[=GROUPS]");
  app.add_option("--console", options->console,
                 "what the terminal's keys go to: serial (COM1, ttyS0), or "
                 "virtio (hvc0) (serial)")
      ->check(CLI::IsMember({"serial", "virtio"}));
  app.add_option("--com1", options->com1,
                 "append what COM1 says to FILE; the terminal then is COM2, in "
                 "Linux ttyS1")
      ->type_name("FILE");
  app.add_option("--debug-port", options->debug_ports,
                 "one more port that takes text, beside 0xe9 and 0x402")
      ->type_name("PORT")
      ->allow_extra_args(false);
  app.add_flag("--no-reboot", options->no_reboot,
               "end when the guest resets the machine or shuts down, instead "
               "of starting again");
}

void AddEngineOptions(CLI::App& app, RunOptions* options) {
  app.add_option(
         "--engine", options->engine,
         fmt::format("what runs the guest ({}):\n{}", options->engine, runtime::EngineHelp()))
      ->type_name("NAME");
  app.add_option(
         "--engine-policy", options->engine_policy,
         fmt::format("which user code runs directly under --engine auto: {},\nor a "
                     "plug-in's file: ./NAME.so or \"./NAME.so(PARAMETERS)\" ({})",
                     fmt::join(adapt::EnginePolicyNames(), ", "), adapt::kDefaultEnginePolicy))
      ->type_name("POLICY");
  app.add_option("--policy", options->policy,
                 fmt::format("adaptation policy: {},\nor a plug-in's file: ./NAME.so or "
                             "\"./NAME.so(PARAMETERS)\" ({})",
                             fmt::join(adapt::PolicyNames(), ", "), options->policy));
  app.add_option(
      "--coherence", options->coherence,
      "how the shadow follows the guest's page tables: " +
          fmt::format("{} ({})", fmt::join(mmu::kCoherenceNames, ", "), options->coherence));
  app.add_option(
         "--vcpu-threads", options->vcpu_threads,
         "of several CPUs: 'each' has a thread of the host's, or they take turns on 'one';\n"
         "auto: each, where the host has a CPU for each and no other option needs turns")
      ->type_name("WHICH")
      ->check(CLI::IsMember({"auto", "one", "each"}));
  app.add_option("--hosting", options->hosting,
                 "what is kept over switches, for measurements: of views=NUMBER, "
                 "satellites=NUMBER\n"
                 "and remap (user code that runs directly begins without a page) (all)")
      ->type_name("all|LIST");
  app.add_option("--net-optimize", options->net_optimize,
                 "what spares crossings from the guest to the host, for measurements: ports (the "
                 "Lance's\n"
                 "registers), latch (the one that chooses among them), combine (its "
                 "transmissions), notify (between threads) (all)")
      ->type_name("all|none|LIST");
  app.add_option("--tc-size", options->tc_size,
                 "room for translations: bytes, or with K, M, G (64M)");
  app.add_option("--tc-cache", options->tc_cache,
                 "where translations are kept for later runs: a folder that only "
                 "you can write to, or\n"
                 "none (~/.cache/alibi/translations)")
      ->type_name("DIR|none");
  app.add_option("--shadow-size", options->shadow_size,
                 "room for shadow page tables: bytes, or with K, M, G (512M)");
  app.add_option("--sandbox", options->sandbox,
                 "on: before the guest begins, the process gives up every "
                 "system call and file\n"
                 "that it does not need, and so do those beside it (network, "
                 "disk images); or\n"
                 "off, for tools that work inside the process (on)")
      ->check(CLI::IsMember({"on", "off"}));
}

Result<std::vector<ModuleFile>> ReadModuleFiles(const std::string& list) {
  std::vector<ModuleFile> files;
  std::string item;
  for (std::size_t at = 0; at < list.size() || !item.empty(); ++at) {
    const bool end = at >= list.size() || (list[at] == ',' && list.substr(at, 2) != ",,");
    if (!end) {
      item += list[at];
      if (list[at] == ',') ++at;
      continue;
    }
    auto bytes = loader::ReadWholeFile(item.substr(0, item.find(' ')));
    if (!bytes.ok()) return bytes.error();
    files.push_back({std::move(*bytes), item});
    item.clear();
  }
  return files;
}

}  // namespace alibi::vmm
