// SPDX-License-Identifier: Apache-2.0
// The program from outside: every way to call it wrongly ends with one line on stderr and the
// documented exit status; a guest's end becomes the process's; the terminal is left as it was.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/types.h"

namespace alibi {
namespace {

std::string Program() { return std::getenv("ALIBI"); }
std::string HelloImage() { return std::getenv("HELLO"); }
std::string TempFile(const std::string& name) {
  const char* directory = std::getenv("TEST_TMPDIR");
  return std::string(directory != nullptr ? directory : "/tmp") + "/" + name;
}

struct Outcome {
  int status = -1;  // exit status, or 1000 + signal
  std::string out, err;
};

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  ssize_t n;
  while ((n = read(fd, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(n));
  close(fd);
  return text;
}

int StatusOf(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1000 + WTERMSIG(wait_status);
}

pid_t Spawn(const std::vector<std::string>& arguments, int in, int out, int err,
            const std::function<void()>& in_child = {}) {
  const std::string program = Program();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    if (in_child) in_child();
    execv(argv[0], argv.data());
    _exit(127);
  }
  return child;
}

// Output is small: it fits into the pipes.
Outcome Call(const std::vector<std::string>& arguments,
             const std::function<void()>& in_child = {}) {
  int out[2], err[2];
  REQUIRE(pipe2(out, O_CLOEXEC) == 0);
  REQUIRE(pipe2(err, O_CLOEXEC) == 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t child = Spawn(arguments, null, out[1], err[1], in_child);
  close(out[1]);
  close(err[1]);
  close(null);
  Outcome outcome;
  outcome.out = ReadAll(out[0]);
  outcome.err = ReadAll(err[0]);
  int status;
  waitpid(child, &status, 0);
  outcome.status = StatusOf(status);
  return outcome;
}

std::string WriteFile(const std::string& name, const std::string& contents) {
  const std::string path = TempFile(name);
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A multiboot kernel by its header's own addresses: header, then code, loaded at 1 MB.
std::string FlatKernel(const std::vector<u8>& code, u32 load = 0x100000) {
  constexpr u32 kMagic = 0x1badb002, kHasAddresses = 1u << 16, kHeaderBytes = 32;
  const u32 end = load + kHeaderBytes + static_cast<u32>(code.size());
  const u32 header[] = {kMagic, kHasAddresses, 0 - (kMagic + kHasAddresses), load, load,
                        end,    end,           load + kHeaderBytes};
  std::string image(reinterpret_cast<const char*>(header), sizeof(header));
  image.append(reinterpret_cast<const char*>(code.data()), code.size());
  return image;
}

bool OneLine(const std::string& text) {
  return text.rfind("alibi: ", 0) == 0 && std::count(text.begin(), text.end(), '\n') == 1 &&
         text.back() == '\n';
}

TEST_CASE("Bad command lines and images") {
  const std::string hello = HelloImage();
  const std::string elf = Contents(hello);
  REQUIRE(elf.size() > 200);
  const std::string truncated = WriteFile("truncated.elf", elf.substr(0, elf.size() / 2));
  const std::string header_only = WriteFile("header.elf", elf.substr(0, 40));
  const std::string text = WriteFile("text.txt", std::string(10000, 'x'));
  const std::string empty = WriteFile("empty", "");
  const std::string folder = TempFile("reproduction");
  const std::string high = WriteFile("high", FlatKernel({0xf4}, 0x40000000));
  std::string other_class = elf;
  other_class[18] = 40;  // e_machine: ARM
  const std::string arm = WriteFile("arm.elf", other_class);
  struct Case {
    std::vector<std::string> arguments;
    int status;
    const char* mentions;
  };
  const Case cases[] = {
      {{"frobnicate"}, 64, "frobnicate"},
      {{"run"}, 64, "IMAGE"},
      {{"run", hello, "--frobnicate"}, 64, "--frobnicate"},
      {{"run", hello, hello}, 64, ""},
      {{"run", hello, "--policy", "sometimes"}, 64, "hysteresis(N,M,WINDOW)"},
      {{"bench", "--policy", "always", "--policy", "sometimes"},
       64,
       "'sometimes'; known policies: never"},
      {{"run", hello, "--smp", "0"}, 64, "--smp: 0 is not a number of CPUs here; give 1 to 16"},
      {{"run", hello, "--smp", "17"}, 64, "give 1 to 16"},
      {{"run", hello, "--smp", "two"}, 64, "--smp"},
      {{"run", hello, "--smp", "2", "--engine", "hardware"}, 64, "runs one CPU"},
      {{"run", hello, "--vcpu-threads", "two"}, 64, "--vcpu-threads"},
      {{"run", hello, "--smp", "2", "--vcpu-threads", "each", "--gdb", ":1"},
       64,
       "--vcpu-threads each: --gdb shows an order, which there is none; give --vcpu-threads one"},
      {{"run", hello, "--vcpu-threads", "each", "--trace", "irq"}, 64, "--trace shows an order"},
      {{"run", hello, "--vcpu-threads", "each", "--coherence", "dropped"}, 64, "must be eager"},
      {{"run", hello, "--vcpu-threads", "each", "--vmi"}, 64, "CPUs that take turns"},
      {{"run", hello, "--engine", "diesel"},
       64,
       "there is no engine 'diesel'; there are translate, auto, direct, hardware"},
      {{"run", hello, "--engine", "translate", "--engine-policy", "never"},
       64,
       "there is none under translate"},
      {{"run", hello, "--engine", "direct", "--engine-policy", "never"},
       64,
       "decides under engine auto only; direct's is always"},
      {{"run", hello, "--engine-policy", "sometimes"},
       64,
       "there are never, always, cost-model, or a plug-in's file"},
      {{"run", hello, "--engine", "auto", "--engine-policy", "./missing.so"},
       64,
       "engine policy plug-in './missing.so' cannot be read"},
      {{"run", hello, "--engine", "hardware", "--profile", "/dev/null"},
       64,
       "--profile needs --engine translate"},
      {{"run", hello, "--engine", "hardware", "--trace", "io,adapt"},
       64,
       "needs --engine translate"},
      {{"run", hello, "--coherence", "lazy"}, 64, "there are eager, deferred, dropped"},
      {{"run", hello, "--hosting", "views=0"}, 64, "views is a number"},
      {{"bench", "--coherence", "lazy"}, 64, "'lazy'"},
      {{"bench", "linux", "--coherence", "lazy"}, 64, "'lazy'"},
      {{"run", hello, "--vmi=tlb"},
       64,
       "'tlb'; give full, transparent, or some of flags,returns,mmu"},
      {{"bench", "vmi", "--json", "/no/such/folder/x"}, 73, "cannot be written"},
      {{"bench", "linux", "--policy", "sometimes"}, 64, "'sometimes'; known policies: never"},
      {{"run", hello, "--policy", "./missing.so"}, 64, "'./missing.so' cannot be read"},
      {{"run", hello, "--policy", hello}, 64, "cannot be loaded"},
      {{"dump", "--hex", "f4", "--policy", "./missing.so"}, 64, "'./missing.so' cannot be read"},
      {{"run", hello, "--profile", "/nonexistent/p.json"}, 73, "/nonexistent/p.json"},
      {{"lab", "frobnicate"}, 64, "frobnicate"},
      {{"lab", "reproduce", "--from", text, "--quick"}, 64, "--quick"},
      {{"lab", "reproduce", "--from", text, "--out", text}, 73, "text.txt/reproduction.md"},
      {{"lab", "reproduce", "--from", text, "--out", folder}, 66, "no measurements"},
      {{"lab", "reproduce", "--from", "/nonexistent/m", "--out", folder}, 66, "/nonexistent/m"},
      {{"lab", "replay"}, 64, "LOG"},
      {{"lab", "replay", hello}, 64, "--policy"},
      {{"lab", "replay", hello, "--policy", "sometimes"}, 64, "'sometimes'"},
      {{"lab", "replay", hello, "--engine-policy", "sometimes"},
       64,
       "no engine policy 'sometimes'"},
      {{"lab", "replay", hello, "--policy", "always", "--engine-policy", "never"},
       64,
       "one after the other"},
      {{"lab", "replay", hello, "--engine-policy", "never"}, 65, "no event log"},
      {{"lab", "replay", hello, "--engine-policy", "never", "--slowdown", "0"}, 64, "--slowdown"},
      {{"lab", "replay", "/nonexistent/log", "--engine-policy", "never"}, 66, "/nonexistent/log"},
      {{"lab", "replay", hello, "--policy", "always"}, 65, "no event log"},
      {{"lab", "replay", "/nonexistent/log", "--policy", "always"}, 66, "/nonexistent/log"},
      {{"run", hello, "--trace=nothing"}, 64, "translate"},
      {{"run", hello, "--ram", "0"}, 64, "--ram"},
      {{"run", hello, "--ram", "512K"}, 64, "--ram"},
      {{"run", hello, "--ram", "-1"}, 64, "--ram"},
      {{"run", hello, "--ram", "128Q"}, 64, "128Q"},
      {{"run", hello, "--ram", "1048577"}, 64, "--ram"},
      {{"run", hello, "--ram", "99999999999999999999"}, 64, "--ram"},
      {{"run", hello, "--ram", "1000T"}, 71, "this host"},
      {{"run", hello, "--tc-size", "1K"}, 64, "--tc-size"},
      {{"run", hello, "--tc-size", "8G"}, 64, "--tc-size"},
      {{"run", "/nonexistent/image"}, 66, "/nonexistent/image"},
      {{"run", "/"}, 66, "/"},
      {{"run", empty}, 65, "empty"},
      {{"run", text}, 65, "multiboot"},
      {{"run", truncated}, 65, "truncated.elf"},
      {{"run", header_only}, 65, "header.elf"},
      {{"run", arm}, 65, "arm.elf"},
      {{"run", high}, 65, "RAM"},
      {{"run", hello, "--stats-json", "/nonexistent/stats.json"}, 73, "/nonexistent/stats.json"},
      {{"cpu", "extra"}, 64, "extra"},
      {{"cpu", "--model", "486"}, 64, "base64"},
      {{"run", hello, "--cpu", "486"}, 64, "base64"},
      {{"run", hello, "--cpu", "intel,check"}, 64, "enforce"},
      {{"bench", "linux", "--cpu", "486"}, 64, "base64"},
      {{"run"}, 64, "--bios"},
      {{"run", hello, "--bios", hello}, 64, "not both"},
      {{"run", "--bios", empty, "--append", "quiet"}, 64, "--append"},
      {{"run", "--bios", empty}, 65, "multiple of 4096"},
      {{"run", "--bios", text}, 65, "multiple of 4096"},
      {{"run", "--bios", "/nonexistent/rom"}, 66, "/nonexistent/rom"},
      {{"run", hello, "--debug-port", "70000"}, 64, "--debug-port"},
      {{"run", hello, "--net", "wifi"}, 64, "give user, tap, socket or none"},
      {{"run", hello, "--net", "user,hostfwd=tcp:22"}, 64, "write tcp"},
      {{"run", hello, "--net", "tap"}, 64, "ifname"},
      {{"run", hello, "--net", "lance"}, 64, "lance,user"},
      {{"run", hello, "--net", "socket,path=/nonexistent/a,peer=b"}, 71, "/nonexistent/a"},
      {{"run", hello, "--net", "user,capture=/nonexistent/x"}, 71, "/nonexistent/x"},
      {{"run", hello, "--net", "user,tftp=/nonexistent/x"}, 71, "/nonexistent/x"},
      {{"run", hello, "--net", "user,rom=/nonexistent/x"}, 66, "/nonexistent/x"},
      {{"run", hello, "--net", "lance,user,rom=" + text}, 65, "55h AAh"},
      {{"net-sink"}, 64, "SOCKET"},
      {{"net-sink", "/nonexistent/socket"}, 73, "/nonexistent/socket"},
      {{"net-sink", "/dev/null"}, 73, "is in use"},
      {{"run", hello, "--net-optimize", "speed"}, 64, "ports, latch, combine, notify"},
      {{"run", hello, "--console", "vga"}, 64, "--console"},
      // QEMU's options, with what to do instead, and nobody's.
      {{"run", "-smp", "2", hello}, 64, "no option -smp: give --smp N"},
      {{"run", hello, "-m", "512"}, 64, "no option -m: give --ram SIZE"},
      {{"run", "-kernel", hello, "-vnc", ":1"}, 64, "no option -vnc: there is no remote display"},
      {{"run", hello, "--nographic"}, 64, "no option --nographic: the terminal is"},
      {{"run", hello, "-device=virtio-rng-pci"}, 64, "no option -device: devices have"},
      {{"run", hello, "--frobnicate", "yes"}, 64, "no option --frobnicate; see alibi run --help"},
      {{"run", hello, "-xyz", "1"}, 64, "no option -xyz;"},
      {{"cpu", "--frobnicate=1"}, 64, "no option --frobnicate; see alibi cpu --help"},
  };
  for (const Case& c : cases) {
    std::string command;
    for (const std::string& argument : c.arguments) command += " " + argument;
    INFO("alibi" << command);
    const Outcome outcome = Call(c.arguments);
    INFO(outcome.err);
    CHECK(outcome.status == c.status);
    CHECK(OneLine(outcome.err));
    CHECK(outcome.err.find(c.mentions) != std::string::npos);
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("Help and version") {
  const Outcome help = Call({"--help"});
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  for (const char* word : {"run", "cpu", "Exit status", "130", "triple fault"}) {
    INFO(word);
    CHECK(help.out.find(word) != std::string::npos);
  }
  const Outcome run = Call({"run", "--help"});
  CHECK(run.status == 0);
  for (const char* word : {"--ram", "--policy", "--append", "--stats", "--trace", "Ctrl-A X"}) {
    INFO(word);
    CHECK(run.out.find(word) != std::string::npos);
  }
  const std::string version = Call({"--version"}).out;
  CHECK(version.rfind("alibi ", 0) == 0);
  for (const char* command : {"run", "cpu", "log"}) {
    const Outcome outcome = Call({command, "--version"});
    CHECK(outcome.status == 0);
    CHECK(outcome.out == version);
  }
  CHECK(Call({"run", "-version"}).out == version);
  CHECK(Call({}).status == 64);
  const Outcome cpu = Call({"cpu"});
  CHECK(cpu.status == 0);
  CHECK(cpu.out.find("vendor") != std::string::npos);
}

TEST_CASE("A guest ends the process") {
  struct Case {
    const char* what;
    std::vector<u8> code;
    int status;
    const char* mentions;  // on stderr; empty: nothing is said
  };
  const Case cases[] = {
      {"debug exit", {0xb0, 0x00, 0xe6, 0xf4, 0xf4}, 1, ""},
      {"debug exit 5", {0xb0, 0x05, 0xe6, 0xf4, 0xf4}, 11, ""},
      // mov dx, 0x505; mov al, 1; out dx, al
      {"panic", {0x66, 0xba, 0x05, 0x05, 0xb0, 0x01, 0xee, 0xf4}, 84, "panicked"},
      {"undefined instruction", {0x0f, 0x0b}, 80, "triple fault"},
      {"jump into a device", {0xb8, 0, 0, 0xe0, 0xfe, 0xff, 0xe0}, 80, "triple fault"},
      {"jump to nowhere", {0xb8, 0, 0, 0, 0xd0, 0xff, 0xe0}, 80, "triple fault"},
      {"cli; hlt", {0xfa, 0xf4}, 81, "interrupts off"},
      // lgdt [0x10002e]; ljmp 8:0x44; the table with a 16-bit code segment at 1 MB; debug exit 5
      {"16-bit code",
       {0x0f, 0x01, 0x15, 0x2e, 0,    0x10, 0, 0xea, 0x44, 0,    0,    0,    8,   0,
        15,   0,    0x34, 0,    0x10, 0,    0, 0,    0,    0,    0,    0,    0,   0,
        0xff, 0xff, 0,    0,    0x10, 0x9b, 0, 0,    0xb0, 0x05, 0xe6, 0xf4, 0xf4},
       11,
       ""},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    const Outcome outcome =
        Call({"run", WriteFile("kernel", FlatKernel(c.code)), "--ram", "4M", "--no-reboot"});
    INFO(outcome.err);
    CHECK(outcome.status == c.status);
    if (*c.mentions == 0) {
      CHECK(outcome.err.empty());
    } else {
      CHECK(OneLine(outcome.err));
      CHECK(outcome.err.find(c.mentions) != std::string::npos);
    }
  }
}

// A ROM of `size` bytes whose reset vector jumps to `code`, at its last page but for 16 bytes.
std::string Rom(u64 size, const std::vector<u8>& code) {
  std::string rom(size, '\xf4');
  std::copy(code.begin(), code.end(), rom.end() - 0x1000);
  const u8 jump[] = {0xea, 0x00, 0xf0, 0x00, 0xf0};  // jmp f000:f000
  std::copy(std::begin(jump), std::end(jump), rom.end() - 16);
  return rom;
}

TEST_CASE("A ROM starts at the reset vector") {
  // mov al, 'A'; out 0xe9, al; out 0x80, al; mov al, 3; out 0xf4, al
  const std::vector<u8> code = {0xb0, 'A', 0xe6, 0xe9, 0xe6, 0x80, 0xb0, 0x03, 0xe6, 0xf4, 0xf4};
  for (const u64 size : {u64{4096}, u64{12288}, u64{65536}, u64{262144}, u64{16} << 20}) {
    INFO(size);
    const Outcome outcome =
        Call({"run", "--bios", WriteFile("rom", Rom(size, code)), "--memory", "2M", "--trace=io"});
    INFO(outcome.err);
    CHECK(outcome.status == 7);
    CHECK(outcome.out == "A");
    CHECK(outcome.err.find("[io] out 0x80 size 1 value 0x41") != std::string::npos);
  }
  const Outcome halted = Call({"run", "--bios", WriteFile("rom", Rom(4096, {0xfa, 0xf4}))});
  CHECK(halted.status == 81);
  CHECK(OneLine(halted.err));
  // mov al, 6; mov dx, 0xcf9; out dx, al
  const std::vector<u8> reset = {0xb0, 0x06, 0xba, 0xf9, 0x0c, 0xee, 0xf4};
  CHECK(Call({"run", "--bios", WriteFile("rom", Rom(4096, reset)), "--no-reboot"}).status == 80);
  // mov ax, 0x2000; mov dx, 0x604; out dx, ax
  const std::vector<u8> off = {0xb8, 0x00, 0x20, 0xba, 0x04, 0x06, 0xef, 0xf4};
  const Outcome soft_off = Call({"run", "--bios", WriteFile("rom", Rom(4096, off))});
  CHECK(soft_off.status == 0);
  CHECK(soft_off.err.empty());
  // Debug ports of the caller's choice: mov al, 'A'; out 0x99, al; then as above.
  const std::vector<u8> other = {0xb0, 'B', 0xe6, 0x99, 0xb0, 0x03, 0xe6, 0xf4, 0xf4};
  CHECK(Call({"run", "--bios", WriteFile("rom", Rom(4096, other)), "--debug-port", "0x99"}).out ==
        "B");
}

TEST_CASE("A reset starts the machine again") {
  // Counts its starts in memory outside the image, which a reset leaves alone, and shows each.
  // inc byte [0x500000]; mov al, [0x500000]; add al, 'A' - 1; out 0xe9, al; cmp al, 'C'; jne away;
  // mov al, 3; out 0xf4, al; away:
  const std::vector<u8> count = {0xfe, 0x05, 0x00, 0x00, 0x50,    0x00, 0xa0, 0x00,
                                 0x00, 0x50, 0x00, 0x04, 'A' - 1, 0xe6, 0xe9, 0x3c,
                                 'C',  0x75, 0x04, 0xb0, 0x03,    0xe6, 0xf4};
  struct Way {
    const char* what;
    std::vector<u8> code;
  };
  const Way ways[] = {
      {"triple fault", {0x0f, 0x0b}},
      {"port 0xcf9", {0xb0, 0x06, 0xba, 0xf9, 0x0c, 0x00, 0x00, 0xee, 0xf4}},
      {"port 0x92", {0xb0, 0x01, 0xe6, 0x92, 0xf4}},
      {"keyboard controller", {0xb0, 0xfe, 0xe6, 0x64, 0xf4}},
      // mov dword [0xfee00300], 0x4500: INIT to itself
      {"INIT", {0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0x00, 0x45, 0x00, 0x00, 0xf4}},
  };
  for (const Way& way : ways) {
    INFO(way.what);
    std::vector<u8> code = count;
    code.insert(code.end(), way.code.begin(), way.code.end());
    const Outcome outcome = Call({"run", WriteFile("kernel", FlatKernel(code)), "--ram", "8M"});
    INFO(outcome.err);
    CHECK(outcome.status == 7);
    CHECK(outcome.out == "ABC");
    CHECK(outcome.err.empty());
  }
  const Outcome loop = Call({"run", WriteFile("kernel", FlatKernel({0x0f, 0x0b})), "--ram", "8M"});
  CHECK(loop.status == 82);
  CHECK(OneLine(loop.err));
  CHECK(loop.err.find("--no-reboot") != std::string::npos);
}

TEST_CASE("SeaBIOS runs its POST and finds nothing to boot") {
  for (const char* rom : {"bios.bin", "bios-256k.bin"}) {
    const std::string path = std::string("/usr/share/seabios/") + rom;
    if (access(path.c_str(), R_OK) != 0) {
      WARN(path << " is missing (apt-get install seabios)");
      continue;
    }
    INFO(path);
    const std::string dump = TempFile("screen.txt");
    const Outcome outcome = Call({"run", "--bios", path, "--ram", "32M", "--screen-dump", dump});
    INFO(outcome.err);
    CHECK(outcome.status == 86);
    CHECK(OneLine(outcome.err));
    CHECK(outcome.err.find("no bootable device") != std::string::npos);
    for (const char* text : {"SeaBIOS (version", "Running on QEMU (i440fx)", "e820 map has",
                             "PS2 keyboard initialized"}) {
      INFO(text);
      CHECK(outcome.out.find(text) != std::string::npos);
    }
    // Through the video BIOS, which comes with the package.
    const std::string screen = Contents(dump);
    CHECK(screen.rfind("SeaBIOS (version", 0) == 0);
    CHECK(screen.find("No bootable device.\n") != std::string::npos);
  }
}

TEST_CASE("A kernel gets its name, its command line and its modules") {
  const std::vector<u8> code = {
      0x8b, 0x73, 0x10,                    // mov esi, [ebx + 16]: the command line
      0xac, 0x84, 0xc0, 0x74, 0x04,        // 1: lodsb; test al, al; jz 2f
      0xe6, 0xe9, 0xeb, 0xf7,              // out 0xe9, al; jmp 1b
      0x8b, 0x73, 0x18,                    // 2: mov esi, [ebx + 24]: the modules
      0x8b, 0x4e, 0x14, 0x8b, 0x76, 0x10,  // the second one's end and start
      0x29, 0xf1,                          // sub ecx, esi
      0xac, 0xe6, 0xe9, 0xe2, 0xfb,        // 3: lodsb; out 0xe9, al; loop 3b
      0x8b, 0x43, 0x14, 0xe6, 0xf4, 0xf4,  // mov eax, [ebx + 20]; out 0xf4, al: how many
  };
  const std::string kernel = WriteFile("kernel", FlatKernel(code));
  const std::string one = WriteFile("one", "first"), two = WriteFile("two", "|NAME=value");
  const std::string modules = one + " with arguments," + two;
  for (const std::string dashes : {"-", "--"}) {
    std::vector<std::string> arguments = {"run", dashes + "append", "a b=c", dashes + "initrd",
                                          modules};
    if (dashes == "-") arguments.push_back("-kernel");
    arguments.push_back(kernel);
    const Outcome outcome = Call(arguments);
    INFO(outcome.err);
    CHECK(outcome.status == 5);
    CHECK(outcome.out == kernel + " a b=c|NAME=value");
  }
  const Outcome missing = Call({"run", kernel, "--initrd", one + ",/nonexistent/module"});
  CHECK(missing.status == 66);
  CHECK(missing.err.find("/nonexistent/module") != std::string::npos);
}

TEST_CASE("CPU models") {
  struct Model {
    const char* name;
    std::vector<const char*> words;
  };
  for (const Model& model : {
           Model{"base64",
                 {"Alibi base64 virtual CPU", "sse4_2", "MTRR_FIX64K_00000", "read-only"}},
           Model{"intel", {"Alibi intel-v1 virtual CPU", "GenuineIntel", "RDCL_NO", "PRED_CMD"}},
           Model{"amd-v1", {"Alibi amd-v1 virtual CPU", "AuthenticAMD", "SRSO_NO", "SYSCFG"}},
           Model{"host", {"this host", "hypervisor", "EFER"}},
       }) {
    for (const char* option : {"--cpu", "--model"}) {
      const Outcome shown = Call({"cpu", option, model.name});
      CHECK(shown.status == 0);
      for (const char* word : model.words) {
        INFO(model.name << ": " << word);
        CHECK(shown.out.find(word) != std::string::npos);
      }
    }
    CHECK(Call({"run", "--cpu", model.name, HelloImage()}).out == "hello\n");
    // Either the host has all of the model, or it says what not, and refuses when it is told to.
    const bool lacks = Call({"cpu", "--cpu", model.name}).out.find("lacks") != std::string::npos;
    const Outcome strict =
        Call({"run", "--cpu", model.name + std::string(",enforce"), HelloImage()});
    CHECK(strict.status == (lacks ? 69 : 1));
    CHECK((strict.err.find("lacks") != std::string::npos) == lacks);
  }
}

TEST_CASE("Hello, with every policy, statistics and traces") {
  for (const char* policy : {"never", "always", "threshold(1)", "hysteresis(2,16)"}) {
    INFO(policy);
    const std::string json_file = TempFile("stats.json");
    const Outcome outcome = Call({"run", HelloImage(), "--ram", "16M", "--policy", policy,
                                  "--stats", "--stats-json", json_file, "--trace=all"});
    CHECK(outcome.status == 1);
    CHECK(outcome.out == "hello\n");
    CHECK(outcome.err.find("TUs translated") != std::string::npos);
    CHECK(outcome.err.find("[translate] pc ") != std::string::npos);
    CHECK(outcome.err.find("[io] out 0x3f8 size 1 value 0x68") != std::string::npos);
    const auto json = nlohmann::json::parse(Contents(json_file));
    CHECK(json["runtime"]["translations"].get<u64>() > 0);
    CHECK(json["mmu"].contains("true_faults"));
    CHECK(json["vmm"]["port_writes"].get<u64>() >= 6);
    CHECK(json["sites"].is_array());
    CHECK(std::string(policy).find(json["policy"].get<std::string>()) == 0);
  }
}

TEST_CASE("Little room is an error, not a crash") {
  const Outcome outcome = Call({"run", HelloImage()}, [] {
    const rlimit limit{u64{1} << 32, u64{1} << 32};
    setrlimit(RLIMIT_AS, &limit);
  });
  INFO(outcome.err);
  CHECK((outcome.status == 69 || outcome.status == 71));
  CHECK(OneLine(outcome.err));
  const Outcome files = Call({"run", HelloImage()}, [] {
    const rlimit limit{5, 5};
    setrlimit(RLIMIT_NOFILE, &limit);
  });
  INFO(files.err);
  CHECK(files.status == 71);
  CHECK(OneLine(files.err));
}

TEST_CASE("A closed output ends the run") {
  // 1: mov dx, 0x3f8; mov al, 10; out dx, al; jmp 1b
  const std::string kernel =
      WriteFile("chatter", FlatKernel({0x66, 0xba, 0xf8, 0x03, 0xb0, 0x0a, 0xee, 0xeb, 0xf7}));
  int out[2], err[2];
  REQUIRE(pipe2(out, O_CLOEXEC) == 0);
  REQUIRE(pipe2(err, O_CLOEXEC) == 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t child = Spawn({"run", kernel, "--ram", "4M"}, null, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  close(null);
  char first;
  CHECK(read(out[0], &first, 1) == 1);
  close(out[0]);
  CHECK(OneLine(ReadAll(err[0])));
  int status;
  waitpid(child, &status, 0);
  CHECK(StatusOf(status) == 74);
}

TEST_CASE("A reader that does not read cannot keep a run from its end") {
  const std::string kernel =
      WriteFile("chatter", FlatKernel({0x66, 0xba, 0xf8, 0x03, 0xb0, 0x0a, 0xee, 0xeb, 0xf7}));
  int out[2];
  REQUIRE(pipe2(out, O_CLOEXEC) == 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t child = Spawn({"run", kernel, "--ram", "4M"}, null, out[1], null);
  pollfd full{out[1], POLLOUT, 0};
  for (int i = 0; i < 1000 && poll(&full, 1, 0) == 1; ++i) usleep(10000);
  CHECK(poll(&full, 1, 0) == 0);
  kill(child, SIGTERM);
  int status = -1;
  for (int i = 0; i < 500 && waitpid(child, &status, WNOHANG) == 0; ++i) usleep(10000);
  CHECK(StatusOf(status) == 143);
  kill(child, SIGKILL);
  for (const int fd : {out[0], out[1], null}) close(fd);
}

TEST_CASE("With --com1 the terminal is COM2, and nothing of a long input is lost") {
  // mov dx, 0x3f8; mov al, 'A'; out dx, al
  // 1: mov dx, 0x2fd; in al, dx; test al, 1; jz 1b; mov dx, 0x2f8; in al, dx; test al, al; jz 2f
  // out dx, al; jmp 1b
  // 2: mov al, 3; out 0xf4, al
  const std::vector<u8> code = {0x66, 0xba, 0xf8, 0x03, 0xb0, 'A',  0xee, 0x66, 0xba, 0xfd, 0x02,
                                0xec, 0xa8, 0x01, 0x74, 0xf7, 0x66, 0xba, 0xf8, 0x02, 0xec, 0x84,
                                0xc0, 0x74, 0x03, 0xee, 0xeb, 0xeb, 0xb0, 0x03, 0xe6, 0xf4};
  const std::string kernel = WriteFile("com2", FlatKernel(code));
  std::string text;
  for (u32 i = 0; text.size() < 300'000; ++i) text += std::to_string(i) + "\n";
  const std::string input = WriteFile("input", text + '\0');
  const std::string output = TempFile("output"), log = TempFile("console");
  std::remove(log.c_str());
  const int in = open(input.c_str(), O_RDONLY | O_CLOEXEC);
  const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const pid_t child = Spawn({"run", kernel, "--ram", "4M", "--com1", log}, in, out, STDERR_FILENO);
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(StatusOf(status) == 7);
  CHECK(Contents(log) == "A");
  CHECK((Contents(output) == text));
  for (const int fd : {in, out}) close(fd);
  const Outcome bad = Call({"run", kernel, "--com1", "/nonexistent/log"});
  CHECK(bad.status == 73);
  CHECK(OneLine(bad.err));
}

TEST_CASE("A guest that prints for ever does not fill the disk") {
  // mov ecx, 100000; 1: mov dx, 0x3f8; mov al, 'A'; out dx, al; mov dh, 2; out dx, al; loop 1b
  // mov al, 3; out 0xf4, al
  const std::vector<u8> code = {0xb9, 0xa0, 0x86, 0x01, 0x00, 0x66, 0xba, 0xf8, 0x03, 0xb0, 'A',
                                0xee, 0xb6, 0x02, 0xee, 0xe2, 0xf4, 0xb0, 0x03, 0xe6, 0xf4};
  const std::string kernel = WriteFile("endless", FlatKernel(code));
  const std::string file = TempFile("serial"), out_file = TempFile("stdout");
  const std::string full =
      "alibi: a serial port's file has had 65536 bytes of this run; the rest is left out: see "
      "--serial-size\n";
  Outcome outcome = Call({"run", kernel, "--ram", "4M", "--serial", file, "--serial-size", "64K"});
  CHECK(outcome.status == 7);
  CHECK(outcome.err == full);
  CHECK((Contents(file) == std::string(65536, 'A')));

  // Two files: --com1's, which has something already, and our own output. A pipe has no bound.
  WriteFile("serial", "before");
  const auto into_file = [&] {
    dup2(open(out_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
  };
  const std::vector<std::string> com1 = {"run",    kernel, "--ram",         "4M",
                                         "--com1", file,   "--serial-size", "64K"};
  outcome = Call(com1, into_file);
  CHECK(outcome.status == 7);
  CHECK(outcome.err == full + full);
  CHECK((Contents(file) == "before" + std::string(65536, 'A')));
  CHECK((Contents(out_file) == std::string(65536, 'A')));
  outcome = Call(com1);
  CHECK(outcome.err == full);
  CHECK(outcome.out.size() == 100'000);

  outcome = Call({"run", kernel, "--serial-size", "much"});
  CHECK(outcome.status == 64);
  CHECK(OneLine(outcome.err));
}

TEST_CASE("A trace keeps to --trace-size, and says that it has ended") {
  const std::string file = TempFile("trace");
  const std::string full =
      "alibi: the trace has 1024 bytes; the rest is left out: see --trace-size\n";
  Outcome outcome = Call({"run", HelloImage(), "--ram", "16M", "--trace=all", "--trace-file", file,
                          "--trace-size", "1K"});
  CHECK(outcome.status == 1);
  CHECK(outcome.err == full);
  const std::string trace = Contents(file);
  CHECK(trace.size() > 900);
  CHECK(trace.size() <= 1024);
  CHECK(trace.back() == '\n');
  outcome = Call({"run", HelloImage(), "--ram", "16M", "--trace=all", "--trace-size", "1K"});
  CHECK(outcome.err.size() > 1024);  // a pipe
  CHECK(Call({"run", HelloImage(), "--trace-size", "x"}).status == 64);
}

// A run on a terminal of its own.
class OnTerminal {
 public:
  explicit OnTerminal(const std::vector<std::string>& arguments) {
    REQUIRE(openpty(&master_, &slave_, nullptr, nullptr, nullptr) == 0);
    tcgetattr(slave_, &before_);
    child_ = Spawn(arguments, slave_, slave_, slave_, [this] {
      // The terminal becomes the child's own.
      setsid();
      ioctl(0, TIOCSCTTY, 0);
      close(master_);
    });
  }
  ~OnTerminal() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    close(master_);
    close(slave_);
  }

  bool WaitFor(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (seen_.find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > end) return false;
      pollfd fd{master_, POLLIN, 0};
      if (poll(&fd, 1, 100) <= 0) continue;
      char buffer[256];
      const ssize_t n = read(master_, buffer, sizeof(buffer));
      if (n > 0) seen_.append(buffer, static_cast<size_t>(n));
    }
    return true;
  }
  void Type(const std::string& keys) {
    REQUIRE(write(master_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }
  void Send(int signal) { kill(child_, signal); }
  int Wait() {
    for (int i = 0; i < 2000; ++i) {
      int status;
      if (waitpid(child_, &status, WNOHANG) == child_) {
        child_ = -1;
        return StatusOf(status);
      }
      usleep(10000);
    }
    return -1;
  }
  bool IsRaw() const {
    termios now;
    tcgetattr(slave_, &now);
    return (now.c_lflag & (ICANON | ECHO)) == 0;
  }
  bool IsRestored() const {
    termios now;
    tcgetattr(slave_, &now);
    return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag &&
           now.c_oflag == before_.c_oflag &&
           std::memcmp(now.c_cc, before_.c_cc, sizeof(now.c_cc)) == 0;
  }
  const std::string& seen() const { return seen_; }

 private:
  int master_ = -1, slave_ = -1;
  pid_t child_ = -1;
  termios before_{};
  std::string seen_;
};

// Says '>', then echoes in upper case what comes (by polling), for ever.
//   mov dx, 0x3f8; mov al, '>'; out dx, al
//   1: mov dx, 0x3fd; in al, dx; test al, 1; jz 1b; mov dx, 0x3f8; in al, dx; xor al, 0x20
//   out dx, al; jmp 1b
std::string EchoKernel() {
  return WriteFile("echo", FlatKernel({0x66, 0xba, 0xf8, 0x03, 0xb0, '>',  0xee, 0x66, 0xba,
                                       0xfd, 0x03, 0xec, 0xa8, 0x01, 0x74, 0xf7, 0x66, 0xba,
                                       0xf8, 0x03, 0xec, 0x34, 0x20, 0xee, 0xeb, 0xed}));
}

TEST_CASE("The terminal is raw while the guest runs, and restored whatever ends it") {
  struct Case {
    const char* what;
    std::function<void(OnTerminal&)> end;
    int status;
  };
  const Case cases[] = {
      {"SIGINT", [](OnTerminal& t) { t.Send(SIGINT); }, 130},
      {"Ctrl-A X", [](OnTerminal& t) { t.Type("\x01x"); }, 0},
      {"SIGTERM", [](OnTerminal& t) { t.Send(SIGTERM); }, 143},
      {"SIGHUP", [](OnTerminal& t) { t.Send(SIGHUP); }, 129},
      {"SIGABRT", [](OnTerminal& t) { t.Send(SIGABRT); }, 70},
  };
  const std::string kernel = EchoKernel();
  for (const Case& c : cases) {
    INFO(c.what);
    OnTerminal terminal({"run", kernel, "--ram", "4M"});
    REQUIRE(terminal.WaitFor(">"));
    CHECK(terminal.IsRaw());
    CHECK(terminal.seen().find("alibi: Ctrl-C goes to the guest; Ctrl-A X ends") !=
          std::string::npos);
    terminal.Type("\x03");  // comes back as '#'
    CHECK(terminal.WaitFor("#"));
    terminal.Type("abc");
    CHECK(terminal.WaitFor("ABC"));
    terminal.Type("\x01\x01");  // Ctrl-A itself, which comes back as '!'
    CHECK(terminal.WaitFor("!"));
    terminal.Type(
        "\x01"
        "c");  // another Ctrl-C
    CHECK(terminal.WaitFor("!#"));
    c.end(terminal);
    CHECK(terminal.Wait() == c.status);
    CHECK(terminal.IsRestored());
  }
}

TEST_CASE("With --com1 Ctrl-C ends the run") {
  // Says '>' on COM2, and waits.
  const std::string kernel =
      WriteFile("waiter", FlatKernel({0x66, 0xba, 0xf8, 0x02, 0xb0, '>', 0xee, 0xeb, 0xfe}));
  OnTerminal terminal({"run", kernel, "--ram", "4M", "--com1", TempFile("com1.txt")});
  REQUIRE(terminal.WaitFor(">"));
  terminal.Type("\x03");
  CHECK(terminal.Wait() == 130);
  CHECK(terminal.IsRestored());
}

// Writes "Hi" to the top left of the screen in white on blue, and ends.
const std::vector<u8> kScreenCode = {0xc7, 0x05, 0x00, 0x80, 0x0b, 0x00, 'H', 0x1f, 'i', 0x1f};

TEST_CASE("The screen, without a terminal and with one") {
  std::vector<u8> code = kScreenCode;
  code.insert(code.end(), {0xb0, 0x00, 0xe6, 0xf4});
  const std::string kernel = WriteFile("screen", FlatKernel(code));
  const std::string dump = TempFile("screen.txt"), serial = TempFile("serial.txt");
  Outcome outcome = Call({"run", kernel, "--ram", "4M", "--screen-dump", dump});
  CHECK(outcome.status == 1);
  CHECK(outcome.out.empty());
  CHECK(Contents(dump) == "Hi\n");
  outcome = Call({"run", kernel, "--ram", "4M", "--display=text", "--serial", serial});
  CHECK(outcome.status == 1);
  CHECK(outcome.out == "Hi\n");
  CHECK(Contents(serial).empty());
  outcome = Call({"run", kernel, "--ram", "4M", "--screen-dump", "/nonexistent/file"});
  CHECK(outcome.status == 73);
  CHECK(OneLine(outcome.err));
  CHECK(Call({"run", kernel, "--serial", "/nonexistent/file"}).status == 73);

  // Shows the scan codes that come from the keyboard behind the greeting: in al, 64h; test al, 1;
  // jz; in al, 60h; mov [0xb8004], al; jmp
  code = kScreenCode;
  code.insert(code.end(), {0xe4, 0x64, 0xa8, 0x01, 0x74, 0xfa, 0xe4, 0x60, 0xa2, 0x04, 0x80, 0x0b,
                           0x00, 0xeb, 0xf1});
  const std::string keyboard = WriteFile("keyboard", FlatKernel(code));
  for (const bool killed : {false, true}) {
    OnTerminal terminal({"run", keyboard, "--ram", "4M", "--display=text"});
    REQUIRE(terminal.WaitFor("\x1b[?1049h"));
    REQUIRE(terminal.WaitFor("Hi"));
    CHECK(terminal.IsRaw());
    terminal.Type("a");  // released: 9eh, which code page 437 shows as a peseta sign
    CHECK(terminal.WaitFor("\u20a7"));
    if (killed) {
      terminal.Send(SIGTERM);
    } else {
      terminal.Type("\x01x");
    }
    CHECK(terminal.WaitFor("\x1b[?1049l"));
    CHECK(terminal.Wait() == (killed ? 143 : 0));
    CHECK(terminal.IsRestored());
  }
}

TEST_CASE("A guest that computes or sleeps can be stopped at once") {
  const std::vector<u8> loops[] = {
      {0xeb, 0xfe},                                               // jmp $
      {0xff, 0xc0, 0xeb, 0xfc},                                   // inc eax; jmp
      {0xbc, 0, 0, 0x20, 0, 0xe8, 0, 0, 0, 0, 0x58, 0xeb, 0xf8},  // calls
      {0xb9, 0xff, 0xff, 0xff, 0xff, 0xe2, 0xfe, 0xeb, 0xf7},     // loop $
  };
  for (const auto& code : loops) {
    OnTerminal terminal({"run", WriteFile("loop", FlatKernel(code)), "--ram", "4M"});
    auto begin = std::chrono::steady_clock::now();
    // Signals are caught from just before the terminal becomes raw; the guest runs a little later.
    while (!terminal.IsRaw()) {
      REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
      usleep(1000);
    }
    usleep(50000);
    begin = std::chrono::steady_clock::now();
    terminal.Send(SIGTERM);
    CHECK(terminal.Wait() == 143);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  }
}

TEST_CASE("The documentation has every exit status") {
  const std::string help = Call({"--help"}).out;
  const std::string page = Contents(std::getenv("EXIT_CODES"));
  std::size_t at = help.find("Exit status:");
  REQUIRE(at != std::string::npos);
  std::size_t rows = 0;
  while ((at = help.find("\n  ", at)) != std::string::npos) {
    const std::size_t begin = at + 3;
    at = help.find('\n', begin);
    const std::string number = help.substr(begin, help.find(' ', begin) - begin);
    INFO(number);
    CHECK(page.find("| " + number + " |") != std::string::npos);
    ++rows;
  }
  CHECK(rows > 10);
}

}  // namespace
}  // namespace alibi
