// SPDX-License-Identifier: Apache-2.0
#include "bench/lab/network.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "bench/lab/report.h"

namespace alibi::bench::lab {
namespace {

// As a guest's console and the server say it, one through the other.
constexpr char kOutput[] =
    "[    0.6] pcnet32: eth0: link up\n"
    "@nettest used send-4096 busiest=250000 all=500000\n"
    "\n@nettest sampled send-4096 translated=150 program=50 libraries=10 kernel=40\n"
    "@nettest send-4096 bytes=10000000 us=400000 idle=100000\n"
    "@nettest receive-4096 bytes=10000000 us=200000 idle=0\n"
    "@nettest sampled receive-4096 translated=0 program=0 libraries=0 kernel=0\n"
    "@nettest used receive-4096 busiest=0 all=0\n"
    "@nettest done\n"
    "@nettest host user=2500000 system=500000\n";

double Of(const std::vector<Value>& values, const std::string& metric) {
  for (const Value& value : values) {
    if (value.metric == metric) return value.value;
  }
  return std::nan("");
}

TEST_CASE("What nettest says") {
  auto values = ParseNetwork(kOutput, {"send-4096", "receive-4096"});
  REQUIRE(values.ok());
  CHECK(Of(*values, "send-4096") == 200);
  CHECK(Of(*values, "send-4096.idle") == 0.25);
  CHECK(Of(*values, "send-4096.limit") == 320);
  CHECK(Of(*values, "send-4096.all") == 160);
  CHECK(Of(*values, "send-4096.sampled.translated") == 0.6);
  CHECK(Of(*values, "send-4096.sampled.program") == 0.2);
  CHECK(Of(*values, "send-4096.sampled.libraries") == 0.04);
  CHECK(Of(*values, "send-4096.sampled.kernel") == 0.16);
  CHECK(Of(*values, "receive-4096") == 400);
  CHECK(std::isnan(Of(*values, "receive-4096.limit")));
  CHECK(std::isnan(Of(*values, "receive-4096.sampled.kernel")));
  CHECK(Of(*values, "host.user") == 2.5);
  CHECK_FALSE(ParseNetwork(kOutput, {"send-512"}).ok());
}

TEST_CASE("Behind TAP and sockets machines are in a network of their own, with the server there") {
  NetworkFiles files;
  files.nettest = "/n";
  Workload workload;
  workload.program = Program::kNetwork;
  workload.card = kVirtio;
  workload.backend = kTapBackend;
  const auto has = [](const std::vector<std::string>& command, const std::string& word) {
    return std::find(command.begin(), command.end(), word) != command.end();
  };
  const auto ours = AlibiNetworkCommand(files, "/alibi", workload, {"idle:1"}),
             qemu = QemuNetworkCommand(files, "/qemu", workload, {"idle:1"}),
             uml = UmlNetworkCommand(files, {"/uml", "/x.so", "/u"}, {"idle:1"});
  for (const auto& command : {ours, qemu, uml}) {
    CHECK(command[0] == "unshare");
    const auto with = std::find(command.begin(), command.end(), "with");
    REQUIRE(with + 1 < command.end());
    CHECK(with[1] == kGuestsHost);
  }
  CHECK(has(ours, "virtio,tap,ifname=tap0"));
  CHECK(has(qemu, "tap,ifname=tap0,script=no,downscript=no,model=virtio-net-pci"));
  CHECK(has(uml, kUmlCard));
  workload.backend = kSocketBackend;
  files.folder = "/s";
  const auto wired = AlibiNetworkCommand(files, "/alibi", workload, {}),
             peer = QemuNetworkCommand(files, "/qemu", workload, {});
  for (const auto& command : {wired, peer}) {
    const auto bridge = std::find(command.begin(), command.end(), "bridge");
    REQUIRE(bridge + 4 < command.end());
    CHECK(std::vector<std::string>(bridge + 1, bridge + 4) ==
          std::vector<std::string>{"tap0", "/s/host", "/s/guest"});
  }
  CHECK(has(wired, "virtio,socket,path=/s/guest,peer=/s/host"));
  CHECK(has(peer, "virtio-net-pci,netdev=wire"));
  workload.backend = kUserBackend;
  CHECK(AlibiNetworkCommand(files, "/alibi", workload, {})[2] == kLoopback);
  CHECK(has(QemuNetworkCommand(files, "/qemu", workload, {}), "user,model=virtio-net-pci"));
}

TEST_CASE("A run's time is what it has more than one that only boots") {
  auto values = Distribution(
      R"({"a": {"run_cycles": 1000, "idle_cycles": 300, "port_cycles": 200},
          "b": {"virtio_net_notified": 7, "vcpu_us": 4}})",
      R"({"a": {"run_cycles": 100, "idle_cycles": 50, "port_cycles": 100}, "b": {"vcpu_us": 9}})");
  REQUIRE(values.ok());
  CHECK(Of(*values, "time.idle") == 250);
  CHECK(Of(*values, "time.ports") == 100);
  CHECK(Of(*values, "time.guest") == 550);
  CHECK(Of(*values, "count.virtio_net_notified") == 7);
  CHECK(Of(*values, "count.vcpu_us") == 0);
  CHECK_FALSE(Distribution("", "{}").ok());
}

TEST_CASE("Samples and frames of either card are in the report") {
  std::vector<TidyRow> rows;
  const auto add = [&](const char* workload, const char* metric, double value) {
    rows.push_back({"r",
                    workload,
                    {kAlibi, "hysteresis"},
                    {{"net-optimize", "all"}},
                    1,
                    {metric, value, "part"}});
  };
  for (const char* workload : {"lance", "virtio"}) {
    add(workload, "send-4096", 500);
    add(workload, "host.user", 2);
    add(workload, "host.system", 1);
    for (const char* cause : {"count.port_crossings", "count.device_crossings",
                              "count.timer_crossings", "count.notice_crossings"}) {
      add(workload, cause, 1000);
    }
    for (const TimeCategory& kind : SampleKinds()) {
      add(workload, (std::string("send-4096.sampled.") + kind.metric).c_str(), 0.25);
    }
  }
  add("lance", "count.lance_transmitted", 6000);
  add("lance", "count.lance_received", 2000);
  add("virtio", "count.virtio_net_transmitted", 12000);
  add("virtio", "count.virtio_net_received", 4000);
  nlohmann::ordered_json experiment = {{"host", {{"tsc_hz", 2.5e9}}},
                                       {"workloads",
                                        {{{"name", "lance"}, {"program", "network"}},
                                         {{"name", "virtio"}, {"program", "network"}}}}};
  const std::string page = NetworkSection({std::move(experiment), std::move(rows)});
  CHECK_THAT(page, Catch::Contains("send-4096, % of its CPU time"));
  CHECK_THAT(page, Catch::Contains(SampleKinds()[3].meaning));
  // Crossings for each frame: 4,000 for 8,000 frames and for 16,000.
  CHECK_THAT(page, Catch::Contains("<td>0.50</td>"));
  CHECK_THAT(page, Catch::Contains("<td>0.25</td>"));
}

}  // namespace
}  // namespace alibi::bench::lab
