// SPDX-License-Identifier: Apache-2.0
// Arithmetic of all widths in 16-bit code, against models made from the manual (SDM vol. 1 3.4.3.1
// and the instructions' pages in vol. 2). Undefined flags are masked.

#include "frobos/rom/realmode.h"

namespace alibi::frobos {
namespace {

constexpr u32 kValues[] = {0,      1,      2,      0x0f,       0x10,       0x7e,       0x7f,
                           0x80,   0x81,   0xfe,   0xff,       0x1234,     0x7fff,     0x8000,
                           0x8001, 0xfffe, 0xffff, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff};

struct Width {
  u32 bits;
  u32 mask() const { return bits == 32 ? ~0u : (1u << bits) - 1; }
  u32 sign() const { return 1u << (bits - 1); }
};

u32 ResultFlags(u32 result, Width w) {
  result &= w.mask();
  u32 flags = 0;
  u32 ones = 0;
  for (u32 i = 0; i < 8; i++) ones += result >> i & 1;
  if ((ones & 1) == 0) flags |= kFlagPf;
  if (result == 0) flags |= kFlagZf;
  if ((result & w.sign()) != 0) flags |= kFlagSf;
  return flags;
}

struct Model {
  u32 result;
  u32 flags;
};

Model Add(u32 a, u32 b, u32 carry, Width w) {
  a &= w.mask(), b &= w.mask();
  const u64 sum = u64{a} + b + carry;
  const u32 r = static_cast<u32>(sum) & w.mask();
  u32 flags = ResultFlags(r, w);
  if (sum > w.mask()) flags |= kFlagCf;
  if (((a ^ b ^ r) & 0x10) != 0) flags |= kFlagAf;
  if (((a ^ r) & (b ^ r) & w.sign()) != 0) flags |= kFlagOf;
  return {r, flags};
}
Model Subtract(u32 a, u32 b, u32 borrow, Width w) {
  a &= w.mask(), b &= w.mask();
  const u32 r = (a - b - borrow) & w.mask();
  u32 flags = ResultFlags(r, w);
  if (u64{a} < u64{b} + borrow) flags |= kFlagCf;
  if (((a ^ b ^ r) & 0x10) != 0) flags |= kFlagAf;
  if (((a ^ b) & (a ^ r) & w.sign()) != 0) flags |= kFlagOf;
  return {r, flags};
}

enum Kind : u8 {
  kAdd,
  kAdc,
  kSub,
  kSbb,
  kCmp,
  kAnd,
  kOr,
  kXor,
  kTest,
  kInc,
  kDec,
  kNeg,
  kNot,
  kXadd
};

struct Operation {
  const char* name;
  Kind kind;
  const void* code[3];  // 8, 16, 32 bits: al, cl and so on
};

#define OPERATION(name, kind, text8, text16, text32)              \
  {                                                               \
    name, kind, { CODE16(text8), CODE16(text16), CODE16(text32) } \
  }
#define BINARY(name, kind) OPERATION(name, kind, name " al, cl", name " ax, cx", name " eax, ecx")
#define UNARY(name, kind) OPERATION(name, kind, name " al", name " ax", name " eax")
#define MEMORY(name, kind)                                                              \
  OPERATION(name " to memory", kind, "mov [bx], eax; " name " [bx], cl; mov eax, [bx]", \
            "mov [bx], eax; " name " [bx], cx; mov eax, [bx]",                          \
            "mov [bx], eax; " name " [bx], ecx; mov eax, [bx]")

Model Apply(Kind kind, u32 a, u32 b, u32 carry, Width w) {
  const auto logical = [&](u32 r) { return Model{r & w.mask(), ResultFlags(r, w)}; };
  switch (kind) {
    case kAdd:
    case kXadd:
      return Add(a, b, 0, w);
    case kAdc:
      return Add(a, b, carry, w);
    case kSub:
      return Subtract(a, b, 0, w);
    case kSbb:
      return Subtract(a, b, carry, w);
    case kCmp:
      return {a & w.mask(), Subtract(a, b, 0, w).flags};
    case kAnd:
      return logical(a & b);
    case kOr:
      return logical(a | b);
    case kXor:
      return logical(a ^ b);
    case kTest:
      return {a & w.mask(), logical(a & b).flags};
    case kInc: {
      const Model m = Add(a, 1, 0, w);
      return {m.result, (m.flags & ~kFlagCf) | carry};
    }
    case kDec: {
      const Model m = Subtract(a, 1, 0, w);
      return {m.result, (m.flags & ~kFlagCf) | carry};
    }
    case kNeg:
      return Subtract(0, a, 0, w);
    case kNot:
      return {~a & w.mask(), carry};
  }
  return {};
}

constexpr Width kWidths[] = {{8}, {16}, {32}};

}  // namespace

void TestArithmetic() {
  const Operation operations[] = {
      BINARY("add", kAdd),   BINARY("adc", kAdc), BINARY("sub", kSub), BINARY("sbb", kSbb),
      BINARY("cmp", kCmp),   BINARY("and", kAnd), BINARY("or", kOr),   BINARY("xor", kXor),
      BINARY("test", kTest), UNARY("inc", kInc),  UNARY("dec", kDec),  UNARY("neg", kNeg),
      UNARY("not", kNot),    MEMORY("add", kAdd), MEMORY("sbb", kSbb), MEMORY("xor", kXor),
      BINARY("xadd", kXadd),
  };
  for (const Operation& op : operations) {
    Group cases(op.name);
    for (u32 i = 0; i < 3; i++) {
      const Width w = kWidths[i];
      for (u32 a : kValues) {
        for (u32 b : List{0u, 1u, 0x0fu, 0x7fu, 0x80u, 0xffffu, 0x8000u, 0x80000000u, ~0u}) {
          const u32 carry = (a ^ b) & 1;
          const Outcome o =
              Run(op.code[i], {.eax = a, .ebx = 0x100, .ecx = b, .eflags = 2 | carry});
          const Model m = Apply(op.kind, a, b, carry, w);
          const u32 result = (a & ~w.mask()) | m.result;
          // AF of the logical operations is undefined; NOT changes no flag.
          u32 mask = kFlagsArithmetic;
          if (op.kind == kAnd || op.kind == kOr || op.kind == kXor || op.kind == kTest)
            mask &= ~kFlagAf;
          bool ok =
              o.Done() && o.frame.eax == result && (o.frame.eflags & mask) == (m.flags & mask);
          if (op.kind == kXadd) ok = ok && o.frame.ecx == ((b & ~w.mask()) | (a & w.mask()));
          if (!cases.Case(ok)) {
            Print("FAIL %s %u bits: %x %x: expected %x flags %x got %x flags %x\n", op.name, w.bits,
                  a, b, result, m.flags & mask, o.frame.eax, o.frame.eflags & mask);
          }
        }
      }
    }
  }

  // MUL and IMUL: CF = OF = the upper half counts; the rest is undefined.
  struct Product {
    const char* name;
    const void* code[3];
    bool is_signed;
  };
  const Product products[] = {
      {"mul", {CODE16("mul cl"), CODE16("mul cx"), CODE16("mul ecx")}, false},
      {"imul", {CODE16("imul cl"), CODE16("imul cx"), CODE16("imul ecx")}, true},
  };
  for (const Product& p : products) {
    Group cases(p.name);
    for (u32 i = 0; i < 3; i++) {
      const Width w = kWidths[i];
      const auto extend = [&](u32 v) -> long long {
        v &= w.mask();
        if (!p.is_signed) return v;
        return (v & w.sign()) != 0 ? static_cast<long long>(v) - (1ll << w.bits) : v;
      };
      for (u32 a : kValues) {
        for (u32 b : kValues) {
          const Outcome o = Run(p.code[i], {.eax = a, .ecx = b, .edx = 0x55555555});
          const long long product = extend(a) * extend(b);
          const u32 low = static_cast<u32>(product) & w.mask();
          const u32 high = static_cast<u32>(static_cast<u64>(product) >> w.bits) & w.mask();
          const bool carry = p.is_signed ? product != extend(low) : high != 0;
          u32 eax = low, edx = high;
          if (i == 0) eax = (a & 0xffff0000) | high << 8 | low, edx = 0x55555555;
          if (i == 1) eax |= a & 0xffff0000, edx |= 0x55550000;
          const u32 flags = carry ? kFlagCf | kFlagOf : 0;
          const bool ok = o.Done() && o.frame.eax == eax && o.frame.edx == edx &&
                          (o.frame.eflags & (kFlagCf | kFlagOf)) == flags;
          if (!cases.Case(ok)) {
            Print("FAIL %s %u bits: %x %x: expected %x:%x got %x:%x flags %x\n", p.name, w.bits, a,
                  b, edx, eax, o.frame.edx, o.frame.eax, o.frame.eflags);
          }
        }
      }
    }
  }
  Outcome o = Run(CODE16("imul ax, cx, -3"), {.eax = 0xaaaa0000, .ecx = 100});
  CheckEq("imul with an immediate", o.frame.eax, 0xaaaafed4);
  o = Run(CODE16("imul eax, ecx, 0x12345"), {.ecx = 0x12345});
  CheckEq("... of 32 bits", o.frame.eax, 0x4b65f099);
  CheckEq("... overflowed", o.frame.eflags & (kFlagCf | kFlagOf), kFlagCf | kFlagOf);

  // DIV and IDIV: results, and #DE by zero and by overflow.
  {
    Group cases("div and idiv");
    const void* divisions[2][2] = {{CODE16("div cl"), CODE16("div cx")},
                                   {CODE16("idiv cl"), CODE16("idiv cx")}};
    for (u32 is_signed = 0; is_signed < 2; is_signed++) {
      for (u32 wide = 0; wide < 2; wide++) {
        const Width w = kWidths[wide];
        for (u32 n : List{0u, 1u, 7u, 0xffu, 0x1234u, 0x7fffu, 0x8000u, 0xffffu, 0x12345u,
                          0x7fffffffu, 0x80000000u, 0xffff8000u, 0xffffff80u, ~0u}) {
          for (u32 d :
               List{0u, 1u, 2u, 3u, 0x7fu, 0x80u, 0xffu, 0x100u, 0x7fffu, 0x8000u, 0xffffu}) {
            // QEMU itself dies of it (SDM vol. 2, IDIV: #DE).
            if (OnQemu() && is_signed != 0 && n == 0x80000000 && d == 0xffff) continue;
            const u32 dividend = wide != 0 ? n : n & 0xffff;
            const u32 divisor = d & w.mask();
            bool fault = divisor == 0;
            u32 quotient = 0, remainder = 0;
            if (!fault && is_signed == 0) {
              quotient = dividend / divisor, remainder = dividend % divisor;
              fault = quotient > w.mask();
            } else if (!fault) {
              const long long sn =
                  wide != 0 ? static_cast<i32>(dividend) : static_cast<short>(dividend);
              const i32 sd = (divisor & w.sign()) != 0
                                 ? static_cast<i32>(divisor) - static_cast<i32>(w.mask()) - 1
                                 : static_cast<i32>(divisor);
              // The quotient of -2^31 by -1 needs 33 bits, so magnitudes.
              const u32 mn = static_cast<u32>(sn < 0 ? -sn : sn);
              const u32 md = static_cast<u32>(sd < 0 ? -sd : sd);
              const u32 mq = mn / md, mr = mn % md;
              const bool negative = (sn < 0) != (sd < 0);
              fault = negative ? mq > w.sign() : mq >= w.sign();
              quotient = (negative ? -mq : mq) & w.mask();
              remainder = (sn < 0 ? -mr : mr) & w.mask();
            }
            const u32 eax = n & 0xffff;
            const Outcome r = Run(divisions[is_signed][wide],
                                  {.eax = eax, .ecx = d, .edx = wide != 0 ? n >> 16 : 0});
            bool ok;
            if (fault) {
              ok = r.vector == kDivideError && r.frame.eax == eax &&
                   r.frame.eip == At(divisions[is_signed][wide]);
            } else if (wide != 0) {
              ok = r.Done() && r.frame.eax == quotient && r.frame.edx == remainder;
            } else {
              ok = r.Done() && r.frame.eax == (remainder << 8 | quotient);
            }
            if (!cases.Case(ok)) {
              Print(
                  "FAIL div signed %u wide %u: %x / %x: expected fault %u %x rest %x got vector "
                  "%u %x:%x\n",
                  is_signed, wide, n, d, fault, quotient, remainder, r.vector, r.frame.edx,
                  r.frame.eax);
            }
          }
        }
      }
    }
  }
}

// AAA, AAS, DAA, DAS exhaustively by their pseudo-code in SDM vol. 2; AAM and AAD with several
// bases.
void TestDecimal() {
  const void* code[] = {CODE16("aaa"), CODE16("aas"), CODE16("daa"), CODE16("das")};
  const char* const names[] = {"aaa", "aas", "daa", "das"};
  for (u32 k = 0; k < 4; k++) {
    Group cases(names[k]);
    for (u32 al = 0; al < 256; al++) {
      for (u32 flags : List{0u, kFlagCf, kFlagAf, kFlagCf | kFlagAf}) {
        const u32 ax = 0xfe00 | al;
        const bool adjust = (al & 15) > 9 || (flags & kFlagAf) != 0;
        u32 want = ax, want_flags, mask;
        if (k < 2) {
          if (adjust) want = k == 0 ? ax + 0x106 : (ax - 6) - 0x100;
          want &= 0xff0f;
          want_flags = adjust ? kFlagAf | kFlagCf : 0;
          mask = kFlagAf | kFlagCf;
        } else {
          u32 r = al;
          bool carry = false;
          if (adjust) r = k == 2 ? r + 6 : r - 6;
          if (al > 0x99 || (flags & kFlagCf) != 0) {
            r = k == 2 ? r + 0x60 : r - 0x60;
            carry = true;
          } else if (k == 3 && adjust && al < 6) {
            // DAS also carries when the first subtraction borrows.
            carry = true;
          }
          r &= 0xff;
          want = 0xfe00 | r;
          want_flags = ResultFlags(r, {8}) | (adjust ? kFlagAf : 0) | (carry ? kFlagCf : 0);
          mask = kFlagsArithmetic & ~kFlagOf;
        }
        const Outcome o = Run(code[k], {.eax = ax, .eflags = 2 | flags});
        const bool ok = o.Done() && o.frame.eax == want && (o.frame.eflags & mask) == want_flags;
        if (!cases.Case(ok)) {
          Print("FAIL %s: ax %x flags %x: expected %x flags %x got %x flags %x\n", names[k], ax,
                flags, want, want_flags, o.frame.eax, o.frame.eflags & mask);
        }
      }
    }
  }
  Group cases("aam and aad");
  constexpr u32 kMask = kFlagSf | kFlagZf | kFlagPf;
  for (u32 base : List{10u, 16u, 7u, 1u}) {
    const void* aam = base == 10   ? CODE16("aam")
                      : base == 16 ? CODE16("aam 16")
                      : base == 7  ? CODE16("aam 7")
                                   : CODE16("aam 1");
    const void* aad = base == 10   ? CODE16("aad")
                      : base == 16 ? CODE16("aad 16")
                      : base == 7  ? CODE16("aad 7")
                                   : CODE16("aad 1");
    for (u32 al = 0; al < 256; al += 5) {
      Outcome o = Run(aam, {.eax = 0x7700 | al});
      u32 want = al / base << 8 | al % base;
      bool ok = o.Done() && o.frame.eax == want &&
                (o.frame.eflags & kMask) == ResultFlags(want & 0xff, {8});
      if (!cases.Case(ok)) Print("FAIL aam %u: %x got %x\n", base, al, o.frame.eax);
      o = Run(aad, {.eax = 0x3500 | al});
      want = (al + 0x35 * base) & 0xff;
      ok = o.Done() && o.frame.eax == want && (o.frame.eflags & kMask) == ResultFlags(want, {8});
      if (!cases.Case(ok)) Print("FAIL aad %u: %x got %x\n", base, al, o.frame.eax);
    }
  }
  const void* aam0 = CODE16(".byte 0xd4, 0x00");
  CheckFault("aam 0 is #DE", Run(aam0), kDivideError, At(aam0));
}

void TestShifts() {
  enum Shift : u8 { kRol, kRor, kRcl, kRcr, kShl, kShr, kSar };
  struct Operation {
    const char* name;
    Shift shift;
    const void* code[3];
  };
#define SHIFT(name, shift)                                                                   \
  {                                                                                          \
    name, shift, { CODE16(name " al, cl"), CODE16(name " ax, cl"), CODE16(name " eax, cl") } \
  }
  const Operation operations[] = {SHIFT("rol", kRol), SHIFT("ror", kRor), SHIFT("rcl", kRcl),
                                  SHIFT("rcr", kRcr), SHIFT("shl", kShl), SHIFT("shr", kShr),
                                  SHIFT("sar", kSar)};
  for (const Operation& op : operations) {
    Group cases(op.name);
    for (u32 i = 0; i < 3; i++) {
      const Width w = kWidths[i];
      for (u32 a : kValues) {
        for (u32 count : List{0u, 1u, 2u, 7u, 8u, 9u, 15u, 16u, 17u, 31u, 32u, 33u, 0xffu}) {
          const u32 start = (a >> 3 & 1) * kFlagCf;
          u32 v = a & w.mask();
          u32 carry = start;
          u32 steps = count & 31;
          // Bit by bit, which is what the pseudo-code does, too.
          u32 before = v;
          for (u32 n = 0; n < steps; n++) {
            before = v;
            const u32 top = (v & w.sign()) != 0 ? 1 : 0, bottom = v & 1;
            switch (op.shift) {
              case kRol:
                v = (v << 1 | top) & w.mask(), carry = top;
                break;
              case kRor:
                v = v >> 1 | (bottom != 0 ? w.sign() : 0), carry = bottom;
                break;
              case kRcl:
                v = (v << 1 | carry) & w.mask(), carry = top;
                break;
              case kRcr:
                v = v >> 1 | (carry != 0 ? w.sign() : 0), carry = bottom;
                break;
              case kShl:
                v = (v << 1) & w.mask(), carry = top;
                break;
              case kShr:
                v >>= 1, carry = bottom;
                break;
              case kSar:
                v = v >> 1 | (v & w.sign()), carry = bottom;
                break;
            }
          }
          u32 mask = kFlagCf;
          u32 flags = carry;
          const bool rotates = op.shift <= kRcr;
          if (steps == 0) {
            // No flag changes.
            mask = kFlagsArithmetic;
            flags = start;
          } else {
            if (!rotates) {
              mask |= kFlagSf | kFlagZf | kFlagPf;
              flags |= ResultFlags(v, w);
              // CF is undefined when SHL or SHR shifts by more than the operand has.
              if (op.shift != kSar && steps >= w.bits) mask &= ~kFlagCf;
            }
            if (steps == 1) {
              mask |= kFlagOf;
              const bool top_changed = ((before ^ v) & w.sign()) != 0;
              if (op.shift != kSar && top_changed) flags |= kFlagOf;
              if (op.shift == kShr)
                flags = (flags & ~kFlagOf) | ((a & w.sign()) != 0 ? kFlagOf : 0);
            }
          }
          const Outcome o = Run(op.code[i], {.eax = a, .ecx = count, .eflags = 2 | start});
          const u32 result = (a & ~w.mask()) | v;
          const bool ok =
              o.Done() && o.frame.eax == result && (o.frame.eflags & mask) == (flags & mask);
          if (!cases.Case(ok)) {
            Print("FAIL %s %u bits: %x by %u: expected %x flags %x got %x flags %x\n", op.name,
                  w.bits, a, count, result, flags & mask, o.frame.eax, o.frame.eflags & mask);
          }
        }
      }
    }
  }
  // Double shifts, counts below the width.
  Group cases("shld and shrd");
  const void* doubles[2][2] = {{CODE16("shld ax, dx, cl"), CODE16("shld eax, edx, cl")},
                               {CODE16("shrd ax, dx, cl"), CODE16("shrd eax, edx, cl")}};
  for (u32 right = 0; right < 2; right++) {
    for (u32 wide = 0; wide < 2; wide++) {
      const Width w = kWidths[wide + 1];
      for (u32 count : List{0u, 1u, 5u, 15u}) {
        for (u32 a : kValues) {
          const u32 b = ~a ^ 0x5a5a5a5a;
          const u64 va = a & w.mask(), vb = b & w.mask();
          u64 r;
          u32 carry;
          if (right == 0) {
            r = (va << count | vb >> (w.bits - count)) & w.mask();
            carry = static_cast<u32>(va >> (w.bits - count)) & 1;
          } else {
            r = (va >> count | vb << (w.bits - count)) & w.mask();
            carry = static_cast<u32>(va >> (count - 1)) & 1;
          }
          if (count == 0) r = va, carry = 0;
          const Outcome o = Run(doubles[right][wide], {.eax = a, .ecx = count, .edx = b});
          const bool ok = o.Done() && o.frame.eax == ((a & ~w.mask()) | static_cast<u32>(r)) &&
                          (o.frame.eflags & kFlagCf) == carry;
          if (!cases.Case(ok)) {
            Print("FAIL shxd right %u %u bits: %x %x by %u: got %x\n", right, w.bits, a, b, count,
                  o.frame.eax);
          }
        }
      }
    }
  }
}

void TestBits() {
  const void* code[4][2] = {{CODE16("bt ax, cx"), CODE16("bt [bx], cx")},
                            {CODE16("bts ax, cx"), CODE16("bts [bx], cx")},
                            {CODE16("btr ax, cx"), CODE16("btr [bx], cx")},
                            {CODE16("btc ax, cx"), CODE16("btc [bx], cx")}};
  Group cases("bt, bts, btr, btc");
  for (u32 k = 0; k < 4; k++) {
    for (u32 memory = 0; memory < 2; memory++) {
      for (i32 bit : List{0, 1, 7, 15, 16, 31, 100, -1, -16, -17, 0x7fff, -0x8000}) {
        const u32 base = 0x4000;
        const i32 word = bit >> 4;
        const u32 address = (base + static_cast<u32>(word * 2)) & 0xffff;
        constexpr u32 kOld = 0x5aa5;
        WriteWord(kDataSegment, address, kOld);
        const Outcome o =
            Run(code[k][memory], {.eax = kOld, .ebx = base, .ecx = static_cast<u32>(bit)});
        const u32 one = 1u << (bit & 15);
        const u32 want = k == 0 ? kOld : k == 1 ? kOld | one : k == 2 ? kOld & ~one : kOld ^ one;
        const u32 got = memory != 0 ? ReadWord(kDataSegment, address) : o.frame.eax;
        const bool ok =
            o.Done() && got == want && (o.frame.eflags & kFlagCf) == ((kOld & one) != 0 ? 1u : 0);
        if (!cases.Case(ok)) Print("FAIL bt %u memory %u bit %d: got %x\n", k, memory, bit, got);
      }
    }
  }
  Outcome o = Run(CODE16("bsf ax, cx; bsr dx, cx; bsf esi, ebx; bsr edi, ebx"),
                  {.ebx = 0x00120000, .ecx = 0x0140});
  Check(o.Done() && (o.frame.eax & 0xffff) == 6 && (o.frame.edx & 0xffff) == 8 &&
            o.frame.esi == 17 && o.frame.edi == 20,
        "bsf and bsr");
  o = Run(CODE16("bsf ax, cx"), {.ecx = 0xffff0000});
  CheckEq("bsf of zero sets ZF", o.frame.eflags & kFlagZf, kFlagZf);
  o = Run(CODE16("movzx eax, cl; movsx ebx, cl; movsx dx, cl; movzx esi, cx; movsx edi, cx"),
          {.ecx = 0x12348887, .edx = 0x55555555});
  Check(o.Done() && o.frame.eax == 0x87 && o.frame.ebx == 0xffffff87 && o.frame.edx == 0x5555ff87 &&
            o.frame.esi == 0x8887 && o.frame.edi == 0xffff8887,
        "movzx and movsx");
  o = Run(CODE16("cbw; mov bx, ax; cwd; mov cx, dx; cwde; mov esi, eax; cdq"), {.eax = 0x1280});
  Check(o.Done() && (o.frame.ebx & 0xffff) == 0xff80 && (o.frame.ecx & 0xffff) == 0xffff &&
            o.frame.esi == 0xffffff80 && o.frame.edx == 0xffffffff,
        "cbw, cwd, cwde, cdq");
  o = Run(CODE16("bswap eax; xchg ax, cx; xchg [bx], dx; cmpxchg [bx], si"),
          {.eax = 0x11223344, .ebx = 0x100, .ecx = 0x55667788, .edx = 0x7788, .esi = 0x99aa});
  Check(o.Done() && o.frame.eax == 0x44337788 && o.frame.ecx == 0x55662211, "bswap and xchg");
  CheckEq("cmpxchg", ReadWord(kDataSegment, 0x100), 0x99aa);
  for (u32 i = 0; i < 256; i++) WriteByte(kDataSegment, 0x200 + i, static_cast<u8>(255 - i));
  o = Run(CODE16("xlat; lahf; stc; cmc; .byte 0xd6"), {.eax = 0x10, .ebx = 0x200});
  CheckEq("xlat, lahf, cmc, salc", o.frame.eax & 0xff, 0);
  o = Run(CODE16("mov ah, 0xd5; sahf; lahf"), {.eflags = 2 | kFlagOf});
  CheckEq("sahf and lahf", o.frame.eax >> 8 & 0xff, 0xd7);
  CheckEq("... OF is left", o.frame.eflags & kFlagOf, kFlagOf);
}

}  // namespace alibi::frobos
