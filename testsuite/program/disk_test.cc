// SPDX-License-Identifier: Apache-2.0
// Disk images across the end of the program, by whatever means: kill -9 in the middle of writes, a
// full disk, images that cannot be used.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/types.h"

namespace alibi {
namespace {

constexpr u64 kSectorBytes = 512, kSlots = 4, kDataSectors = 64;

std::string Path(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" + name;
}

std::string MakeFile(const std::string& name, const std::string& bytes, u64 size) {
  const std::string path = Path(name);
  std::ofstream(path) << bytes;
  REQUIRE(truncate(path.c_str(), static_cast<off_t>(size)) == 0);
  return path;
}

int Shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
bool HasQemuTools() {
  return Shell("command -v qemu-nbd >/dev/null && command -v qemu-img >/dev/null") == 0;
}

// A run of Alibi whose output can be read as it comes.
class Run {
 public:
  explicit Run(std::vector<std::string> arguments, u64 file_limit = 0) {
    int out[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      dup2(open("/dev/null", O_RDONLY), 0);
      dup2(out[1], 1);
      dup2(out[1], 2);
      if (file_limit != 0) {
        const rlimit limit{file_limit, file_limit};
        setrlimit(RLIMIT_FSIZE, &limit);
      }
      arguments.insert(arguments.begin(), {std::getenv("ALIBI"), "run"});
      std::vector<char*> words;
      for (std::string& word : arguments) words.push_back(word.data());
      words.push_back(nullptr);
      execv(words[0], words.data());
      _exit(127);
    }
    close(out[1]);
    output_ = fdopen(out[0], "r");
  }
  ~Run() {
    if (pid_ > 0) Kill();
    std::fclose(output_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  bool ReadLine(std::string* line) {
    char text[512];
    if (std::fgets(text, sizeof text, output_) == nullptr) return false;
    *line = text;
    return true;
  }
  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  int Wait(std::string* output) {
    for (std::string line; ReadLine(&line);) *output += line;
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  std::FILE* output_ = nullptr;
};

// A sector that is one number over and over; ~0 if it is not.
u32 NumberOf(const std::vector<char>& image, u64 sector) {
  u32 first, other;
  std::memcpy(&first, image.data() + sector * kSectorBytes, 4);
  for (u64 at = 0; at < kSectorBytes; at += 4) {
    std::memcpy(&other, image.data() + sector * kSectorBytes + at, 4);
    if (other != first) return ~u32{0};
  }
  return first;
}

// What frobos/tests/diskstream.cc promises, if flushes mean what they say.
void CheckImage(const std::string& path, u32 announced) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> image((std::istreambuf_iterator<char>(file)), {});
  REQUIRE(image.size() >= (64 + kSlots * kDataSectors) * kSectorBytes);
  u32 newest = 0;
  std::array<u32, kSlots> commits{};
  for (u64 slot = 0; slot < kSlots; ++slot) {
    commits[slot] = NumberOf(image, slot);
    REQUIRE(commits[slot] != ~u32{0});
    newest = std::max(newest, commits[slot]);
  }
  // Nothing flushed is lost; and no more than the next one can have begun.
  CHECK(newest >= announced);
  CHECK(newest <= announced + 1);
  for (u64 slot = 0; slot < kSlots; ++slot) {
    const u32 commit = commits[slot];
    if (commit == 0) continue;
    CHECK(newest - commit < kSlots);
    for (u64 i = 0; i < kDataSectors; ++i) {
      const u32 data = NumberOf(image, 64 + slot * kDataSectors + i);
      INFO("slot " << slot << ", sector " << i << ": " << data << ", committed " << commit);
      // No data of a committed generation is missing; only the one after the newest is under way.
      CHECK((data == commit || (data == commit + kSlots && data == newest + 1)));
    }
  }
}

// `make` makes a fresh image, `to_raw` reads it into `raw`.
void KillInTheMiddle(const std::string& disk, const std::string& raw, const std::string& make,
                     const std::string& to_raw, int rounds) {
  std::mt19937 random(static_cast<u32>(getpid()));
  for (int round = 0; round < rounds; ++round) {
    u32 announced = 0;
    REQUIRE(Shell(make) == 0);
    {
      Run run({std::getenv("KERNEL"), "--disk", disk + ",interface=ide"});
      const u32 enough = 1 + random() % 12;
      for (std::string line; announced < enough && run.ReadLine(&line);) {
        std::sscanf(line.c_str(), "generation %u", &announced);
      }
      REQUIRE(announced == enough);
      usleep(random() % 3000);
      run.Kill();
      // What it said before it died.
      for (std::string line; run.ReadLine(&line);) {
        std::sscanf(line.c_str(), "generation %u", &announced);
      }
    }
    REQUIRE(Shell(to_raw) == 0);
    INFO("round " << round);
    CheckImage(raw, announced);
  }
}

TEST_CASE("kill -9 loses nothing that was flushed and reorders nothing") {
  const std::string path = Path("killed.img");
  KillInTheMiddle(path, path, "rm -f " + path + " && truncate -s 1M " + path, "true", 8);
}

TEST_CASE("kill -9 with a qcow2 image") {
  if (!HasQemuTools()) {
    WARN("SKIP: qemu-utils is not installed");
    return;
  }
  const std::string path = Path("killed.qcow2"), raw = Path("killed.qcow2.img");
  const std::string make = "rm -f " + path + " && qemu-img create -q -f qcow2 " + path + " 1M";
  // qemu-nbd closes the image when it sees that we are gone.
  const std::string convert = "for i in 1 2 3 4 5 6 7 8 9 10; do qemu-img check -q " + path +
                              " 2>/dev/null && qemu-img convert -f qcow2 -O raw " + path + " " +
                              raw + " 2>/dev/null && exit 0; sleep 0.2; done; exit 1";
  KillInTheMiddle(path, raw, make, convert, 3);
}

TEST_CASE("a full disk is an I/O error for the guest and one line for the user") {
  // The limit is above what guest memory, a file as well, needs.
  constexpr u64 kLimit = u64{1} << 30;
  const std::string path = MakeFile("full.img", "", 2 * kLimit);
  std::string output;
  Run run({std::getenv("KERNEL"), "--append", "base=" + std::to_string(kLimit / 512 - 90), "--disk",
           path + ",interface=ide"},
          kLimit);
  CHECK(run.Wait(&output) == 2 * 3 + 1);  // what the kernel ends with when a write fails
  INFO(output);
  CHECK(output.find("write failed") != std::string::npos);
  const std::string wanted = "alibi: disk '" + path + "': writing failed";
  const std::size_t at = output.find(wanted);
  REQUIRE(at != std::string::npos);
  CHECK(output.find(wanted, at + 1) == std::string::npos);
}

TEST_CASE("images that cannot be used: one line, and a status that says which kind") {
  const std::string kernel = std::getenv("KERNEL");
  const std::string good = MakeFile("good.img", "", 1 << 20);
  const auto fails = [&](int status, const std::string& option, const std::string& text,
                         const std::string& word) {
    std::string output;
    Run run({kernel, option, text});
    INFO(option << " " << text);
    CHECK(run.Wait(&output) == status);
    INFO(output);
    CHECK(output.starts_with("alibi: "));
    CHECK(output.find('\n') == output.size() - 1);
    CHECK(output.find(word) != std::string::npos);
  };
  fails(66, "--disk", Path("missing.img"), "No such file");
  fails(66, "--disk", Path(""), "directory");
  fails(65, "--disk", MakeFile("empty.img", "", 0), "empty");
  fails(65, "--disk", MakeFile("liar.img", "QFI\xfb", 4096), "format=");
  fails(65, "--disk", MakeFile("text.qcow2", "text", 4096), "qcow2");
  fails(66, "--cdrom", Path("missing.iso"), "No such file");
  fails(64, "--disk", good + ",format=zip", "format");
  fails(64, "--disk", good + ",colour=red", "colour");
  fails(64, "--disk", ",readonly", "names no file");
  fails(64, "--drive", "if=ide", "names no file");
  if (HasQemuTools()) {
    const std::string backed = Path("backed.qcow2");
    REQUIRE(Shell("qemu-img create -q -f qcow2 -u -b /etc/hostname -F raw " + backed + " 1M") == 0);
    fails(77, "--disk", backed, "/etc/hostname");
    fails(77, "--drive", "file=" + backed + ",format=qcow2,backing=refuse", "/etc/hostname");
    const std::string cut = Path("cut.qcow2");
    REQUIRE(Shell("qemu-img create -q -f qcow2 " + cut + " 64M && truncate -s 70 " + cut) == 0);
    fails(65, "--disk", cut, "cut.qcow2");
  }
  {
    std::string output;
    Run run(
        {kernel, "--cdrom", good, "--cdrom", good, "--cdrom", good, "-hda", good, "-hdb", good});
    CHECK(run.Wait(&output) == 64);
    CHECK(output.find("four IDE drives") != std::string::npos);
  }
  // In use by another Alibi.
  Run first({kernel, "--disk", good + ",interface=ide"});
  for (std::string line; line.find("generation") == std::string::npos;) {
    REQUIRE(first.ReadLine(&line));
  }
  fails(66, "--disk", good, "another program");
  fails(66, "--disk", good + ",readonly", "another program");
}

}  // namespace
}  // namespace alibi
