/* SPDX-License-Identifier: Apache-2.0 */
/* A chained hash table: insert, look up, remove; small nodes, dependent loads. */
#include "frobos/compute/compute.h"

enum { kBuckets = 4096, kMaxNodes = 1 << 15 };

struct Node {
  struct Node* next;
  uint64_t key, value;
};
static struct Node nodes[kMaxNodes];
static struct Node* buckets[kBuckets];
static struct Node* free_list;

static unsigned bucket_of(uint64_t key) {
  return (unsigned)((key * 0x9e3779b97f4a7c15ull) >> 52) % kBuckets;
}

static __attribute__((noinline)) struct Node* find(uint64_t key) {
  struct Node* n = buckets[bucket_of(key)];
  while (n != NULL && n->key != key) n = n->next;
  return n;
}

static __attribute__((noinline)) void insert(uint64_t key, uint64_t value) {
  struct Node* n = find(key);
  if (n == NULL) {
    n = free_list;
    if (n == NULL) return;
    free_list = n->next;
    n->key = key;
    n->next = buckets[bucket_of(key)];
    buckets[bucket_of(key)] = n;
  }
  n->value = value;
}

static __attribute__((noinline)) uint64_t erase(uint64_t key) {
  for (struct Node** p = &buckets[bucket_of(key)]; *p != NULL; p = &(*p)->next) {
    struct Node* n = *p;
    if (n->key == key) {
      *p = n->next;
      n->next = free_list;
      free_list = n;
      return n->value;
    }
  }
  return 0;
}

uint64_t run_hashtable(unsigned scale) {
  uint64_t state = 0x123456789abcdefull, checksum = 0;
  for (unsigned i = 0; i < kBuckets; i++) buckets[i] = NULL;
  free_list = NULL;
  for (unsigned i = 0; i < kMaxNodes; i++) {
    nodes[i].next = free_list;
    free_list = &nodes[i];
  }
  for (unsigned i = 0; i < scale; i++) {
    const uint64_t key = compute_random(&state) % 16384;
    insert(key, i);
    const struct Node* n = find(compute_random(&state) % 16384);
    if (n != NULL) checksum = compute_mix(checksum, n->value);
    if (i % 3 == 0) checksum += erase(compute_random(&state) % 16384);
  }
  return checksum;
}
