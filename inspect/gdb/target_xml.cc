// SPDX-License-Identifier: Apache-2.0
#include "inspect/gdb/target_xml.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

namespace alibi::vmm::gdb {
namespace {

using vcpu::VcpuState;

// The XSAVE area (SDM vol. 1, 13.4): legacy region, header, AVX.
constexpr unsigned kStAt = 32, kXmmAt = 160, kMxcsrAt = 24, kHeaderAt = 512, kYmmHighAt = 576;
constexpr u64 kX87Component = 1, kSseComponent = 2, kAvxComponent = 4;
constexpr u16 kInitialFcw = 0x37f;
constexpr u32 kMxcsrValid = 0xffff;  // XRSTOR refuses the rest

constexpr char kFlagsType[] =
    R"(<flags id="i386_eflags" size="4">
<field name="" start="22" end="31"/><field name="ID" start="21" end="21"/>
<field name="VIP" start="20" end="20"/><field name="VIF" start="19" end="19"/>
<field name="AC" start="18" end="18"/><field name="VM" start="17" end="17"/>
<field name="RF" start="16" end="16"/><field name="NT" start="14" end="14"/>
<field name="OF" start="11" end="11"/><field name="DF" start="10" end="10"/>
<field name="IF" start="9" end="9"/><field name="TF" start="8" end="8"/>
<field name="SF" start="7" end="7"/><field name="ZF" start="6" end="6"/>
<field name="AF" start="4" end="4"/><field name="PF" start="2" end="2"/>
<field name="" start="1" end="1"/><field name="CF" start="0" end="0"/>
</flags>
)";

constexpr char kVectorTypes[] =
    R"(<vector id="v4f" type="ieee_single" count="4"/><vector id="v2d" type="ieee_double" count="2"/>
<vector id="v16i8" type="int8" count="16"/><vector id="v8i16" type="int16" count="8"/>
<vector id="v4i32" type="int32" count="4"/><vector id="v2i64" type="int64" count="2"/>
<union id="vec128">
<field name="v4_float" type="v4f"/><field name="v2_double" type="v2d"/>
<field name="v16_int8" type="v16i8"/><field name="v8_int16" type="v8i16"/>
<field name="v4_int32" type="v4i32"/><field name="v2_int64" type="v2i64"/>
<field name="uint128" type="uint128"/>
</union>
<flags id="i386_mxcsr" size="4">
<field name="IE" start="0" end="0"/><field name="DE" start="1" end="1"/>
<field name="ZE" start="2" end="2"/><field name="OE" start="3" end="3"/>
<field name="UE" start="4" end="4"/><field name="PE" start="5" end="5"/>
<field name="DAZ" start="6" end="6"/><field name="IM" start="7" end="7"/>
<field name="DM" start="8" end="8"/><field name="ZM" start="9" end="9"/>
<field name="OM" start="10" end="10"/><field name="UM" start="11" end="11"/>
<field name="PM" start="12" end="12"/><field name="FZ" start="15" end="15"/>
</flags>
)";

// {size} is 4 or 8.
constexpr char kSystemTypes[] =
    R"(<flags id="cr0_flags" size="{size}">
<field name="PE" start="0" end="0"/><field name="MP" start="1" end="1"/>
<field name="EM" start="2" end="2"/><field name="TS" start="3" end="3"/>
<field name="ET" start="4" end="4"/><field name="NE" start="5" end="5"/>
<field name="WP" start="16" end="16"/><field name="AM" start="18" end="18"/>
<field name="NW" start="29" end="29"/><field name="CD" start="30" end="30"/>
<field name="PG" start="31" end="31"/>
</flags>
<flags id="cr4_flags" size="{size}">
<field name="VME" start="0" end="0"/><field name="PVI" start="1" end="1"/>
<field name="TSD" start="2" end="2"/><field name="DE" start="3" end="3"/>
<field name="PSE" start="4" end="4"/><field name="PAE" start="5" end="5"/>
<field name="MCE" start="6" end="6"/><field name="PGE" start="7" end="7"/>
<field name="PCE" start="8" end="8"/><field name="OSFXSR" start="9" end="9"/>
<field name="OSXMMEXCPT" start="10" end="10"/><field name="UMIP" start="11" end="11"/>
<field name="FSGSBASE" start="16" end="16"/><field name="PCIDE" start="17" end="17"/>
<field name="OSXSAVE" start="18" end="18"/><field name="SMEP" start="20" end="20"/>
<field name="SMAP" start="21" end="21"/>
</flags>
<flags id="efer_flags" size="{size}">
<field name="SCE" start="0" end="0"/><field name="LME" start="8" end="8"/>
<field name="LMA" start="10" end="10"/><field name="NXE" start="11" end="11"/>
<field name="AIBRSE" start="21" end="21"/>
</flags>
)";

std::vector<Register> CoreRegisters(bool amd64) {
  struct Named {
    const char* name;
    unsigned index;
  };
  static constexpr Named kGprs64[] = {{"rax", vcpu::kRax}, {"rbx", vcpu::kRbx}, {"rcx", vcpu::kRcx},
                                      {"rdx", vcpu::kRdx}, {"rsi", vcpu::kRsi}, {"rdi", vcpu::kRdi},
                                      {"rbp", vcpu::kRbp}, {"rsp", vcpu::kRsp}};
  static constexpr Named kGprs32[] = {{"eax", vcpu::kRax}, {"ecx", vcpu::kRcx}, {"edx", vcpu::kRdx},
                                      {"ebx", vcpu::kRbx}, {"esp", vcpu::kRsp}, {"ebp", vcpu::kRbp},
                                      {"esi", vcpu::kRsi}, {"edi", vcpu::kRdi}};
  static constexpr Named kSegments[] = {{"cs", vcpu::kCs}, {"ss", vcpu::kSs}, {"ds", vcpu::kDs},
                                        {"es", vcpu::kEs}, {"fs", vcpu::kFs}, {"gs", vcpu::kGs}};
  static constexpr const char* kX87Names[] = {"fctrl", "fstat", "ftag",  "fiseg",
                                              "fioff", "foseg", "fooff", "fop"};
  const unsigned bits = amd64 ? 64 : 32;
  const char* code_pointer = "code_ptr";
  const char* data_pointer = "data_ptr";
  const char* integer = amd64 ? "int64" : "int32";
  std::vector<Register> list;
  for (const Named& gpr : amd64 ? kGprs64 : kGprs32) {
    const bool stack = gpr.index == vcpu::kRsp || gpr.index == vcpu::kRbp;
    list.push_back({gpr.name, bits, stack ? data_pointer : integer, Source::kGpr, gpr.index});
  }
  for (unsigned i = 8; amd64 && i < 16; ++i) {
    list.push_back({fmt::format("r{}", i), bits, integer, Source::kGpr, i});
  }
  list.push_back({amd64 ? "rip" : "eip", bits, code_pointer, Source::kRip, 0});
  list.push_back({"eflags", 32, "i386_eflags", Source::kFlags, 0});
  for (const Named& segment : kSegments) {
    list.push_back({segment.name, 32, "int32", Source::kSelector, segment.index});
  }
  for (unsigned i = 0; i < 8; ++i) {
    list.push_back({fmt::format("st{}", i), 80, "i387_ext", Source::kSt, i});
  }
  for (unsigned i = 0; i < 8; ++i) {
    list.push_back({kX87Names[i], 32, "int", Source::kX87Control, i});
  }
  return list;
}

std::vector<Register> SystemRegisters(bool amd64) {
  const unsigned bits = amd64 ? 64 : 32;
  const char* integer = amd64 ? "int64" : "int32";
  std::vector<Register> list;
  // For i386 gdb's feature of segment bases does not exist.
  if (!amd64) {
    list.push_back({"fs_base", bits, integer, Source::kSegmentBase, vcpu::kFs});
    list.push_back({"gs_base", bits, integer, Source::kSegmentBase, vcpu::kGs});
  } else {
    list.push_back({"k_gs_base", bits, integer, Source::kKernelGsBase, 0});
  }
  list.push_back({"cr0", bits, "cr0_flags", Source::kControl, 0});
  list.push_back({"cr2", bits, integer, Source::kControl, 2});
  list.push_back({"cr3", bits, integer, Source::kControl, 3});
  list.push_back({"cr4", bits, "cr4_flags", Source::kControl, 4});
  list.push_back({"cr8", bits, integer, Source::kControl, 8});
  list.push_back({"efer", bits, "efer_flags", Source::kEfer, 0});
  return list;
}

u64 ControlRegister(const VcpuState& state, unsigned number) {
  switch (number) {
    case 0:
      return state.cr0;
    case 2:
      return state.cr2;
    case 3:
      return state.cr3;
    case 4:
      return state.cr4;
    default:
      return state.cr8;
  }
}

template <class T>
T Load(const VcpuState& state, unsigned at) {
  T value;
  std::memcpy(&value, state.xsave_area + at, sizeof(value));
  return value;
}

template <class T>
void Store(VcpuState& state, unsigned at, T value) {
  std::memcpy(state.xsave_area + at, &value, sizeof(value));
}

bool InUse(const VcpuState& state, u64 component) {
  return Load<u64>(state, kHeaderAt) & component;
}

// A component that is in its initial state has arbitrary bytes in the area.
void Use(VcpuState& state, u64 component) {
  const u64 used = Load<u64>(state, kHeaderAt);
  if (used & component) return;
  u8* area = state.xsave_area;
  if (component == kX87Component) {
    std::memset(area, 0, kMxcsrAt);
    std::memset(area + kStAt, 0, kXmmAt - kStAt);
    Store(state, 0, kInitialFcw);
  } else if (component == kSseComponent) {
    std::memset(area + kXmmAt, 0, 256);
  } else {
    std::memset(area + kYmmHighAt, 0, 256);
  }
  Store(state, kHeaderAt, used | component);
}

// The tag word with two bits per register, which the FXSAVE format has abridged (SDM vol. 1,
// 10.5.1.1).
u16 FullTag(const VcpuState& state) {
  const unsigned top = Load<u16>(state, 2) >> 11 & 7;
  const u8 abridged = Load<u8>(state, 4);
  u16 full = 0;
  for (unsigned physical = 0; physical < 8; ++physical) {
    unsigned tag = 3;
    if (abridged >> physical & 1) {
      const unsigned at = kStAt + 16 * ((physical - top) & 7);
      const u64 mantissa = Load<u64>(state, at);
      const unsigned exponent = Load<u16>(state, at + 8) & 0x7fff;
      tag = exponent == 0x7fff               ? 2
            : exponent == 0 && mantissa == 0 ? 1
            : mantissa >> 63 == 0            ? 2
                                             : 0;
    }
    full = static_cast<u16>(full | tag << 2 * physical);
  }
  return full;
}

// FXSAVE's fields behind the tag word, with 64-bit pointers: FOP, FIP, FDP.
constexpr unsigned kFopAt = 6, kFipAt = 8, kFdpAt = 16;

u32 ReadX87Control(const VcpuState& state, unsigned index) {
  if (!InUse(state, kX87Component)) return index == 0 ? kInitialFcw : index == 2 ? 0xffff : 0;
  switch (index) {
    case 0:
      return Load<u16>(state, 0);
    case 1:
      return Load<u16>(state, 2);
    case 2:
      return FullTag(state);
    case 3:
      return static_cast<u32>(Load<u64>(state, kFipAt) >> 32);
    case 4:
      return static_cast<u32>(Load<u64>(state, kFipAt));
    case 5:
      return static_cast<u32>(Load<u64>(state, kFdpAt) >> 32);
    case 6:
      return static_cast<u32>(Load<u64>(state, kFdpAt));
    default:
      return Load<u16>(state, kFopAt) & 0x7ff;
  }
}

void WriteX87Control(VcpuState& state, unsigned index, u32 value) {
  Use(state, kX87Component);
  switch (index) {
    case 0:
      Store<u16>(state, 0, static_cast<u16>(value));
      break;
    case 1:
      Store<u16>(state, 2, static_cast<u16>(value));
      break;
    case 2: {
      u8 abridged = 0;
      for (unsigned i = 0; i < 8; ++i) {
        abridged = static_cast<u8>(abridged | (((value >> 2 * i) & 3) != 3) << i);
      }
      Store<u8>(state, 4, abridged);
      break;
    }
    case 3:
      Store<u32>(state, kFipAt + 4, value);
      break;
    case 4:
      Store<u32>(state, kFipAt, value);
      break;
    case 5:
      Store<u32>(state, kFdpAt + 4, value);
      break;
    case 6:
      Store<u32>(state, kFdpAt, value);
      break;
    default:
      Store<u16>(state, kFopAt, static_cast<u16>(value & 0x7ff));
      break;
  }
}

struct VectorPlace {
  unsigned at;
  u64 component;
};
VectorPlace PlaceOf(const Register& r) {
  if (r.source == Source::kSt) return {kStAt + 16 * r.index, kX87Component};
  if (r.source == Source::kXmm) return {kXmmAt + 16 * r.index, kSseComponent};
  return {kYmmHighAt + 16 * r.index, kAvxComponent};
}

bool IsVector(Source source) {
  return source == Source::kSt || source == Source::kXmm || source == Source::kYmmHigh;
}

u64 ReadScalar(const VcpuState& state, const Register& r) {
  switch (r.source) {
    case Source::kGpr:
      return state.gpr[r.index];
    case Source::kRip:
      return state.rip;
    case Source::kFlags:
      return state.Rflags();
    case Source::kSelector:
      return state.segment[r.index].selector;
    case Source::kSegmentBase:
      return state.segment[r.index].base;
    case Source::kKernelGsBase:
      return state.kernel_gs_base;
    case Source::kControl:
      return ControlRegister(state, r.index);
    case Source::kEfer:
      return state.efer;
    case Source::kX87Control:
      return ReadX87Control(state, r.index);
    case Source::kMxcsr:
      return Load<u32>(state, kMxcsrAt);
    default:
      return 0;
  }
}

bool WriteScalar(VcpuState& state, const Register& r, u64 value) {
  switch (r.source) {
    case Source::kGpr:
      state.gpr[r.index] = value;
      return true;
    case Source::kRip:
      state.rip = value;
      return true;
    case Source::kFlags:
      // Not the mode.
      state.SetRflags((value & ~vcpu::kVm) | (state.system_flags & vcpu::kVm));
      return true;
    case Source::kSegmentBase:
      if (!state.In64BitCode() || !IsCanonical(value)) return false;
      state.segment[r.index].base = value;
      return true;
    case Source::kKernelGsBase:
      if (!IsCanonical(value)) return false;
      state.kernel_gs_base = value;
      return true;
    case Source::kX87Control:
      WriteX87Control(state, r.index, static_cast<u32>(value));
      return true;
    case Source::kMxcsr:
      if (value & ~u64{kMxcsrValid}) return false;
      Store<u32>(state, kMxcsrAt, static_cast<u32>(value));
      return true;
    default:
      return false;
  }
}

}  // namespace

RegisterFile::RegisterFile(Architecture architecture, bool avx) : architecture_(architecture) {
  const bool amd64 = architecture == Architecture::kAmd64;
  const unsigned vectors = amd64 ? 16 : 8;
  xml_ = fmt::format(
      "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n<target version=\"1.0\">"
      "<architecture>{}</architecture>\n",
      amd64 ? "i386:x86-64" : "i386");
  AddFeature("org.gnu.gdb.i386.core", kFlagsType, CoreRegisters(amd64));
  std::vector<Register> sse;
  for (unsigned i = 0; i < vectors; ++i) {
    sse.push_back({fmt::format("xmm{}", i), 128, "vec128", Source::kXmm, i});
  }
  sse.push_back({"mxcsr", 32, "i386_mxcsr", Source::kMxcsr, 0});
  AddFeature("org.gnu.gdb.i386.sse", kVectorTypes, std::move(sse));
  if (amd64) {
    AddFeature("org.gnu.gdb.i386.segments", "",
               {{"fs_base", 64, "int64", Source::kSegmentBase, vcpu::kFs},
                {"gs_base", 64, "int64", Source::kSegmentBase, vcpu::kGs}});
  }
  if (avx) {
    std::vector<Register> high;
    for (unsigned i = 0; i < vectors; ++i) {
      high.push_back({fmt::format("ymm{}h", i), 128, "uint128", Source::kYmmHigh, i});
    }
    AddFeature("org.gnu.gdb.i386.avx", "", std::move(high));
  }
  std::string system_types;
  std::string_view left = kSystemTypes;
  constexpr std::string_view kSize = "{size}";
  for (std::size_t at; (at = left.find(kSize)) != std::string_view::npos;) {
    system_types += left.substr(0, at);
    system_types += amd64 ? '8' : '4';
    left.remove_prefix(at + kSize.size());
  }
  system_types += left;
  AddFeature("org.alibi.i386.system", system_types.c_str(), SystemRegisters(amd64));
  xml_ += "</target>\n";
}

void RegisterFile::AddFeature(const char* feature, const char* types,
                              std::vector<Register> registers) {
  xml_ += fmt::format("<feature name=\"{}\">\n{}", feature, types);
  for (Register& r : registers) {
    xml_ += fmt::format("<reg name=\"{}\" bitsize=\"{}\" type=\"{}\" regnum=\"{}\"/>\n", r.name,
                        r.bits, r.type, registers_.size());
    registers_.push_back(std::move(r));
  }
  xml_ += "</feature>\n";
}

std::string RegisterFile::Read(const VcpuState& state, unsigned number) const {
  const Register& r = registers_[number];
  std::string bytes(r.bits / 8, '\0');
  if (IsVector(r.source)) {
    const VectorPlace place = PlaceOf(r);
    if (InUse(state, place.component)) {
      std::memcpy(bytes.data(), state.xsave_area + place.at, bytes.size());
    }
  } else {
    const u64 value = ReadScalar(state, r);
    std::memcpy(bytes.data(), &value, bytes.size());
  }
  return bytes;
}

bool RegisterFile::Write(VcpuState& state, unsigned number, const std::string& bytes) const {
  const Register& r = registers_[number];
  if (bytes.size() != r.bits / 8) return false;
  if (bytes == Read(state, number)) return true;
  if (IsVector(r.source)) {
    const VectorPlace place = PlaceOf(r);
    Use(state, place.component);
    std::memcpy(state.xsave_area + place.at, bytes.data(), bytes.size());
    return true;
  }
  u64 value = 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return WriteScalar(state, r, value);
}

}  // namespace alibi::vmm::gdb
