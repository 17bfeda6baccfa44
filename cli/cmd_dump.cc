// SPDX-License-Identifier: Apache-2.0
// alibi dump: what became of guest code, as section 3.2 of the paper shows it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <fstream>

#include "cli/cli.h"
#include "inspect/dump/dump_text.h"
#include "inspect/dump/example.h"
#include "inspect/dump/program.h"
#include "inspect/dump/recorder.h"
#include "machine/host_check.h"
#include "pc/boot/file.h"

namespace alibi::vmm {
namespace {

struct DumpOptions {
  std::string image;
  std::string hex;
  std::string example;
  std::string at;
  std::string policy = MachineConfig().policy;
  std::string append;
  unsigned bits = 64;
  unsigned most = 20;
  double seconds = 2;
};

Result<std::vector<u8>> ParseHex(const std::string& text) {
  std::string digits;
  for (char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) || c == ',') continue;
    digits += c;
  }
  std::vector<u8> bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    u8 byte = 0;
    const char* begin = digits.data() + i;
    const char* end = begin + std::min<std::size_t>(2, digits.size() - i);
    const auto [at, error] = std::from_chars(begin, end, byte, 16);
    if (error != std::errc() || at != begin + 2) {
      return Error{
          fmt::format("'{}' is not pairs of hexadecimal digits, such as \"89 f9 c3\"", text)};
    }
    bytes.push_back(byte);
  }
  return bytes;
}

Result<u64> ParseAddress(const std::string& text) {
  const std::size_t skip = text.starts_with("0x") || text.starts_with("0X") ? 2 : 0;
  u64 value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + skip, end, value, 16);
  if (error != std::errc() || at != end || text.size() == skip) {
    return Error{fmt::format("'{}' is no hexadecimal address", text)};
  }
  return value;
}

std::string Dump(PcMachine& machine, const DumpOptions& options, const LinearAddr* only) {
  Machine& inner = machine.machine();
  Recorder recorder(inner.mmu(), *inner.translator());
  inner.translator()->set_translation_observer(&recorder);
  const std::string end = RunLimited(machine, options.seconds);
  inner.translator()->set_translation_observer(nullptr);

  DumpText text(recorder, *inner.translator(), {});
  std::size_t shown = 0;
  std::string translations;
  for (const Translation& translation : recorder.translations()) {
    const LinearAddr guest_end = translation.pc + translation.ccf->guest_bytes;
    if (only != nullptr && (*only < translation.pc || *only >= guest_end)) continue;
    if (++shown > options.most) continue;
    translations += text.TranslationText(translation) + "\n";
  }
  if (only != nullptr) {
    text.Limit(*only, *only + 1);
  }
  std::string out =
      fmt::format("{} translations, {} of them below; {}\n{}\n", recorder.translations().size(),
                  std::min<std::size_t>(shown, options.most), end,
                  recorder.flushed() ? "The TC was flushed: what came after is not "
                                       "shown.\n"
                                     : "");
  if (shown == 0 && only != nullptr) {
    out += fmt::format("No translation covers {:#x}. Translated code begins at:", only->value);
    for (std::size_t i = 0; i < recorder.translations().size() && i < options.most; ++i) {
      out += fmt::format(" {:#x}", recorder.translations()[i].pc.value);
    }
    return out + "\n";
  }
  if (shown <= options.most) out += "Guest code\n" + text.GuestListing() + "\n";
  out += translations;
  if (recorder.flushed() || shown > options.most) {
    return out + (shown > options.most
                      ? "More than --most: choose with --at ADDRESS to see the TC afterwards.\n"
                      : "");
  }
  out += "The TC afterwards, in address order (*: a CCF's first instruction)\n";
  out += text.CacheContents();
  out += "\nExits before and after\n" + text.Exits();
  const std::string adaptations = text.Adaptations();
  if (!adaptations.empty()) out += "\nAdapted\n" + adaptations;
  return out;
}

}  // namespace

int CmdDump(int argc, char** argv) {
  DumpOptions options;
  CLI::App app(
      "Runs guest code and shows its translations: guest listing, IR, CCFs with IDENT and\n"
      "non-IDENT parts, exits before and after chaining, adaptations.");
  auto* image = app.add_option("IMAGE", options.image, "a multiboot kernel");
  auto* hex = app.add_option("--hex", options.hex, "guest code: \"89 f9 c3\"")->type_name("BYTES");
  auto* example = app.add_option("--example", options.example, "isprime: the paper's example")
                      ->check(CLI::IsMember({"isprime"}));
  image->excludes(hex)->excludes(example);
  hex->excludes(example);
  app.add_option("--at", options.at,
                 "with --hex where the code lies, with IMAGE the code that is shown (hexadecimal)")
      ->type_name("ADDRESS");
  app.add_option("--bits", options.bits, "with --hex: 32 or 64 (64)")
      ->check(CLI::IsMember({32, 64}));
  app.add_option("--policy", options.policy,
                 "adaptation policy, as for alibi run (" + options.policy + ")");
  app.add_option("--append", options.append, "with IMAGE: the kernel's command line");
  app.add_option("--most", options.most, "most translations shown (20)")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--seconds", options.seconds, "how long the code may run (2)")
      ->check(CLI::Range(0.01, 3600.0));
  app.footer(ExitCodeHelp());
  if (const auto status = ParseArguments(app, "dump", argc, argv)) return *status;
  if (options.image.empty() && options.hex.empty() && options.example.empty()) {
    return Fail(kUsage, "dump: give an IMAGE, --hex BYTES, or --example isprime");
  }
  if (auto policy = adapt::MakePolicy(options.policy); !policy.ok()) {
    return Fail(kUsage, "--policy: " + policy.error().message);
  }
  LinearAddr at = kProgramAddress;
  if (!options.at.empty()) {
    auto parsed = ParseAddress(options.at);
    if (!parsed.ok()) return Fail(kUsage, "--at: " + parsed.error().message);
    at = LinearAddr(*parsed);
  }
  if (Status host = CheckHost(ReadHostFeatures()); !host.ok()) {
    return Fail(kUnsupportedHost, host.error().message);
  }

  if (!options.example.empty()) {
    auto text = IsPrimeExample(options.policy);
    if (!text.ok()) return Fail(kHostResources, text.error().message);
    fmt::print("{}", *text);
    return kSuccess;
  }
  if (!options.hex.empty()) {
    auto code = ParseHex(options.hex);
    if (!code.ok()) return Fail(kUsage, "--hex: " + code.error().message);
    auto machine = MakeProgramMachine(*code, at, options.bits, options.policy);
    if (!machine.ok()) return Fail(kUsage, "--hex: " + machine.error().message);
    fmt::print("{}", Dump(**machine, options, nullptr));
    return kSuccess;
  }
  auto file = loader::ReadWholeFile(options.image);
  if (!file.ok()) return Fail(kNoInput, file.error().message);
  PcMachineConfig config;
  config.machine.engine = runtime::EngineKind::kTranslate;
  config.machine.policy = options.policy;
  auto machine = PcMachine::Create(config);
  if (!machine.ok()) return Fail(kHostResources, machine.error().message);
  Kernel kernel;
  kernel.image = *file;
  kernel.name = options.image;
  kernel.command_line = options.append;
  if (Status loaded = (*machine)->Load(kernel); !loaded.ok()) {
    return Fail(kBadImage, loaded.error().message);
  }
  fmt::print("{}", Dump(**machine, options, options.at.empty() ? nullptr : &at));
  return kSuccess;
}

}  // namespace alibi::vmm
