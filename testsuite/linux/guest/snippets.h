// SPDX-License-Identifier: Apache-2.0
// The pieces of code of a list: as bytes of the program, and as a table of them. SNIPPETS: the
// list's file, of rows SNIPPET(name, assembly).
#ifndef ALIBI_TESTSUITE_LINUX_GUEST_SNIPPETS_H_
#define ALIBI_TESTSUITE_LINUX_GUEST_SNIPPETS_H_

struct Snippet {
  const char* name;
  const unsigned char *begin, *end;
};
#define SNIPPET(name, text)                                                             \
  asm(".pushsection .rodata.code\n.globl b_" #name ", e_" #name "\nb_" #name ":\n" text \
      "\ne_" #name ":\n.popsection");                                                   \
  extern const unsigned char b_##name[], e_##name[];
#include SNIPPETS
#undef SNIPPET
static const struct Snippet snippets[] = {
#define SNIPPET(name, text) {#name, b_##name, e_##name},
#include SNIPPETS
#undef SNIPPET
};
enum { kSnippets = sizeof(snippets) / sizeof(snippets[0]) };

#endif  // ALIBI_TESTSUITE_LINUX_GUEST_SNIPPETS_H_
