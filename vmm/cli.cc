#include "vmm/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>

namespace alibi::vmm {

std::string ExitCodeHelp() {
  std::string text =
      "Exit status:\n"
      "  2v+1  the guest wrote v to its debug-exit port 0xf4 (1: success by convention)\n";
#define ALIBI_EXIT_CODE(enumerator, number, meaning) \
  text += fmt::format("  {:<5} {}\n", number, meaning);
#include "vmm/exit_codes.inc"
#undef ALIBI_EXIT_CODE
  return text;
}

int Fail(ExitCode code, const std::string& message) {
  std::string line = message;
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  fmt::print(stderr, "alibi: {}\n", line);
  return code;
}

std::optional<int> ParseArguments(CLI::App& app, const std::string& command, int argc,
                                  char** argv) {
  app.name("alibi " + command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kSuccess;
  } catch (const CLI::ParseError& error) {
    return Fail(kUsage, fmt::format("{}; see alibi {} --help", error.what(), command));
  }
  return std::nullopt;
}

Result<u64> ParseSize(const std::string& text) {
  const Error wrong{
      fmt::format("'{}' is no size; write a number of bytes, or like 64K, 128M, 2G", text)};
  u64 number = 0;
  const char* end = text.data() + text.size();
  const auto [suffix, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return wrong;
  unsigned shift = 0;
  if (suffix != end) {
    static constexpr std::string_view kSuffixes = "KMGT";
    const std::size_t at = kSuffixes.find(static_cast<char>(std::toupper(*suffix)));
    if (suffix + 1 != end || at == std::string_view::npos) return wrong;
    shift = 10 * (static_cast<unsigned>(at) + 1);
  }
  if (number > (~u64{0} >> shift)) return wrong;
  return number << shift;
}

std::string FormatSize(u64 bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KB", "MB", "GB", "TB"};
  unsigned unit = 0;
  while (unit < 4 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

}  // namespace alibi::vmm
