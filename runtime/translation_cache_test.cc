// SPDX-License-Identifier: Apache-2.0
// Who can write code.
#include "runtime/translation_cache.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/protection_key.h"
#include "testsuite/host_cpu.h"

namespace alibi::runtime {
namespace {

constexpr u8 kCode[] = {0x31, 0xc0, 0xc3};

// The mappings of the cache's file, as /proc/self/maps lists them.
struct Aliases {
  u64 executable = 0, writable = 0;
};

Aliases FindAliases() {
  Aliases found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:alibi-tc") == std::string::npos) continue;
    const u64 begin = std::stoull(line, nullptr, 16);
    if (line.find(" r-xs ") != std::string::npos) found.executable = begin;
    if (line.find(" rw-s ") != std::string::npos) found.writable = begin;
  }
  return found;
}

// 0, or the SEGV_ code that a process dies of.
int CodeOfSegv(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    struct sigaction action {};
    action.sa_sigaction = [](int, siginfo_t* info, void*) { _exit(info->si_code); };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    work();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("The memory of CCFs to come is there before they are made") {
  constexpr u32 kHot = 120, kCold = 40, kData = 400;
  auto tc = std::move(TranslationCache::Create(u64{16} << 20).value());
  const auto is_there = [](HostAddr at) {
    unsigned char resident = 0;
    REQUIRE(mincore((at - at.value % kPageSize).As(), kPageSize, &resident) == 0);
    return (resident & 1) != 0;
  };
  const u8 code[kHot] = {};
  u64 missing = 0;
  for (u64 i = 0; i < 20'000; ++i) {
    translator::Ccf* ccf = tc->NewCcf();
    const translator::EmitTarget target = tc->Target();
    for (const HostAddr at : {target.hot, target.cold, HostAddr(target.data)}) {
      missing += !is_there(at) || !is_there(at + kPageSize);
    }
    ccf->hot_start = target.hot;
    ccf->cold_start = target.cold;
    tc->Commit(ccf, {.hot_size = kHot,
                     .cold_size = kCold,
                     .data_size = kData,
                     .hot_code = code,
                     .cold_code = code});
  }
  if (testsuite::CanCheck(madvise(tc->stub_host().As(), kPageSize, MADV_POPULATE_READ) == 0,
                          "memory that is there ahead", "Linux 5.14")) {
    CHECK(missing == 0);
  }
}

TEST_CASE("Code is written through an alias that nobody else can use") {
  auto tc = std::move(TranslationCache::Create(1 << 20).value());
  const HostAddr at = tc->stub_host();
  tc->Write(at, kCode, sizeof(kCode));
  CHECK(std::equal(kCode, kCode + sizeof(kCode), at.As()));
  const Aliases aliases = FindAliases();
  REQUIRE(aliases.executable == at.value);
  REQUIRE(aliases.writable != 0);

  CHECK(CodeOfSegv([&] { *at.As<volatile u8>() = 0; }) == SEGV_ACCERR);
  if (!ProtectionKey::OfProcess().exists()) {
    WARN("SKIP: this host has no protection keys");
    return;
  }
  auto* const alias = reinterpret_cast<volatile u8*>(aliases.writable);
  const auto write = [alias] { *alias = 0; };
  CHECK(CodeOfSegv(write) == SEGV_PKUERR);
  CHECK(CodeOfSegv([&] { std::thread(write).join(); }) == SEGV_PKUERR);
  CHECK(CodeOfSegv([&] {
          tc->Write(at, kCode, sizeof(kCode));
          write();
        }) == SEGV_PKUERR);

  // In a handler, too, it is shut before and after.
  static TranslationCache* written;
  static volatile u8* shut;
  written = tc.get();
  shut = alias;
  const auto in_handler = [](void (*handler)(int), const std::function<void()>& around) {
    return CodeOfSegv([&] {
      signal(SIGUSR1, handler);
      around();
    });
  };
  const auto send = [] { raise(SIGUSR1); };
  const auto send_in_scope = [&] {
    const ProtectionKey::Scope open(ProtectionKey::OfProcess());
    raise(SIGUSR1);
    write();  // goes on inside
  };
  const auto in_order = [](int) { written->Write(written->stub_host(), kCode, sizeof(kCode)); };
  CHECK(in_handler(in_order, send) == 0);
  CHECK(in_handler(in_order, send_in_scope) == 0);
#ifndef ALIBI_TSAN  // which calls handlers itself, with the rights of whoever it has interrupted
  const auto past_it = [](int) { *shut = 0; };
  CHECK(in_handler(past_it, send_in_scope) == SEGV_PKUERR);
#endif
}

TEST_CASE("The file of the translation cache is closed once it is mapped") {
  const int next = dup(0);
  close(next);
  auto tc = std::move(TranslationCache::Create(1 << 20).value());
  const int then = dup(0);
  close(then);
  CHECK(then == next);
}

}  // namespace
}  // namespace alibi::runtime
