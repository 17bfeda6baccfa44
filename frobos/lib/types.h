// SPDX-License-Identifier: Apache-2.0
// Integer names of 64-bit guest code.
#ifndef ALIBI_FROBOS_LIB_TYPES_H_
#define ALIBI_FROBOS_LIB_TYPES_H_

#include <cstddef>
#include <cstdint>

#include "frobos/common/types.h"

#endif  // ALIBI_FROBOS_LIB_TYPES_H_
