/* SPDX-License-Identifier: Apache-2.0 */
// A compiler: libtcc over a generated file; then a part of what it made is called.
#include <errno.h>
#include <libtcc.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/linux/guest/linuxbench.h"

// One function in kCalled runs: enough for a checksum, little beside the compiler's work.
enum { kLinesPerFunction = 10, kCalled = 20 };

static void AppendFunction(FILE* file, unsigned i, uint64_t* state) {
  fprintf(
      file,
      "static unsigned f%u(unsigned x, const struct Point* p) {\n"
      "  unsigned sum = x * %uu + (unsigned)p->x;\n"
      "  for (int i = 0; i < (int)(x %% 7) + 1; ++i) {\n"
      "    if ((sum ^ (unsigned)i) & %uu) sum += kTable[i] << (i & 3);\n"
      "    else sum -= %uu / (unsigned)(i + 1);\n"
      "    switch (sum %% 5) { case 0: sum ^= 0x%x; break; case 3: ++sum; default: sum += 2; }\n"
      "  }\n"
      "  return sum + (unsigned)(p->y > p->x ? p->y : -p->x);\n"
      "}\n\n",
      i, NextRandom(state), 1u << (NextRandom(state) % 16), NextRandom(state) % 100000,
      NextRandom(state));
}

static void Report(void* opaque, const char* message) {
  (void)opaque;
  errno = 0;
  Die(message);
}

void WriteSource(FILE* file, unsigned functions, uint64_t seed) {
  fputs(
      "struct Point { int x, y; };\n"
      "static const unsigned kTable[8] = {3, 1, 4, 1, 5, 9, 2, 6};\n",
      file);
  for (unsigned i = 0; i < functions; ++i) AppendFunction(file, i, &seed);
  fputs("unsigned all(unsigned x) {\n  struct Point p = {4, 7};\n", file);
  for (unsigned i = 0; i < functions; i += kCalled) fprintf(file, "  x = f%u(x, &p);\n", i);
  fputs("  return x;\n}\n", file);
}

static TCCState* NewCompiler(int output) {
  TCCState* tcc = tcc_new();
  if (tcc == NULL) Die("tcc_new");
  tcc_set_error_func(tcc, NULL, Report);
  tcc_set_options(tcc, "-nostdlib -nostdinc");
  tcc_set_output_type(tcc, output);
  return tcc;
}

int CompileFile(const char* source, const char* object) {
  TCCState* tcc = NewCompiler(TCC_OUTPUT_OBJ);
  return tcc_add_file(tcc, source) != 0 || tcc_output_file(tcc, object) != 0;
}

uint64_t RunCompile(const struct Run* run) {
  char* source = NULL;
  size_t size = 0;
  FILE* file = open_memstream(&source, &size);
  if (file == NULL) Die("open_memstream");
  WriteSource(file, run->count / kLinesPerFunction, 5);
  fclose(file);
  StartClock();

  TCCState* tcc = NewCompiler(TCC_OUTPUT_MEMORY);
  if (tcc_compile_string(tcc, source) != 0) Die("tcc_compile_string");
  if (tcc_relocate(tcc, TCC_RELOCATE_AUTO) != 0) Die("tcc_relocate");
  unsigned (*all)(unsigned) = (unsigned (*)(unsigned))tcc_get_symbol(tcc, "all");
  if (all == NULL) Die("tcc_get_symbol");
  const uint64_t result = all(1);
  StopClock();
  tcc_delete(tcc);
  free(source);
  return result;
}
