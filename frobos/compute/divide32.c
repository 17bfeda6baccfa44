/* SPDX-License-Identifier: Apache-2.0 */
/* What gcc calls for a 64-bit remainder in 32-bit code; libgcc's would need the multilib package.
 */
#include <stdint.h>

uint64_t __umoddi3(uint64_t dividend, uint64_t divisor) {
  const uint32_t high = (uint32_t)(dividend >> 32), low = (uint32_t)dividend;
  if (divisor >> 32 == 0) {
    const uint32_t d = (uint32_t)divisor;
    uint32_t rest = high % d, quotient = low;
    __asm__("divl %2" : "+a"(quotient), "+d"(rest) : "rm"(d));
    return rest;
  }
  uint64_t rest = 0;
  for (int bit = 63; bit >= 0; bit--) {
    const int carry = rest >> 63 != 0;
    rest = rest << 1 | (dividend >> bit & 1);
    if (carry || rest >= divisor) rest -= divisor;
  }
  return rest;
}
