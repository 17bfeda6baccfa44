// SPDX-License-Identifier: Apache-2.0
// Result<T> belongs to the public headers, which include nothing of ours beside themselves.
#ifndef ALIBI_BASE_RESULT_H_
#define ALIBI_BASE_RESULT_H_

#include "alibi/result.h"
#include "base/check.h"

#endif  // ALIBI_BASE_RESULT_H_
