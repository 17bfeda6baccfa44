// SPDX-License-Identifier: Apache-2.0
#include "devices/net/responder.h"

#include <algorithm>

#include "devices/net/offload.h"

namespace alibi::net {
namespace {

constexpr std::size_t kAddressBytes = 6, kIpBytes = 4;
constexpr u8 kArpRequest[] = {0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1};  // from the type on
constexpr std::size_t kArpType = 12, kArpOperation = 21, kArpSender = 22, kArpSenderIp = 28,
                      kArpTarget = 32, kArpTargetIp = 38, kArpBytes = 42;
constexpr std::size_t kIcmp = kEthernetHeader + 20;
constexpr u8 kIpv4Header = 0x45, kIcmpProtocol = 1, kEchoRequest = 8;

// Back to the sender, from us.
Frame Turned(std::span<const u8> frame) {
  Frame answer(frame.begin(), frame.end());
  std::copy_n(frame.begin() + kAddressBytes, kAddressBytes, answer.begin());
  std::copy(kResponderAddress.begin(), kResponderAddress.end(), answer.begin() + kAddressBytes);
  return answer;
}

std::optional<Frame> AnswerArp(std::span<const u8> frame) {
  const auto sender = frame.subspan(kArpSenderIp, kIpBytes);
  const auto target = frame.subspan(kArpTargetIp, kIpBytes);
  const bool nobody = std::all_of(sender.begin(), sender.end(), [](u8 byte) { return byte == 0; });
  if (nobody || std::equal(sender.begin(), sender.end(), target.begin())) return std::nullopt;
  Frame answer = Turned(frame.first(kArpBytes));
  answer[kArpOperation] = 2;
  std::copy(kResponderAddress.begin(), kResponderAddress.end(), answer.begin() + kArpSender);
  std::copy(target.begin(), target.end(), answer.begin() + kArpSenderIp);
  std::copy_n(frame.begin() + kArpSender, kAddressBytes + kIpBytes, answer.begin() + kArpTarget);
  return answer;
}

std::optional<Frame> AnswerEcho(std::span<const u8> frame) {
  Frame answer = Turned(frame);
  u8* ip = answer.data() + kEthernetHeader;
  std::swap_ranges(ip + 12, ip + 12 + kIpBytes, ip + 12 + kIpBytes);
  // The type changes from 8 to 0, the sum of the rest with it (RFC 1624).
  answer[kIcmp] = 0;
  u32 sum = (u32{answer[kIcmp + 2]} << 8 | answer[kIcmp + 3]) + (u32{kEchoRequest} << 8);
  sum = (sum & 0xffff) + (sum >> 16);
  answer[kIcmp + 2] = static_cast<u8>(sum >> 8);
  answer[kIcmp + 3] = static_cast<u8>(sum);
  return answer;
}

}  // namespace

std::optional<Frame> Answer(std::span<const u8> frame) {
  if (frame.size() >= kArpBytes &&
      std::equal(std::begin(kArpRequest), std::end(kArpRequest), frame.begin() + kArpType)) {
    return AnswerArp(frame);
  }
  if (frame.size() >= kIcmp + 8 && frame[12] == 0x08 && frame[13] == 0x00 &&
      frame[kEthernetHeader] == kIpv4Header && frame[kEthernetHeader + 9] == kIcmpProtocol &&
      frame[kIcmp] == kEchoRequest && !(frame[0] & 1)) {
    return AnswerEcho(frame);
  }
  return std::nullopt;
}

}  // namespace alibi::net
