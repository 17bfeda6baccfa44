// As much of ACPI Machine Language (ACPI specification 6.4, chapter 20) as a small DSDT needs: each
// function returns the bytes of one object.
#ifndef ALIBI_VMM_LOADER_AML_H_
#define ALIBI_VMM_LOADER_AML_H_

#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace alibi::loader::aml {

using Bytes = std::vector<u8>;

Bytes Concat(std::initializer_list<Bytes> parts);
Bytes Integer(u64 value);
// The compressed form of an ID like "PNP0A03".
Bytes EisaId(std::string_view id);
// `name` is one segment of up to four characters.
Bytes Name(std::string_view name, const Bytes& object);
Bytes Package(const std::vector<Bytes>& elements);  // up to 255
Bytes Device(std::string_view name, std::initializer_list<Bytes> objects);
Bytes SystemBusScope(std::initializer_list<Bytes> objects);  // \_SB

// --- Resource descriptors (chapter 6.4), joined by ResourceTemplate ---
Bytes ResourceTemplate(std::initializer_list<Bytes> descriptors);
Bytes IoPorts(u16 first, u8 count);
Bytes Irq(unsigned irq);  // edge-triggered, active high, exclusive
// Ranges that a bridge passes on.
Bytes BusNumbers(u16 first, u16 last);
Bytes IoRange(u16 first, u16 last);
Bytes MemoryRange(u32 first, u32 last);

}  // namespace alibi::loader::aml

#endif  // ALIBI_VMM_LOADER_AML_H_
