// SPDX-License-Identifier: Apache-2.0
#include "testsuite/oracle/encodings.h"

#include <cstdlib>
#include <sstream>

#include "base/check.h"

namespace alibi::oracle {

namespace {

struct Line {
  const char* name;
  const char* encoding;
};
constexpr Line kLines[] = {
#define ALIBI_ENCODING(name, encoding) {#name, encoding},
#include "testsuite/oracle/encodings.inc"
};

bool IsHexByte(const std::string& word) {
  return word.size() == 2 && word.find_first_not_of("0123456789ABCDEF") == std::string::npos;
}

bool ParseBank(const std::string& word, Bank* bank) {
  constexpr const char* kNames[] = {"gpr", "xmm", "mmx", "k"};
  for (unsigned i = 0; i < 4; ++i) {
    if (word == kNames[i]) {
      *bank = static_cast<Bank>(i);
      return true;
    }
  }
  return false;
}

bool ParseFlag(const std::string& word, InstructionForm* form) {
  struct Flag {
    const char* name;
    bool InstructionForm::*member;
  };
  constexpr Flag kFlags[] = {
      {"M", &InstructionForm::memory_only}, {"R", &InstructionForm::register_only},
      {"lock", &InstructionForm::lock},     {"maybe", &InstructionForm::maybe},
      {"user", &InstructionForm::user},     {"align", &InstructionForm::align},
      {"rare", &InstructionForm::rare},     {"narrow", &InstructionForm::narrow}};
  for (const Flag& flag : kFlags) {
    if (word == flag.name) {
      form->*flag.member = true;
      return true;
    }
  }
  return false;
}

bool ParseVector(const std::string& word, InstructionForm* form) {
  std::size_t at = 0;
  if (word.rfind("evex", 0) == 0) {
    form->space = Space::kEvex;
    at = 4;
  } else if (word.rfind("vex", 0) == 0) {
    form->space = Space::kVex;
    at = 3;
  } else {
    return false;
  }
  if (word[at] == 'n') {
    form->uses_vvvv = false;
    ++at;
  }
  form->any_length = word[at] == 'x';
  if (!form->any_length) form->vector_length = static_cast<u8>(word[at] - '0');
  return true;
}

bool ParseImmediate(const std::string& word, InstructionForm* form) {
  if (word.size() != 2 || word[0] != 'i') return false;
  const std::string kinds = "bwzv";
  const auto at = kinds.find(word[1]);
  if (at == std::string::npos) return false;
  form->immediate = static_cast<Immediate>(at + 1);
  return true;
}

InstructionForm Parse(const Line& line) {
  InstructionForm form;
  form.name = line.name;
  bool rm_stated = false;
  std::istringstream words(line.encoding);
  std::string word;
  words >> word;
  const std::string sizes = "bvydx";
  const auto size = sizes.find(word);
  ALIBI_CHECK(word.size() == 1 && size != std::string::npos, "an encoding begins with its size");
  form.size = static_cast<Size>(size);
  while (words >> word) {
    if (IsHexByte(word)) {
      const bool behind = form.immediate != Immediate::kNone;
      (behind ? form.tail : form.opcode)
          .push_back(static_cast<u8>(std::strtoul(word.c_str(), nullptr, 16)));
    } else if (word[0] == 'p' && IsHexByte(word.substr(1))) {
      form.prefix = static_cast<u8>(std::strtoul(word.c_str() + 1, nullptr, 16));
    } else if (word == "/r") {
      form.modrm = true;
    } else if (word[0] == '/') {
      form.modrm = true;
      form.extension = word[1] - '0';
    } else if (word == "+r") {
      form.reg_in_opcode = true;
    } else if (word == "w0" || word == "w1") {
      form.wide = word[1] - '0';
    } else if (word.size() == 2 && word[0] == 'm' && word[1] <= '9') {
      form.map = static_cast<u8>(word[1] - '0');
    } else if (word.rfind("rm", 0) == 0 && ParseBank(word.substr(2), &form.rm)) {
      rm_stated = true;
    } else if (ParseBank(word, &form.reg)) {
      if (!rm_stated) form.rm = form.reg;
    } else if (!ParseFlag(word, &form) && !ParseVector(word, &form) &&
               !ParseImmediate(word, &form)) {
      ALIBI_CHECK(word == "np", "every word of an encoding is known");
    }
  }
  return form;
}

}  // namespace

const std::vector<InstructionForm>& InstructionForms() {
  static const std::vector<InstructionForm> forms = [] {
    std::vector<InstructionForm> all;
    for (const Line& line : kLines) all.push_back(Parse(line));
    return all;
  }();
  return forms;
}

}  // namespace alibi::oracle
