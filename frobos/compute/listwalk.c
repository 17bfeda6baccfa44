/* SPDX-License-Identifier: Apache-2.0 */
/* Pointer chasing over nodes in random order on many pages: one dependent load after the other. */
#include "frobos/compute/compute.h"

enum { kNodes = 8192 };

struct Node {
  struct Node* next;
  uint64_t payload;
  uint64_t padding[6];
};
static struct Node list[kNodes];
static unsigned order[kNodes];

uint64_t run_listwalk(unsigned scale) {
  uint64_t state = 0xfeedface12345ull, checksum = 0;
  for (unsigned i = 0; i < kNodes; i++) order[i] = i;
  for (unsigned i = kNodes - 1; i > 0; i--) {
    const unsigned j = (unsigned)(compute_random(&state) % (i + 1));
    const unsigned t = order[i];
    order[i] = order[j];
    order[j] = t;
  }
  for (unsigned i = 0; i < kNodes; i++) {
    list[order[i]].next = &list[order[(i + 1) % kNodes]];
    list[order[i]].payload = i;
  }
  const struct Node* n = list;
  for (unsigned i = 0; i < scale; i++) {
    checksum += n->payload ^ i;
    n = n->next;
  }
  return checksum;
}
