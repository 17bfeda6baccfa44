// SPDX-License-Identifier: Apache-2.0
// Stock gdb on a FrobOS kernel, which checks itself: what gdb sees must be right, and the kernel
// must not notice. And clients that are no gdb.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "inspect/gdb/rsp.h"
#include "testsuite/command.h"

namespace alibi::vmm::gdb {
namespace {

constexpr char kGdb[] = "/usr/bin/gdb";
constexpr int kGuestPassed = 1;

std::string TempFile(const std::string& name) {
  // A socket's path is short, and tests' folders are deep.
  return "/tmp/alibi_gdb_" + std::to_string(getpid()) + "_" + name;
}

// `alibi run --gdb` on a socket of its own.
class Guest {
 public:
  explicit Guest(const char* kernel, const std::vector<std::string>& options = {})
      : socket_(TempFile("socket")) {
    unlink(socket_.c_str());
    std::vector<std::string> words{std::getenv("ALIBI"), "run", "--gdb", "unix:" + socket_};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(std::getenv(kernel));
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      alarm(200);
      if (std::freopen("/dev/null", "r", stdin) == nullptr) _exit(126);
      if (std::freopen(TempFile("guest").c_str(), "w", stdout) == nullptr) _exit(126);
      execv(argv[0], argv.data());
      _exit(127);
    }
    for (int i = 0; i < 1000 && access(socket_.c_str(), F_OK) != 0; ++i) usleep(10'000);
  }
  ~Guest() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    unlink(TempFile("guest").c_str());
  }
  const std::string& socket() const { return socket_; }
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  bool Running() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  std::string socket_;
  pid_t pid_ = -1;
};

bool HaveGdb() {
  if (access(kGdb, X_OK) == 0) return true;
  WARN("gdb is not installed: not tested with it (apt-get install gdb)");
  return false;
}

std::string RunGdb(const char* kernel, const Guest& guest, const std::string& architecture,
                   const std::string& script) {
  const std::string file = TempFile("script");
  std::ofstream(file) << "set pagination off\nset confirm off\nset architecture " << architecture
                      << "\ntarget remote " << guest.socket() << "\n"
                      << script;
  const std::string command = std::string("timeout -k 5 150 ") + kGdb + " -nx -q -batch -x " +
                              file + " " + std::getenv(kernel) + " 2>&1";
  const std::string output = testsuite::RunCommand(command).output;
  unlink(file.c_str());
  return output;
}

bool Has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

TEST_CASE("gdb debugs a kernel in long mode") {
  if (!HaveGdb()) return;
  Guest guest("KERNEL", {"--gdb-arch", "amd64"});
  const std::string ticks = "(long)&'alibi::frobos::(anonymous namespace)::ticks'";
  const std::string out = RunGdb("KERNEL", guest, "i386:x86-64", R"(
info registers rip cr0
break KernelStart
hbreak TrapDispatch
continue
x/bx $pc
x/i $pc
backtrace
info registers cr3 efer
set var *(long*)0x8000 = 0x1122334455667788
x/gx 0x8000
set var *(long*)0x8000 = 0
set var $saved = $rbx
set var $rbx = 0x1234
info registers rbx
set var $rbx = $saved
stepi
info registers rip
continue
backtrace
echo at\n
info symbol $pc
finish
delete
set var $ticks = )" + ticks + R"(
watch -location *(long*)$ticks
continue
echo changed\n
continue
delete
x/gx 0xffff800000000000
)");
  INFO(out);
  CHECK(Has(out, "cr0            0x11"));
  CHECK(Has(out, "Breakpoint 1, 0x"));
  CHECK(Has(out, "<KernelStart>:\t0x55"));  // the guest's own byte, not a breakpoint's
  CHECK(Has(out, "in long_mode ()"));
  CHECK(Has(out, "LME LMA"));
  CHECK(Has(out, "0x8000:\t0x1122334455667788"));
  CHECK(Has(out, "rbx            0x1234"));
  CHECK(Has(out, "<KernelStart+1>"));
  CHECK(Has(out, "in trap_common ()"));
  CHECK(Has(out, "TrapDispatch in section .text"));
  CHECK(Has(out, "Hardware watchpoint 3: -location *(long*)"));
  CHECK(Has(out, "changed"));
  CHECK(Has(out, "New value = 2"));
  CHECK(Has(out, "New value = 3"));
  CHECK(Has(out, "Cannot access memory at address 0xffff800000000000"));
  // gdb has detached at the end of its script.
  CHECK(guest.Wait() == kGuestPassed);
}

TEST_CASE("gdb debugs a kernel in protected mode") {
  if (!HaveGdb()) return;
  Guest guest("KERNEL32");
  const std::string out = RunGdb("KERNEL32", guest, "i386", R"(
info registers eip cs
break KernelStart
continue
backtrace 1
stepi
nexti
info registers eip esp cr0
p $xmm0
detach
)");
  INFO(out);
  CHECK(Has(out, "Breakpoint 1, KernelStart () at frobos/lib32/"));
  CHECK(Has(out, "#0  KernelStart ()"));
  CHECK(Has(out, "\nalibi::frobos::"));  // a step into the function it calls
  CHECK(Has(out, "v4_float"));
  CHECK(guest.Wait() == kGuestPassed);
}

TEST_CASE("gdb has a thread for each VCPU") {
  if (!HaveGdb()) return;
  Guest guest("SMP_KERNEL", {"--gdb-arch", "amd64", "--smp", "4"});
  const std::string out = RunGdb("SMP_KERNEL", guest, "i386:x86-64", R"(
break SmpEnter
continue
info threads
thread 1
echo where the first one is:\n
backtrace 4
set var $first_pc = $pc
set var $first_rbx = $rbx
thread 2
set var $saved = $rbx
set var $rbx = 0x1234
thread 1
printf "kept %d\n", $rbx == $first_rbx
thread 2
printf "rbx %x\n", $rbx
set var $rbx = $saved
set var $second_pc = $pc
stepi
printf "moved %d\n", $pc != $second_pc
thread 1
printf "stood still %d\n", $pc == $first_pc
continue
echo the next one:\n
thread
delete
thread apply all -s x/i $pc
)");
  INFO(out);
  CHECK(Has(out, "Thread 2 hit Breakpoint 1, "));
  CHECK(Has(out, "  1    Thread 1 (VCPU 0, running)"));
  CHECK(Has(out, "* 2    Thread 2 (VCPU 1, running)"));
  CHECK(Has(out, "  4    Thread 4 (VCPU 3, waits to be started)"));
  const std::size_t first = out.find("where the first one is:");
  CHECK(out.find("in alibi::frobos::StartCpu", first) != std::string::npos);
  CHECK(Has(out, "kept 1"));
  CHECK(Has(out, "rbx 1234"));
  CHECK(Has(out, "moved 1"));
  CHECK(Has(out, "stood still 1"));
  CHECK(Has(out, "the next one:\n[Current thread is 3 "));
  CHECK(guest.Wait() == kGuestPassed);
}

TEST_CASE("gdb kills the machine") {
  if (!HaveGdb()) return;
  Guest guest("KERNEL", {"--gdb-arch", "amd64"});
  std::string out = RunGdb("KERNEL", guest, "i386:x86-64", "hbreak KernelStart\ncontinue\nkill\n");
  INFO(out);
  CHECK(Has(out, "Breakpoint 1"));
  CHECK(guest.Wait() == 0);
}

// --- Without gdb ---

class Client {
 public:
  explicit Client(const std::string& path) {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    std::memcpy(place.sun_path, path.c_str(), path.size() + 1);
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&place), sizeof(place)) == 0);
  }
  ~Client() { close(fd_); }
  void Send(const std::string& bytes) {
    if (send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) gone_ = true;
  }
  void Flood(const std::string& bytes, int times) {
    for (int i = 0; i < times && !gone_; ++i) {
      if (send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
          errno != EAGAIN) {
        gone_ = true;
      }
    }
  }
  // The next packet's payload; "" when nothing comes.
  std::string Packet() {
    for (;;) {
      for (; at_ < items_.size(); ++at_) {
        if (items_[at_].kind == Deframer::Kind::kPacket) return items_[at_++].payload;
        if (items_[at_].kind == Deframer::Kind::kNak) ++naks;
      }
      pollfd fd{fd_, POLLIN, 0};
      if (poll(&fd, 1, 20'000) <= 0) return "";
      char bytes[4096];
      const ssize_t count = read(fd_, bytes, sizeof(bytes));
      if (count <= 0) return "";
      items_ = deframer_.Feed({bytes, static_cast<std::size_t>(count)});
      at_ = 0;
    }
  }
  std::string Ask(const std::string& payload) {
    Send(Frame(payload));
    return Packet();
  }
  int naks = 0;

 private:
  int fd_ = -1;
  bool gone_ = false;
  Deframer deframer_;
  std::vector<Deframer::Item> items_;
  std::size_t at_ = 0;
};

TEST_CASE("damaged packets are refused, and a lost connection lets the guest go on") {
  Guest guest("KERNEL", {"--gdb-arch", "amd64"});
  {
    Client client(guest.socket());
    CHECK(client.Ask("?") == "T05thread:01;");
    client.Send("$g#00");
    CHECK(client.Ask("qC") == "QC01");
    CHECK(client.naks == 1);
    client.Send("$" + std::string(100'000, 'x') + "#00");
    CHECK(client.Ask("qAttached") == "1");
    CHECK(client.naks == 2);
  }
  {
    // It has never been told to go on: it waits for the next one.
    Client client(guest.socket());
    CHECK(client.Ask("?") == "T05thread:01;");
    CHECK(client.Ask("QStartNoAckMode") == "OK");
    CHECK(client.Ask("Z0,103bb0,1") == "OK");
    client.Send(Frame("vCont;s:1;c"));
    CHECK(client.Packet() == "T05thread:01;");
  }
  CHECK(guest.Wait() == kGuestPassed);
}

TEST_CASE("a client that asks and asks and never listens is left behind") {
  Guest guest("KERNEL", {"--gdb-arch", "amd64"});
  {
    Client client(guest.socket());
    CHECK(client.Ask("?") == "T05thread:01;");
    client.Flood(Frame("g") + Frame("qXfer:features:read:target.xml:0,ffff"), 20'000);
    CHECK(guest.Running());
  }
  Client client(guest.socket());
  CHECK(client.Ask("?") == "T05thread:01;");
  client.Send(Frame("c"));
  CHECK(client.Packet() == "W01");
  CHECK(guest.Wait() == kGuestPassed);
}

TEST_CASE("an interrupt stops a running guest, and the debugger may end it") {
  Guest guest("KERNEL", {"--gdb-arch", "amd64"});
  Client client(guest.socket());
  CHECK(client.Ask("?") == "T05thread:01;");
  client.Send(Frame("c"));
  client.Send("\x03");
  CHECK(client.Packet() == "T02thread:01;");
  client.Send(Frame("k"));
  CHECK(guest.Wait() == 0);
}

}  // namespace
}  // namespace alibi::vmm::gdb
