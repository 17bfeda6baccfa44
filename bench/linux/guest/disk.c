/* SPDX-License-Identifier: Apache-2.0 */
// Reads and writes of a whole disk at random places, one after the other: disk.inc. In a guest the
// disk is a block device behind a link in the folder, and its page cache is passed by. Natively it
// is a file that the host has cached: what a VMM has to do for each request, and no more.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

enum { kPage = 4096, kPiece = 1 << 20, kDiskBytes = 32 << 20 };

struct Disk {
  int fd;
  unsigned char* buffer;  // of kPiece
};

// The first word of the page at `place`, written for the `round`th time.
static uint64_t WordOf(uint64_t place, uint64_t round) {
  return (place / kPage + 1) * 0x9e3779b97f4a7c15u + round;
}

static void PutWords(unsigned char* buffer, uint64_t place, size_t size, uint64_t round) {
  for (size_t at = 0; at < size; at += kPage) *(uint64_t*)(buffer + at) = WordOf(place + at, round);
}

static void Write(const struct Disk* disk, uint64_t place, size_t size) {
  if (pwrite(disk->fd, disk->buffer, size, (off_t)place) != (ssize_t)size) Die("write");
}

static void Read(const struct Disk* disk, uint64_t place, size_t size) {
  if (pread(disk->fd, disk->buffer, size, (off_t)place) != (ssize_t)size) Die("read");
}

// Every page holds its word of round 0: what the disk held before does not matter, and the host has
// it cached.
static struct Disk Open(const struct Run* run, const char* name) {
  char path[4096];
  struct stat kind;
  struct Disk disk;
  snprintf(path, sizeof(path), "%s/%s", run->folder, name);
  if (stat(path, &kind) != 0) Die(path);
  disk.fd = open(path, O_RDWR | (S_ISBLK(kind.st_mode) ? O_DIRECT : 0));
  if (disk.fd < 0) Die(path);
  disk.buffer = aligned_alloc(kPage, kPiece);
  if (disk.buffer == NULL) Die("memory");
  for (size_t at = 0; at < kPiece; ++at) disk.buffer[at] = (unsigned char)at;
  for (uint64_t place = 0; place < kDiskBytes; place += kPiece) {
    PutWords(disk.buffer, place, kPiece, 0);
    Write(&disk, place, kPiece);
  }
  return disk;
}

static void Close(struct Disk* disk) {
  free(disk->buffer);
  close(disk->fd);
}

static uint64_t NextPlace(uint64_t* state, size_t size) {
  return NextRandom(state) % (kDiskBytes / size) * size;
}

static uint64_t RunRead(const struct Run* run, const char* name) {
  struct Disk disk = Open(run, name);
  const size_t size = (size_t)run->size << 10;
  uint64_t state = 1, sum = kSumStart;
  StartClock();
  for (unsigned i = 0; i < run->count; ++i) {
    const uint64_t place = NextPlace(&state, size);
    Read(&disk, place, size);
    for (size_t at = 0; at < size; at += kPage) sum = Sum(sum, disk.buffer + at, sizeof(uint64_t));
  }
  StopClock();
  Close(&disk);
  return sum;
}

static uint64_t RunWrite(const struct Run* run, const char* name) {
  struct Disk disk = Open(run, name);
  const size_t size = (size_t)run->size << 10;
  uint64_t state = 1, sum = kSumStart;
  StartClock();
  for (unsigned i = 0; i < run->count; ++i) {
    const uint64_t place = NextPlace(&state, size);
    PutWords(disk.buffer, place, size, i + 1);
    Write(&disk, place, size);
  }
  StopClock();
  for (uint64_t place = 0; place < kDiskBytes; place += kPiece) {
    Read(&disk, place, kPiece);
    sum = Sum(sum, disk.buffer, kPiece);
  }
  Close(&disk);
  return sum;
}

uint64_t RunVirtioRead(const struct Run* run) { return RunRead(run, "virtio"); }
uint64_t RunVirtioWrite(const struct Run* run) { return RunWrite(run, "virtio"); }
uint64_t RunIdeRead(const struct Run* run) { return RunRead(run, "ide"); }
uint64_t RunIdeWrite(const struct Run* run) { return RunWrite(run, "ide"); }
