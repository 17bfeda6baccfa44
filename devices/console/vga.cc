// SPDX-License-Identifier: Apache-2.0
#include "devices/console/vga.h"

#include <algorithm>
#include <span>
#include <utility>

namespace alibi::devices {
namespace {

// Offsets from 0x3b0. The CRT controller and input status 1 are at 0x3bx or 0x3dx, as bit 0 of the
// miscellaneous output register says.
enum Port : u64 {
  kCrtcIndexMono = 0x04,
  kCrtcDataMono = 0x05,
  kStatusMono = 0x0a,
  kAttribute = 0x10,
  kAttributeRead = 0x11,
  kMiscWrite = 0x12,  // input status 0 when read
  kSequencerIndex = 0x14,
  kSequencerData = 0x15,
  kDacMask = 0x16,
  kDacReadIndex = 0x17,  // the DAC's state when read
  kDacWriteIndex = 0x18,
  kDacData = 0x19,
  kFeatureRead = 0x1a,
  kMiscRead = 0x1c,
  kGraphicsIndex = 0x1e,
  kGraphicsData = 0x1f,
  kCrtcIndex = 0x24,
  kCrtcData = 0x25,
  kStatus = 0x2a,
};

constexpr u8 kMiscColour = 0x01;
constexpr u8 kScreenOff = 0x20;  // sequencer 1
constexpr u8 kGraphicsMode = 0x01;
constexpr u8 kPaletteOn = 0x20;  // attribute index: the screen shows, and the palette is closed

// CRT controller.
enum Crtc : unsigned {
  kHorizontalEnd = 0x01,
  kOverflow = 0x07,
  kMaxScanLine = 0x09,
  kCursorStart = 0x0a,
  kCursorEnd = 0x0b,
  kStartHigh = 0x0c,
  kStartLow = 0x0d,
  kCursorHigh = 0x0e,
  kCursorLow = 0x0f,
  kVerticalRetraceEnd = 0x11,
  kVerticalEnd = 0x12,
  kOffset = 0x13,
};
constexpr u8 kProtect = 0x80;  // of kVerticalRetraceEnd: registers 0 to 7
constexpr u8 kLineCompare8 = 0x10;
constexpr u8 kCursorOff = 0x20;

// Attribute controller.
enum Attribute : unsigned {
  kMode = 0x10,
  kPlaneEnable = 0x12,
  kPanning = 0x13,
  kColourSelect = 20
};
constexpr u8 kModeBlink = 0x08, kModePaletteHigh = 0x80;

constexpr std::array<u8, 5> kSequencerMasks = {0x03, 0x3d, 0x0f, 0x3f, 0x0e};
constexpr std::array<u8, 9> kGraphicsMasks = {0x0f, 0x0f, 0x0f, 0x1f, 0x03, 0x7b, 0x0f, 0x0f, 0xff};

// Mode 3 as the IBM reference has it: 720 by 400, characters of 9 by 16.
constexpr std::array<u8, 5> kMode3Sequencer = {0x03, 0x00, 0x03, 0x00, 0x02};
constexpr std::array<u8, 25> kMode3Crtc = {0x5f, 0x4f, 0x50, 0x82, 0x55, 0x81, 0xbf, 0x1f, 0x00,
                                           0x4f, 0x0d, 0x0e, 0x00, 0x00, 0x00, 0x00, 0x9c, 0x8e,
                                           0x8f, 0x28, 0x1f, 0x96, 0xb9, 0xa3, 0xff};
constexpr std::array<u8, 9> kMode3Graphics = {0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x0e, 0x0f, 0xff};
constexpr std::array<u8, 21> kMode3Attribute = {0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x14,
                                                0x07, 0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d,
                                                0x3e, 0x3f, 0x0c, 0x00, 0x0f, 0x08, 0x00};
constexpr u8 kMode3Misc = 0x67;

// 640 or 720 by 400 at 70 Hz: 449 lines of 31.78 us, of which 400 show; the retrace pulse is lines
// 412 and 413.
constexpr u64 kLineNs = 31'778, kLineShownNs = 25'422;
constexpr u64 kLines = 449, kLinesShown = 400, kRetraceFirst = 412, kRetraceLines = 2;

u8 At(u8 index, std::span<const u8> registers) {
  return index < registers.size() ? registers[index] : 0;
}

}  // namespace

Vga::Vga(Clock& clock, std::function<void()> changed)
    : clock_(clock), changed_(std::move(changed)), memory_(kMemoryBytes) {
  Reset();
}

void Vga::Reset() {
  latches_ = {};
  misc_ = feature_ = 0;
  sequencer_index_ = graphics_index_ = attribute_index_ = crtc_index_ = 0;
  attribute_data_ = false;
  sequencer_ = {};
  graphics_ = {};
  attribute_ = {};
  crtc_ = {};
  dac_mask_ = 0xff;
  dac_state_ = dac_read_ = dac_write_ = dac_component_ = 0;
  dac_ = {};
  Changed();
}

void Vga::SetTextMode() {
  Reset();
  misc_ = kMode3Misc;
  sequencer_ = kMode3Sequencer;
  crtc_ = kMode3Crtc;
  graphics_ = kMode3Graphics;
  attribute_ = kMode3Attribute;
  attribute_index_ = kPaletteOn;
  // The DAC's first 64 entries are EGA's: bits 5 to 0 are R G B at one third, r g b at two thirds.
  for (unsigned i = 0; i < 64; ++i) {
    for (unsigned c = 0; c < 3; ++c) {
      const unsigned bit = 2 - c;
      dac_[i][c] = static_cast<u8>((i >> bit & 1) * 0x2a + (i >> (bit + 3) & 1) * 0x15);
    }
  }
  // Blank, light grey on black.
  for (u64 cell = 0; cell < 0x4000; ++cell) {
    memory_[4 * cell] = ' ';
    memory_[4 * cell + 1] = 0x07;
  }
  Changed();
}

void Vga::Changed() {
  if (told_) return;
  told_ = true;
  if (changed_) changed_();
}

// Of the two sets of addresses only one answers.
bool Vga::Decodes(u64 offset) const {
  const bool colour = misc_ & kMiscColour;
  return offset < kAttribute ? !colour : offset < kCrtcIndex || colour;
}

u8 Vga::ReadStatus() {
  attribute_data_ = false;
  const u64 now = clock_.NowNs();
  const u64 line = now / kLineNs % kLines;
  const bool shows = line < kLinesShown && now % kLineNs < kLineShownNs;
  const bool retrace = line >= kRetraceFirst && line < kRetraceFirst + kRetraceLines;
  return static_cast<u8>((shows ? 0 : 0x01) | (retrace ? 0x08 : 0));
}

u8 Vga::ReadPort(u64 offset) {
  if (!Decodes(offset)) return 0xff;
  switch (offset) {
    case kAttribute:
      return attribute_index_;
    case kAttributeRead:
      return At(attribute_index_ & 0x1f, attribute_);
    case kMiscWrite:
      return 0x10;  // input status 0: a monitor is there
    case kSequencerIndex:
      return sequencer_index_;
    case kSequencerData:
      return At(sequencer_index_, sequencer_);
    case kDacMask:
      return dac_mask_;
    case kDacReadIndex:
      return dac_state_;
    case kDacWriteIndex:
      return dac_write_;
    case kDacData: {
      const u8 value = dac_[dac_read_][dac_component_];
      if (++dac_component_ == 3) {
        dac_component_ = 0;
        ++dac_read_;
      }
      return value;
    }
    case kFeatureRead:
      return feature_;
    case kMiscRead:
      return misc_;
    case kGraphicsIndex:
      return graphics_index_;
    case kGraphicsData:
      return At(graphics_index_, graphics_);
    case kCrtcIndex:
    case kCrtcIndexMono:
      return crtc_index_;
    case kCrtcData:
    case kCrtcDataMono:
      return At(crtc_index_, crtc_);
    case kStatus:
    case kStatusMono:
      return ReadStatus();
    default:
      return 0xff;
  }
}

void Vga::WritePort(u64 offset, u8 value) {
  if (!Decodes(offset)) return;
  switch (offset) {
    case kAttribute:
      WriteAttribute(value);
      break;
    case kMiscWrite:
      misc_ = value & 0xef;
      break;
    case kSequencerIndex:
      sequencer_index_ = value & 7;
      break;
    case kSequencerData:
      if (sequencer_index_ >= sequencer_.size()) return;
      sequencer_[sequencer_index_] = value & kSequencerMasks[sequencer_index_];
      break;
    case kDacMask:
      dac_mask_ = value;
      break;
    case kDacReadIndex:
      dac_read_ = value;
      dac_component_ = 0;
      dac_state_ = 3;
      return;
    case kDacWriteIndex:
      dac_write_ = value;
      dac_component_ = 0;
      dac_state_ = 0;
      return;
    case kDacData:
      WriteDac(value);
      break;
    case kGraphicsIndex:
      graphics_index_ = value & 0x0f;
      return;
    case kGraphicsData:
      if (graphics_index_ >= graphics_.size()) return;
      graphics_[graphics_index_] = value & kGraphicsMasks[graphics_index_];
      break;
    case kCrtcIndex:
    case kCrtcIndexMono:
      crtc_index_ = value & 0x3f;
      return;
    case kCrtcData:
    case kCrtcDataMono:
      WriteCrtc(value);
      break;
    case kStatus:
    case kStatusMono:
      feature_ = value & 0x10;
      return;
    default:
      return;
  }
  Changed();
}

void Vga::WriteAttribute(u8 value) {
  if (!attribute_data_) {
    attribute_index_ = value & 0x3f;
  } else {
    const unsigned index = attribute_index_ & 0x1f;
    // The palette can be written only while the screen is blank.
    if (index < attribute_.size() && (index >= kMode || !(attribute_index_ & kPaletteOn))) {
      attribute_[index] = index < kMode ? value & 0x3f : value;
    }
  }
  attribute_data_ = !attribute_data_;
}

void Vga::WriteDac(u8 value) {
  dac_[dac_write_][dac_component_] = value & 0x3f;
  if (++dac_component_ < 3) return;
  dac_component_ = 0;
  ++dac_write_;
}

void Vga::WriteCrtc(u8 value) {
  if (crtc_index_ >= crtc_.size()) return;
  if (crtc_index_ <= kOverflow && (crtc_[kVerticalRetraceEnd] & kProtect)) {
    // One bit of the line compare register is not protected.
    if (crtc_index_ != kOverflow) return;
    value = static_cast<u8>((crtc_[kOverflow] & ~kLineCompare8) | (value & kLineCompare8));
  }
  crtc_[crtc_index_] = value;
}

TextScreen Vga::Capture() {
  told_ = false;
  TextScreen screen;
  const bool shows =
      !(sequencer_[1] & kScreenOff) && (attribute_index_ & kPaletteOn) && (sequencer_[0] & 3) == 3;
  if (!shows || (graphics_[6] & kGraphicsMode)) return screen;
  for (unsigned i = 0; i < 16; ++i) {
    const u8 select = attribute_[kColourSelect];
    u8 entry = static_cast<u8>((attribute_[i] & 0x3f) | (select & 0x0c) << 4);
    if (attribute_[kMode] & kModePaletteHigh) {
      entry = static_cast<u8>((entry & 0xcf) | (select & 3) << 4);
    }
    const std::array<u8, 3>& colour = dac_[entry & dac_mask_];
    const auto wide = [](u8 six) { return static_cast<u8>(six << 2 | six >> 4); };
    screen.colours[i] = {wide(colour[0]), wide(colour[1]), wide(colour[2])};
  }

  const unsigned lines = crtc_[kVerticalEnd] + 1u + (crtc_[kOverflow] & 0x02 ? 256 : 0) +
                         (crtc_[kOverflow] & 0x40 ? 512 : 0);
  const unsigned character_lines = (crtc_[kMaxScanLine] & 0x1f) + 1u;
  screen.columns = crtc_[kHorizontalEnd] + 1u;
  screen.rows = std::max(1u, lines / character_lines);
  // A row is `Offset` words long in each of the two planes; addresses count characters.
  const unsigned pitch = crtc_[kOffset] * 2u;
  const u32 start = static_cast<u32>(crtc_[kStartHigh] << 8 | crtc_[kStartLow]);
  const bool blinks = attribute_[kMode] & kModeBlink;
  screen.cells.resize(u64{screen.columns} * screen.rows);
  const u32 cursor = static_cast<u32>(crtc_[kCursorHigh] << 8 | crtc_[kCursorLow]);
  const unsigned cursor_first = crtc_[kCursorStart] & 0x1f, cursor_last = crtc_[kCursorEnd] & 0x1f;
  const bool has_cursor = !(crtc_[kCursorStart] & kCursorOff) && cursor_first <= cursor_last &&
                          cursor_first < character_lines;
  for (unsigned row = 0; row < screen.rows; ++row) {
    for (unsigned column = 0; column < screen.columns; ++column) {
      const u32 address = (start + row * pitch + column) & 0xffff;
      const unsigned index = row * screen.columns + column;
      TextScreen::Cell& cell = screen.cells[index];
      const u8 attribute = memory_[4 * address + 1];
      cell.character = memory_[4 * address];
      cell.foreground = attribute & 0x0f;
      cell.background = blinks ? attribute >> 4 & 7 : attribute >> 4;
      cell.blink = blinks && (attribute & 0x80);
      if (has_cursor && address == cursor) screen.cursor = static_cast<int>(index);
    }
  }
  return screen;
}

}  // namespace alibi::devices
