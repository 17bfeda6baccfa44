/* SPDX-License-Identifier: Apache-2.0 */
// What execdyn and execlate run: the loader and the C library start it, at addresses that are new
// each time.
int main(void) { return 0; }
