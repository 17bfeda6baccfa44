// SPDX-License-Identifier: Apache-2.0
#include "cli/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "alibi/version.h"

namespace alibi::vmm {
namespace {

const CLI::Option* FindOption(const CLI::App& app, const std::string& argument) {
  if (argument.starts_with("--")) {
    return app.get_option_no_throw(argument.substr(0, argument.find('=')));
  }
  // Flags of one letter each, in one word.
  const CLI::Option* option = nullptr;
  for (std::size_t at = 1; at < argument.size(); ++at) {
    option = app.get_option_no_throw(std::string("-") + argument[at]);
    if (option == nullptr || option->get_items_expected_max() > 0) break;
  }
  return option;
}

// CLI11 takes what follows an unknown option for an argument in its own right, and complains of
// that one first.
std::optional<std::string> FindUnknownOption(const CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") break;
    if (argument.size() < 2 || argument[0] != '-' ||
        std::isdigit(static_cast<unsigned char>(argument[1]))) {
      continue;
    }
    const CLI::Option* option = FindOption(app, argument);
    if (option == nullptr) return argument.substr(0, argument.find('='));
    if (option->get_items_expected_min() > 0 && argument.find('=') == std::string::npos) ++i;
  }
  return std::nullopt;
}

}  // namespace

std::string ExitCodeHelp() {
  std::string text =
      "Exit status:\n"
      "  2v+1  the guest wrote v to its debug-exit port 0xf4 (1: success by convention)\n";
#define ALIBI_EXIT_CODE(enumerator, number, meaning) \
  text += fmt::format("  {:<5} {}\n", number, meaning);
#include "cli/exit_codes.inc"
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

std::optional<int> ParseArguments(CLI::App& app, const std::string& command, int argc, char** argv,
                                  InsteadOf instead_of) {
  app.name("alibi " + command);
  app.set_version_flag("--version", fmt::format("alibi {}", ALIBI_VERSION));
  if (const auto unknown = FindUnknownOption(app, argc, argv)) {
    std::string message = fmt::format("there is no option {}", *unknown);
    const std::string_view name =
        std::string_view(*unknown).substr(unknown->find_first_not_of('-'));
    const std::string_view advice = instead_of != nullptr ? instead_of(name) : "";
    if (!advice.empty()) message += fmt::format(": {}", advice);
    return Fail(kUsage, fmt::format("{}; see alibi {} --help", message, command));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kSuccess;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
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

std::string UserCacheFolder(const std::string& name) {
  // Relative paths are to be ignored there.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/alibi/" + name;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return "";
  return std::string(home) + "/.cache/alibi/" + name;
}

}  // namespace alibi::vmm
