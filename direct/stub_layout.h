/* SPDX-License-Identifier: Apache-2.0 */
/* What a satellite's own pages look like: for the stub (stub.S) and the VMM (satellite.cc).
 *
 *   base                                                              low addresses
 *   +--------+---------------------+---------+-------------------------+
 *   | stub   | orders (the VMM's)  | notes   | signal stack            |
 *   | r-x    | r--                 | rw-     | rw-                     |
 *   +--------+---------------------+---------+-------------------------+
 *
 * All of it is one memory file that both processes map: the VMM as a whole and writable, at another
 * address; the satellite as the rights say. Offsets are from the base. */
#ifndef ALIBI_DIRECT_STUB_LAYOUT_H_
#define ALIBI_DIRECT_STUB_LAYOUT_H_

#define STUB_CODE 0x0000
#define STUB_ORDERS 0x1000
#define STUB_NOTES 0x5000
#define STUB_STACK 0x6000
#define STUB_END 0x10000

/* Orders: what the VMM wants done before user code runs on. The satellite cannot write here. */
#define ORDERS_COUNT (STUB_ORDERS + 0x00) /* system calls to be made, in order */
#define ORDERS_RUN (STUB_ORDERS + 0x08)   /* then: run (1), or stop again (0) */
#define ORDERS_FS_BASE (STUB_ORDERS + 0x10)
#define ORDERS_GS_BASE (STUB_ORDERS + 0x18)
#define ORDERS_FLAGS (STUB_ORDERS + 0x20)          /* RFLAGS.ID, which sigreturn leaves as it is */
#define ORDERS_SELECTORS (STUB_ORDERS + 0x28)      /* ES, DS, FS, GS: 16 bits each */
#define ORDERS_LOAD_SELECTORS (STUB_ORDERS + 0x30) /* 1: load them */
#define ORDERS_CPU_MASK (STUB_ORDERS + 0x40)       /* for sched_setaffinity: 1,024 CPUs */
#define ORDERS_CALLS (STUB_ORDERS + 0x100)         /* number and six arguments each: 7 * 8 bytes */
#define ORDERS_CALL_BYTES 56

/* Notes: what the satellite says. User code can write here, so nothing of it is believed. */
#define NOTES_SIGNAL (STUB_NOTES + 0x00)
#define NOTES_FRAME (STUB_NOTES + 0x08) /* rsp at the handler's entry */
#define NOTES_FS_BASE (STUB_NOTES + 0x10)
#define NOTES_GS_BASE (STUB_NOTES + 0x18)
#define NOTES_SELECTORS (STUB_NOTES + 0x20)
#define NOTES_UNDONE (STUB_NOTES + 0x28) /* calls of the orders that were not made: one failed */
#define NOTES_ERROR (STUB_NOTES + 0x30)  /* ... and its result */
/* The key without which the kernel refuses calls (satellite_filter.h). The VMM puts it here with
 * the orders; the stub takes it away before anything else. */
#define NOTES_KEY (STUB_NOTES + 0x40) /* two words: ORed to arguments 3 and 4 */

/* A call that no kernel has: by it the satellite stops, and says so. */
#define CALL_STOP 0xa11b1

/* Descriptors of a satellite. */
#define STUB_MEMORY_FD 0 /* guest RAM */
#define STUB_WATCH_FD 1  /* a pipe that closes with the VMM */

#endif
