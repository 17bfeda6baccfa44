// SPDX-License-Identifier: Apache-2.0
// Which extensions work on this CPU, found out by executing them.
#ifndef ALIBI_DIRECT_FEATURE_PROBE_H_
#define ALIBI_DIRECT_FEATURE_PROBE_H_

#include <span>
#include <vector>

#include "isa/features.h"

namespace alibi::direct {

// By the instructions of feature_probes.inc, in a child process. Of features that are not in that
// file nothing is said. Empty if there can be no child.
std::vector<isa::Feature> ProbeFeatures();

// An instruction of feature_probes.inc.
struct FeatureProbe {
  isa::Feature feature;
  u8 size;
  u8 bytes[8];
};
std::span<const FeatureProbe> FeatureProbes();

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_FEATURE_PROBE_H_
