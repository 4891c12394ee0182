// What a sync of a small file's bytes costs in blocks that were reserved and never written, in blocks zeroed half a mebibyte ahead, and in
// blocks that were written before: 15 KiB and 200 bytes of a journal, then fdatasync.
// cc -O2 -o synced-blocks synced-blocks.c; ./synced-blocks DIRECTORY FILES ROUNDS
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, AHEAD = MIB / 2, CONTENTS = 15360, RECORD = 200 };
static char zeros[AHEAD], contents[CONTENTS];
static const char *const kinds[] = {"never written", "zeroed ahead", "written before"};

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    int files = atoi(words[2]), rounds = atoi(words[3]);
    memset(contents, 7, sizeof contents);
    for (int round = 0; round < rounds; round++) {
        for (int kind = 0; kind < 3; kind++) {
            char name[4096];
            snprintf(name, sizeof name, "%s/blocks-%d", words[1], kind);
            unlink(name);
            int file = open(name, O_RDWR | O_CREAT, 0600);
            long size = ((long)files * CONTENTS / MIB + 4) * MIB;
            if (file < 0 || fallocate(file, 0, 0, size)) return 1;
            for (long at = 0; kind && at < (kind == 2 ? size : MIB); at += AHEAD) {
                if (pwrite(file, zeros, AHEAD, at) != AHEAD) return 1;
            }
            fsync(file);
            long at = MIB, zeroed = kind == 2 ? size : at;
            double begun = now_us();
            for (int each = 0; each < files; each++, at += CONTENTS) {
                if (kind == 1 && at + CONTENTS > zeroed) {
                    if (pwrite(file, zeros, AHEAD, zeroed) != AHEAD) return 1;
                    zeroed += AHEAD;
                }
                if (pwrite(file, contents, CONTENTS, at) != CONTENTS) return 1;
                if (pwrite(file, contents, RECORD, (long)each * RECORD % (MIB - RECORD)) != RECORD) return 1;
                if (fdatasync(file)) return 1;
            }
            printf("%-14s  %6.1f us\n", kinds[kind], (now_us() - begun) / files);
            close(file);
        }
    }
}
