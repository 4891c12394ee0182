/* Makes names of one length in DIR/d, as hard links to few files, until one is refused: fill DIR NAME_BYTES BLOCK_BYTES */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count != 4) return 2;
    int name_bytes = atoi(words[2]), source = -1;
    char source_name[64], name[300];
    if (name_bytes < 10 || name_bytes > 255 || chdir(words[1])) return 2;
    mkdir("d", 0755);
    mkdir("src", 0755);
    int directory = open("d", O_RDONLY | O_DIRECTORY);
    for (long names = 0;; names++) {
        if (names % 60000 == 0) { /* an inode has at most 65,000 links */
            sprintf(source_name, "src/f%d", ++source);
            close(open(source_name, O_CREAT | O_WRONLY, 0644));
        }
        memset(name, 'x', sizeof name);
        name[sprintf(name, "%010ld", names)] = 'x';
        name[name_bytes] = 0;
        if (linkat(AT_FDCWD, source_name, directory, name, 0)) {
            struct stat status;
            int error = errno;
            stat("d", &status);
            printf("%ld names, errno %d, %ld blocks\n", names, error, (long)(status.st_size / atoi(words[3])));
            return 0;
        }
    }
}
