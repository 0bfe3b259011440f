"""Writes a ring file in the program; `protocol.wire.ring_format` defines its layout.

The worker made the file with all its blocks: a store into a hole on a full disk would raise SIGBUS.
The file is mapped, so that written rows survive the end of the program. One lock is held for a copy
and a few stores; a forked child writes nothing and never takes it.
"""

import _thread
import os
import struct
import time
import zlib

from debug_relay.worker.probe.runtime.shared_memory import mapped

_getpid = os.getpid
_now = time.time_ns
_crc = zlib.crc32
_FIXED = struct.Struct("<IIQQBBHI")
_LENGTH = struct.Struct("<I")
HEADER = 4096
RECORD = 32
PAD = 255
# Indexes of words in the header.
CAPACITY, TAIL, TAIL_ENTRY, HEAD, NEXT_ENTRY = 1, 3, 4, 6, 7


class Ring(object):
    def __init__(self, path, limit):
        """`limit`: the number of entries after which nothing more is written."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self.memory = mapped(fd)
        finally:
            os.close(fd)
        # Items of a cast view are written by one aligned store each.
        self.words = memoryview(self.memory).cast("Q")
        self.capacity = self.words[CAPACITY]
        self.largest = self.capacity // 8
        self.limit = limit
        self.head = self.tail = self.entries = self.tail_entry = 0
        self.pid = _getpid()
        self.lock = _thread.allocate_lock()

    def put(self, body):
        """Append an entry; returns its number, counted from 1, or 0 if it was not written."""
        if _getpid() != self.pid:
            return 0
        with self.lock:
            if self.memory is None or self.entries >= self.limit:
                return 0
            size = RECORD + len(body)
            room = self.capacity - self.head % self.capacity
            start = self.head if size <= room else self.head + room
            self.free(start + size - self.capacity)
            if start != self.head and room >= RECORD:
                self.store(self.head, _FIXED.pack(room - RECORD, 0, 0, 0, PAD, 0, 0, 0))
            fixed = (self.entries, _now() // 1000, 0, 0, 0, 1)
            crc = _crc(body, _crc(_FIXED.pack(len(body), 0, *fixed)))
            self.store(start, _FIXED.pack(len(body), crc, *fixed) + body)
            self.entries += 1
            self.words[NEXT_ENTRY] = self.entries
            self.head = start + size
            self.words[HEAD] = self.head
            return self.entries

    def store(self, position, data):
        at = HEADER + position % self.capacity
        self.memory[at : at + len(data)] = data

    def free(self, lowest):
        """Drop the oldest entries from the index before their bytes are overwritten."""
        before = self.tail
        while self.tail < lowest and self.tail < self.head:
            room = self.capacity - self.tail % self.capacity
            if room < RECORD:
                self.tail += room
                continue
            at = HEADER + self.tail % self.capacity
            self.tail += RECORD + _LENGTH.unpack_from(self.memory, at)[0]
            self.tail_entry += self.memory[at + 24] != PAD
        if self.tail != before:
            self.words[TAIL_ENTRY] = self.tail_entry
            self.words[TAIL] = self.tail

    def close(self):
        if _getpid() != self.pid:
            return  # another thread of the parent may have held the lock at the fork
        with self.lock:
            if self.memory is not None:
                memory, self.memory = self.memory, None
                self.words.release()
                memory.close()
