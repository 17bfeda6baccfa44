// SPDX-License-Identifier: Apache-2.0
#include "bench/linux/linux_runner.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "base/types.h"
#include "bench/child_process.h"
#include "bench/linux/process_use.h"

namespace alibi::bench {
namespace {

using namespace std::chrono_literals;

const SystemId kHost = {kNative, ""}, kOurs = {kAlibi, "hysteresis"}, kTcg = {kQemuTcg, ""};

std::string Folder() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return folder != nullptr ? folder : "/tmp";
}

// A machine is a shell script here, with linuxbench's words as $1.
LinuxMachine Fake(const SystemId& system, const std::string& script) {
  return {system,
          [script](const std::string& words) -> std::vector<std::string> {
            return {"/bin/sh", "-c", script, "machine", words};
          },
          system.system != kNative};
}

std::string Mark(const std::string& name, double clock) {
  return "echo '@@bench {\"mark\":\"" + name + "\",\"clock\":" + std::to_string(clock) + "}'; ";
}
std::string Outcome(const std::string& name, const std::string& check, double seconds) {
  return "echo '@@bench {\"begin\":\"" + name + "\"}'; echo '@@bench {\"name\":\"" + name +
         "\",\"count\":10,\"check\":\"" + check + "\",\"seconds\":[" + std::to_string(seconds) +
         "]}'; ";
}
const std::string kBoot = Mark("init", 0.5) + Mark("shell", 0.75);
std::string Good(double seconds) {
  return kBoot + Mark("begin", 1) + Outcome("getppid", "ab", seconds) +
         Outcome("pipe", "cd", 2 * seconds) + Mark("done", 1);
}

LinuxRunOptions Options(std::vector<std::string> names) {
  LinuxRunOptions options;
  options.runs = 2;
  options.names = std::move(names);
  options.run_limit = 20s;
  return options;
}

bool HasMiss(const Results& results, const SystemId& system, const std::string& part) {
  for (const auto& [id, what] : results.Misses()) {
    if (id == system && what.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST_CASE("Machines are run in turn, and every run counts") {
  std::string order;
  LinuxRunOptions options = Options({"boot", "init", "getppid", "pipe"});
  options.progress = [&](const std::string& what) {
    if (what.find(", ") == std::string::npos) order += what + "\n";
  };
  const LinuxMeasurements got =
      RunLinux({Fake(kHost, Good(1)), Fake(kOurs, Good(2)), Fake(kTcg, Good(4))}, options);
  CHECK(order ==
        "run 1 of 2: native\nrun 1 of 2: alibi hysteresis\nrun 1 of 2: qemu-tcg\n"
        "run 2 of 2: native\nrun 2 of 2: alibi hysteresis\nrun 2 of 2: qemu-tcg\n");
  CHECK(got.results.Samples("getppid", kOurs) == std::vector<double>{0.2, 0.2});
  CHECK(got.results.Samples("pipe", kTcg) == std::vector<double>{0.8, 0.8});
  CHECK(got.results.Samples("init", kOurs) == std::vector<double>{0.5, 0.5});
  CHECK(got.results.Samples("boot", kTcg).size() == 2);
  CHECK(got.results.Samples("boot", kHost).empty());
  CHECK(got.clocks.size() == 6);
  CHECK(got.results.Misses().empty());
}

TEST_CASE("Only what is asked for is run, and a boot alone runs no program") {
  const std::string script = kBoot + "echo \"$1\" >> " + Folder() + "/words; ";
  const std::string file = Folder() + "/words";
  unlink(file.c_str());
  const LinuxMeasurements got = RunLinux({Fake(kOurs, script)}, Options({"boot"}));
  std::string words;
  std::getline(std::ifstream(file), words);
  CHECK(words.empty());
  CHECK(got.results.Misses().empty());
  CHECK(got.results.Samples("boot", kOurs).size() == 2);

  unlink(file.c_str());
  LinuxRunOptions options = Options({"pipe", "getppid"});
  options.quick = true;
  RunLinux({Fake(kOurs, script + Good(1))}, options);
  std::getline(std::ifstream(file), words);
  CHECK(words == "quick:only=getppid,pipe");
}

LinuxMachine Isolated(LinuxMachine machine) {
  machine.isolated = true;
  return machine;
}

TEST_CASE("Guests that isolate their page tables have rows of their own, and the host's figure") {
  const std::vector<LinuxMachine> machines = {Fake(kHost, Good(1)), Fake(kOurs, Good(2)),
                                              Isolated(Fake(kOurs, Good(4)))};
  const LinuxMeasurements got = RunLinux(
      machines, Options({"boot", "boot/pti", "getppid", "getppid/pti", "pipe/pti", "lua"}));
  CHECK(got.results.Samples("getppid", kOurs) == std::vector<double>{0.2, 0.2});
  CHECK(got.results.Samples("getppid/pti", kOurs) == std::vector<double>{0.4, 0.4});
  for (const char* name : {"getppid", "getppid/pti"}) {
    CHECK(got.results.Samples(name, kHost) == std::vector<double>{0.1, 0.1});
  }
  CHECK(got.results.Samples("boot", kOurs).size() == 2);
  CHECK(got.results.Samples("boot/pti", kOurs).size() == 2);
  CHECK(got.results.Samples("pipe", kOurs).empty());
  CHECK(got.results.Misses().empty());

  using Names = std::vector<std::string>;
  const Names wanted = {"boot/pti", "getppid", "getppid/pti", "pipe/pti", "lua"};
  CHECK(ProgramsOf(machines[0], wanted) == Names{"getppid", "pipe", "lua"});
  CHECK(ProgramsOf(machines[1], wanted) == Names{"getppid", "lua"});
  CHECK(ProgramsOf(machines[2], wanted) == Names{"getppid", "pipe"});

  // The host swaps for nobody.
  CHECK(ProgramsOf(machines[0], {"swap", "perl"}) == Names{"perl"});
  CHECK(ProgramsOf(machines[1], {"swap", "perl"}) == Names{"perl", "swap"});

  const LinuxMeasurements fell =
      RunLinux({Isolated(Fake(kOurs, kBoot + "echo Oops; exit 3"))}, Options({"getppid/pti"}));
  CHECK(HasMiss(fell.results, kOurs, "pti=on: between workloads: exit status 3"));
}

TEST_CASE("Each machine is told how many CPUs it has, and is looked at before it ends") {
  const std::string file = Folder() + "/words";
  unlink(file.c_str());
  const std::string script = "echo \"$1\" >> " + file + "; " + Good(1) + "sleep 0.3";
  LinuxMachine two = Fake({"alibi-smp2", "hysteresis"}, script);
  two.cpus = 2;
  LinuxRunOptions options = Options({"getppid", "pipe"});
  options.runs = 1;
  options.workers = 4;
  options.memory = true;
  const LinuxMeasurements got = RunLinux({Fake(kHost, script), Fake(kOurs, script), two}, options);
  std::string words[3];
  std::ifstream lines(file);
  for (std::string& line : words) std::getline(lines, line);
  CHECK(words[0] == "full:workers=4:only=getppid,pipe");
  CHECK(words[1] == "full:workers=4:stay:only=getppid,pipe");
  CHECK(words[2] == "full:cpus=2:workers=4:stay:only=getppid,pipe");
  CHECK(got.memory.size() == 2);
  CHECK(got.memory.at(two.system).size() == 1);
  CHECK(got.memory.at(kOurs)[0] > 10000);  // a shell
  REQUIRE(got.systems.size() == 3);
  CHECK(got.systems[2].cpus == 2);
  CHECK(GroupMemoryBytes(0x7fffffff) == 0);
}

TEST_CASE("What takes minutes is in one run alone") {
  const std::string script = kBoot + Mark("begin", 1) + "case $1 in *execlate*) " +
                             Outcome("execlate", "ab", 1) + ";; esac; " +
                             Outcome("getppid", "ab", 1) + Mark("done", 1);
  const LinuxMeasurements got = RunLinux({Fake(kOurs, script)}, Options({"getppid", "execlate"}));
  CHECK(got.results.Samples("getppid", kOurs).size() == 2);
  CHECK(got.results.Samples("execlate", kOurs).size() == 1);
}

TEST_CASE("A workload that takes the machine with it is given up; the others go on") {
  const std::string crash = "case $1 in *getppid*) " + kBoot + Mark("begin", 1) +
                            "echo '@@bench {\"begin\":\"getppid\"}'; echo 'Kernel panic'; exit 3;; "
                            "esac; " +
                            kBoot + Mark("begin", 1) + Outcome("pipe", "cd", 1) + Mark("done", 1);
  const LinuxMeasurements got =
      RunLinux({Fake(kHost, Good(1)), Fake(kOurs, crash)}, Options({"getppid", "pipe"}));
  CHECK(
      HasMiss(got.results, kOurs, "getppid: exit status 3; the console's last line: Kernel panic"));
  CHECK(got.results.Samples("getppid", kOurs).empty());
  CHECK(got.results.Samples("pipe", kOurs).size() == 2);
  CHECK(got.results.Failed(kAlibi));
}

TEST_CASE("The boot of a Debian ends with its login prompt") {
  const std::string login = "sleep 0.3; printf 'debian login: '; ";
  LinuxRunOptions options = Options({"login", "true"});
  const LinuxMeasurements got =
      RunLinux({Fake(kOurs, login + Mark("begin", 1) + Outcome("true", "ab", 1) + Mark("done", 1))},
               options);
  CHECK(got.results.Misses().empty());
  CHECK(got.results.Samples("true", kOurs).size() == 2);
  const std::vector<double>& boots = got.results.Samples("login", kOurs);
  REQUIRE(boots.size() == 2);
  CHECK(boots[0] >= 0.3);
  // By the clock and of CPU time: it slept.
  REQUIRE(got.other.Samples("login", kOurs).size() == 2);
  CHECK(got.other.Samples("login", kOurs)[0] < 0.2);

  const LinuxMeasurements fell =
      RunLinux({Fake(kOurs, login + "echo 'Oops'; exit 3")}, Options({"login", "true"}));
  CHECK(HasMiss(fell.results, kOurs, "between workloads: exit status 3"));
}

TEST_CASE("A machine that does not boot is not tried again") {
  const std::string tries = Folder() + "/tries";
  unlink(tries.c_str());
  const LinuxMeasurements got =
      RunLinux({Fake(kOurs, "echo x >> " + tries + "; echo 'no init' >&2; exit 1")},
               Options({"boot", "pipe"}));
  CHECK(HasMiss(got.results, kOurs, "before the shell: exit status 1: no init"));
  std::string line;
  std::ifstream file(tries);
  unsigned count = 0;
  while (std::getline(file, line)) ++count;
  CHECK(count == 1);
}

TEST_CASE("A hanging guest is ended, and the workload named") {
  LinuxRunOptions options = Options({"pipe"});
  options.run_limit = 300ms;
  const LinuxMeasurements got = RunLinux(
      {Fake(kOurs, kBoot + Mark("begin", 1) + "echo '@@bench {\"begin\":\"pipe\"}'; sleep 100")},
      options);
  CHECK(HasMiss(got.results, kOurs, "pipe: no end within"));
}

TEST_CASE("A machine that says nothing is ended by its own limit, and costs no other its figures") {
  LinuxMachine silent = Fake({kHardware, ""}, "sleep 100");
  silent.boots = true;
  silent.engine = "hardware";
  silent.limit = 300ms;
  LinuxMachine ours = Fake(kOurs, Good(2));
  ours.engine = "translate";
  const auto start = std::chrono::steady_clock::now();
  const LinuxMeasurements got = RunLinux({ours, silent, Isolated(ours), Fake(kTcg, Good(4))},
                                         Options({"boot", "getppid", "getppid/pti"}));
  CHECK(std::chrono::steady_clock::now() - start < 15s);
  CHECK(HasMiss(got.results, {kHardware, ""}, "before the shell: no end within"));
  CHECK_FALSE(got.results.Failed(kAlibi));
  CHECK(got.results.Samples("getppid", kOurs).size() == 2);
  CHECK(got.results.Samples("getppid", kTcg).size() == 2);
  // Of both settings of isolation, each engine once.
  REQUIRE(got.systems.size() == 3);
  CHECK(got.systems[0].engine == "translate");
  CHECK(got.systems[1].id.system == kHardware);
}

TEST_CASE("Figures from a clock that is off are refused") {
  const std::string slow_clock =
      kBoot + Mark("begin", 1) + Outcome("getppid", "ab", 1) + "sleep 0.2; " + Mark("done", 1);
  const LinuxMeasurements got = RunLinux({Fake(kOurs, slow_clock)}, Options({"getppid"}));
  CHECK(HasMiss(got.results, kOurs, "its clock is off"));
  CHECK(got.results.Samples("getppid", kOurs).empty());

  CHECK(ClockIsRight({kOurs, 100, 104}));
  CHECK_FALSE(ClockIsRight({kOurs, 100, 106}));
  CHECK_FALSE(ClockIsRight({kOurs, 106, 100}));
}

TEST_CASE("CPU time counts the whole group, and what is not computed is not counted") {
  const std::string busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; ";
  // Half of the time asleep, and the work in a child that has ended.
  const std::string script =
      kBoot + Mark("begin", 1) + "echo '@@bench {\"begin\":\"pipe\"}'; (" + busy + "); sleep 1; " +
      Outcome("pipe", "cd", 10).substr(Outcome("pipe", "cd", 10).find(';') + 1) + Mark("done", 2);
  LinuxRunOptions options = Options({"pipe"});
  options.runs = 1;
  options.cpu_time = true;
  const LinuxMeasurements got = RunLinux({Fake(kOurs, script)}, options);
  REQUIRE(got.clocks.size() == 1);
  CHECK(got.clocks[0].cpu > 0);
  CHECK(got.clocks[0].cpu < got.clocks[0].host - 0.9);
  CHECK(GroupCpuSeconds(0x7fffffff) == 0);
}

TEST_CASE("Figures are by the clock and of CPU time; an option says which come first") {
  const std::string asleep =
      kBoot + Mark("begin", 1) + "echo '@@bench {\"begin\":\"pipe\"}'; sleep 1; " +
      Outcome("pipe", "cd", 10).substr(Outcome("pipe", "cd", 10).find(';') + 1) + Mark("done", 2);
  for (const bool cpu_time : {false, true}) {
    LinuxRunOptions options = Options({"pipe"});
    options.runs = 1;
    options.cpu_time = cpu_time;
    const LinuxMeasurements got = RunLinux({Fake(kOurs, asleep)}, options);
    CHECK(got.cpu_time == cpu_time);
    REQUIRE(got.results.Samples("pipe", kOurs).size() == 1);
    REQUIRE(got.other.Samples("pipe", kOurs).size() == 1);
    CHECK((cpu_time ? got.other : got.results).Samples("pipe", kOurs)[0] == 1);
    CHECK((cpu_time ? got.results : got.other).Samples("pipe", kOurs)[0] < 0.5);
  }
}

TEST_CASE("A wrong checksum is a failure") {
  const std::string wrong =
      kBoot + Mark("begin", 1) + Outcome("getppid", "ff", 1) + Mark("done", 1);
  const LinuxMeasurements got = RunLinux(
      {Fake(kHost, Good(1)), Fake(kOurs, wrong), Fake(kTcg, Good(1))}, Options({"getppid"}));
  CHECK(HasMiss(got.results, kOurs, "getppid: it computed ff instead of ab"));
  CHECK(got.results.Samples("getppid", kOurs).empty());
  CHECK_FALSE(got.results.Samples("getppid", kTcg).empty());
}

TEST_CASE("linuxbench runs each workload on the host and says so") {
  const char* linuxbench = std::getenv("LINUXBENCH");
  REQUIRE(linuxbench != nullptr);
  LinuxConsole console;
  const ChildResult child =
      RunChild({linuxbench, "run",
                "quick:only=execdyn,getppid,pgfault,ctxswitch,signal,segv,pipe,tmpfile,sqlite,lua,"
                "compile,matmul,"
                "matmul1,x87,random,execlate,entries/300,parallel/lua,parallel/compile,"
                "parallel/lock,parallel/fault,parallel/shared-fault,parallel/forkwait",
                Folder(), "/bin/false"},
               60s, [&](std::string_view text, int) { console.Feed(text, 0); });
  CHECK(child.exit_status == 0);
  CHECK(console.done());
  CHECK(console.outcomes().size() == 23);
  for (const auto& [name, outcome] : console.outcomes()) {
    INFO(name);
    CHECK(outcome.error.empty());
    CHECK(outcome.seconds.size() == 1);
  }
}

TEST_CASE("linuxbench computes the same on any number of CPUs, with that many workers") {
  std::vector<std::string> sums;
  for (const char* words : {"quick:only=parallel/lua,parallel/compile",
                            "quick:cpus=2:only=parallel/lua,parallel/compile",
                            "quick:workers=3:only=parallel/lua,parallel/compile"}) {
    LinuxConsole console;
    RunChild({std::getenv("LINUXBENCH"), "run", words, Folder(), "/bin/false"}, 60s,
             [&](std::string_view text, int) { console.Feed(text, 0); });
    for (const char* name : {"parallel/lua", "parallel/compile"}) {
      REQUIRE(console.outcomes().count(name) == 1);
      CHECK(console.outcomes().at(name).error == "");
      sums.push_back(console.outcomes().at(name).check);
    }
  }
  for (std::size_t i = 2; i < sums.size(); ++i) CHECK(sums[i] == sums[i % 2]);
}

TEST_CASE("linuxbench says why a workload failed") {
  LinuxConsole console;
  RunChild({std::getenv("LINUXBENCH"), "run", "quick:only=gzip", Folder(), "/bin/false"}, 60s,
           [&](std::string_view text, int) { console.Feed(text, 0); });
  CHECK_THAT(console.outcomes().at("gzip").error, Catch::StartsWith("a child process failed"));
  CHECK(console.done());
  // Not in a Debian of ours.
  RunChild({std::getenv("LINUXBENCH"), "run", "quick:only=true", Folder(), ""}, 60s,
           [&](std::string_view text, int) { console.Feed(text, 0); });
  CHECK_THAT(console.outcomes().at("true").error,
             Catch::StartsWith("the command ended with status 1: cp: "));
}

// A server of pages of 100 bytes, which asks the asker for `line` and prints what it says.
constexpr const char* kServer = R"python(
import http.server, socket, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/page" else 404)
        self.end_headers()
        self.wfile.write(b"x" * 100)
    def log_message(self, *words):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64
server = Server(("127.0.0.1", int(sys.argv[2])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
asker = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
asker.sendall(sys.argv[3].encode() + b"\n")
print(asker.makefile().read(), end="")
)python";

std::string Asked(const std::string& line) {
  // Ends when the command does: nothing else keeps its output open.
  const ChildResult child = RunChild({std::getenv("LINUXBENCH"), "beside", "127.0.0.1", "python3",
                                      "-c", kServer, "%ASKER%", "%SERVER%", line},
                                     60s);
  CHECK(child.exit_status == 0);
  return child.output;
}

TEST_CASE("Beside a machine somebody asks its server, and says what came") {
  u64 sum = 0xcbf29ce484222325u;
  for (int i = 0; i < 100; ++i) sum = (sum ^ 'x') * 0x100000001b3u;
  CHECK(Asked("/page 40") == fmt::format("40 pages, 4000 bytes, check {:016x}\n", 40 * sum));
  CHECK_THAT(Asked("/page 3"), Catch::StartsWith("3 pages, 300 bytes"));
  CHECK_THAT(Asked("/none 40"),
             Catch::Equals("failed: 0 of 40 pages came; the answer: HTTP/1.0 404 Not Found\n"));
}

TEST_CASE("The command beside which somebody asks keeps its exit status") {
  CHECK(RunChild({std::getenv("LINUXBENCH"), "beside", "127.0.0.1", "sh", "-c", "exit 3"}, 60s)
            .exit_status == 3);
}

}  // namespace
}  // namespace alibi::bench
