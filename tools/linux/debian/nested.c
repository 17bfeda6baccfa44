/* SPDX-License-Identifier: Apache-2.0 */
/* What the row gdb stops in: five frames deep. */
#include <stdio.h>

struct Node {
  int value;
  struct Node* next;
};

static int leaf(const struct Node* node) { return node->value * 2; }

static int walk(const struct Node* node, int depth) {
  if (depth == 0) return leaf(node);
  struct Node next = {node->value + depth, (struct Node*)node};
  return walk(&next, depth - 1) + 1;
}

int main(void) {
  const struct Node first = {1, NULL};
  printf("%d\n", walk(&first, 3));
  return 0;
}
