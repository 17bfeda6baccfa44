// SPDX-License-Identifier: Apache-2.0
// Kernels in the forms that loaders elsewhere take, from outside: compressed, loaded low, started
// through a BIOS, and those that Debian has.
#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/types.h"
#include "testsuite/command.h"

namespace alibi {
namespace {

std::string Path(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" + name;
}

testsuite::Ended Run(const std::string& arguments, int seconds = 60) {
  const std::string command = "timeout -k 5 " + std::to_string(seconds) + " " +
                              std::getenv("ALIBI") + " run " + arguments + " </dev/null 2>&1";
  return testsuite::RunCommand(command);
}

bool HaveBios() {
  if (access("/usr/share/seabios/bios-256k.bin", R_OK) == 0) return true;
  WARN("SKIP: seabios is not installed");
  return false;
}

void Put(std::vector<u8>& image, u64 at, const std::vector<u8>& bytes) {
  std::copy(bytes.begin(), bytes.end(), image.begin() + static_cast<std::ptrdiff_t>(at));
}

// Setup code that looks whether the kernel is at 64 KB and the command line begins with "q", and
// says how it found them by status 2v+1.
std::string ZImage() {
  constexpr u64 kSetupBytes = 3 * 512;
  std::vector<u8> image(kSetupBytes + 1000, 0x77);
  std::fill(image.begin(), image.begin() + kSetupBytes, u8{0});
  image[0x1f1] = 2;
  Put(image, 0x1f4, {63, 0, 0, 0});  // paragraphs: 1,000 bytes, and the last one is short
  Put(image, 0x1fe, {0x55, 0xaa, 0xeb, 0x66, 'H', 'd', 'r', 'S', 0x03, 0x02});
  Put(image, 0x214, {0, 0x10, 0, 0});
  Put(image, 0x268,
      {
          0xb8, 0x00, 0x10,                       // mov ax, 1000h
          0x8e, 0xc0,                             // mov es, ax
          0xb0, 0x02,                             // mov al, 2
          0x26, 0x80, 0x3e, 0,    0,    0x77,     // cmp byte es:[0], 77h
          0x75, 0x18,                             // jne out
          0xb0, 0x03,                             // mov al, 3
          0x66, 0x8b, 0x1e, 0x28, 0x02,           // mov ebx, [228h]: the command line
          0x66, 0x81, 0xeb, 0,    0,    9,    0,  // sub ebx, 90000h
          0x67, 0x80, 0x3b, 'q',                  // cmp byte [ebx], "q"
          0x75, 0x04,                             // jne out
          0xb0, 0x00,                             // mov al, 0
          0xeb, 0x00,                             // jmp out
          0xe6, 0xf4,                             // out: out 0f4h, al
          0xf4,                                   // hlt
      });
  const std::string path = Path("zImage");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(image.data()),
             static_cast<std::streamsize>(image.size()));
  return path;
}

TEST_CASE("A compressed kernel is decompressed") {
  std::ifstream file(std::getenv("HELLO"), std::ios::binary);
  const std::string hello{std::istreambuf_iterator<char>(file), {}};
  const std::string path = Path("hello.gz");
  gzFile out = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(out, hello.data(), static_cast<unsigned>(hello.size())) ==
          static_cast<int>(hello.size()));
  REQUIRE(gzclose(out) == Z_OK);
  const testsuite::Ended whole = Run(path);
  CHECK(whole.status == Run(std::getenv("HELLO")).status);
  CHECK(whole.output == Run(std::getenv("HELLO")).output);
  REQUIRE(truncate(path.c_str(), 100) == 0);
  const testsuite::Ended cut = Run(path);
  CHECK(cut.status == 65);
  CHECK(cut.output == "alibi: cannot decompress '" + path + "': truncated\n");
}

TEST_CASE("A zImage starts through a BIOS, low") {
  if (!HaveBios()) return;
  const std::string image = ZImage();
  CHECK(Run("--append quiet " + image).status == 1);
  CHECK(Run("--entry 16 --append quiet " + image).status == 1);
  CHECK(Run("--entry 32 " + image).status == 65);
}

TEST_CASE("Debian's memtest86+ and iPXE start") {
  if (!HaveBios()) return;
  const struct {
    const char *path, *arguments, *says;
    int seconds, status;
  } images[] = {
      // They do not end; iPXE finds no network card, and there is nothing else to boot.
      {"/boot/memtest86+x64.bin", "--append console=ttyS0,115200", "Memtest86+", 15, 124},
      {"/boot/memtest86+ia32.bin", "--append console=ttyS0,115200", "Memtest86+", 15, 124},
      {"/boot/ipxe.lkrn", "", "iPXE", 100, 86},
  };
  for (const auto& image : images) {
    if (access(image.path, R_OK) != 0) {
      WARN("SKIP: " << image.path << " (apt-get install memtest86+ ipxe)");
      continue;
    }
    INFO(image.path);
    const testsuite::Ended outcome =
        Run(std::string(image.path) + " " + image.arguments, image.seconds);
    CHECK(outcome.status == image.status);
    CHECK(outcome.output.find(image.says) != std::string::npos);
  }
}

}  // namespace
}  // namespace alibi
