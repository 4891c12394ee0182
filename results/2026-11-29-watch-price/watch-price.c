// What a fanotify group on a whole file system costs those who change it: create, write 2 KiB, close and unlink, by what is reported.
// cc -O2 -o watch-price watch-price.c; ./watch-price DIRECTORY FILES ROUNDS (root; Linux 5.17 and later)
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/fanotify.h>
#include <time.h>
#include <unistd.h>
#ifndef FAN_REPORT_TARGET_FID
#define FAN_REPORT_TARGET_FID 0x1000
#endif

enum { NAMES = FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO };
enum { WHERE = FAN_REPORT_FID | FAN_REPORT_DIR_FID | FAN_REPORT_NAME };

static const struct {
    const char *name;
    unsigned flags;
    unsigned long mask;
} kinds[] = {
    {"no watch", 0, 0},
    {"as crumb mount", FAN_REPORT_TID | WHERE | FAN_REPORT_TARGET_FID, NAMES | FAN_MODIFY | FAN_ATTRIB | FAN_ONDIR},
    {"no target", FAN_REPORT_TID | WHERE, NAMES | FAN_MODIFY | FAN_ATTRIB | FAN_ONDIR},
    {"no attributes", FAN_REPORT_TID | WHERE | FAN_REPORT_TARGET_FID, NAMES | FAN_MODIFY | FAN_ONDIR},
    {"attributes alone", FAN_REPORT_TID | WHERE | FAN_REPORT_TARGET_FID, FAN_ATTRIB | FAN_ONDIR},
};

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static char buffer[262144];

// Takes all events there are. Returns how long that took.
static double take(int group) {
    double begun = now_us();
    while (group >= 0 && read(group, buffer, sizeof buffer) > 0) {}
    return now_us() - begun;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    int directory = open(words[1], O_RDONLY | O_DIRECTORY), files = atoi(words[2]), rounds = atoi(words[3]);
    for (int round = 0; round < rounds; round++) {
        for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
            int group = -1;
            if (kinds[kind].mask) {
                group = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | kinds[kind].flags, O_RDONLY | O_LARGEFILE);
                if (group < 0 || fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, kinds[kind].mask, directory, NULL)) {
                    perror(kinds[kind].name);
                    return 1;
                }
            }
            printf("%-16s", kinds[kind].name);
            for (int removes = 0; removes < 2; removes++) {
                double begun = now_us(), reading = 0;
                for (int file = 0; file < files; file++) {
                    char name[16];
                    sprintf(name, "f%d", file);
                    if (removes) {
                        unlinkat(directory, name, 0);
                    } else {
                        int made = openat(directory, name, O_CREAT | O_WRONLY, 0644);
                        if (made < 0 || write(made, buffer, 2048) != 2048) return 1;
                        close(made);
                    }
                    if (file % 1000 == 999) reading += take(group);
                }
                printf("  %s %6.2f us, events read in %5.2f us", removes ? "unlink" : "create", (now_us() - begun - reading) / files,
                       reading / files);
            }
            puts("");
            if (group >= 0) close(group);
        }
    }
}
