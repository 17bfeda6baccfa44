// SPDX-License-Identifier: Apache-2.0
// Which extensions work on this CPU, found out by executing them.
#ifndef ALIBI_DIRECT_FEATURE_PROBE_H_
#define ALIBI_DIRECT_FEATURE_PROBE_H_

#include <span>

#include "base/types.h"
#include "isa/features.h"

namespace alibi::direct {

// An instruction of feature_probes.inc.
struct FeatureProbe {
  isa::Feature feature;
  u8 size;
  u8 bytes[8];
};
std::span<const FeatureProbe> FeatureProbes();

// For a child (direct/trial.h): executes them. works[i]: the i-th does not raise #UD.
void ProbeFeatures(u8* works);

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_FEATURE_PROBE_H_
