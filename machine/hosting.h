// SPDX-License-Identifier: Apache-2.0
// What a machine keeps so that a switch costs it no mapping calls. Less than all is slower, and for
// experiments: it shows what keeping it is worth (King, Dunlap and Chen 2003, their section 4).
#ifndef ALIBI_MACHINE_HOSTING_H_
#define ALIBI_MACHINE_HOSTING_H_

#include <string>

#include "base/result.h"

namespace alibi {

struct Hosting {
  static constexpr unsigned kAll = ~0u;
  unsigned views = kAll;       // at most, of translated code (mmu/view_pool.h); at least 1
  unsigned satellites = kAll;  // at most, for code that runs directly; at least 1
  // User code that runs directly begins without a page each time, as in a process that it has to
  // itself only while the guest's kernel does not run.
  bool remaps = false;
};

// "all", or of views=NUMBER, satellites=NUMBER and remap what is given, separated by commas.
Result<Hosting> ParseHosting(const std::string& text);

}  // namespace alibi

#endif  // ALIBI_MACHINE_HOSTING_H_
