/* Makes the nth write to the files under one folder fail; for tests, by LD_PRELOAD.

   `failing_writes_arm(folder, n, mode)`: 'E' EIO, this once; 'F' ENOSPC, from then on; 'S' half of it is
   written and then the disk is full. `failing_writes_count()`: how many writes there were. Counted are
   write, pwrite, ftruncate and fsync, on files whose name begins with the folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long due, seen;
static char mode;

void failing_writes_arm(const char *under, long n, char how) {
    strncpy(folder, under, sizeof folder - 1);
    due = n;
    mode = how;
    seen = 0;
}

long failing_writes_count(void) { return seen; }

static int is_ours(int file) {
    char link[64], name[PATH_MAX];
    if (!due) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, name, sizeof name - 1);
    if (size < 0) return 0;
    name[size] = 0;
    return strncmp(name, folder, strlen(folder)) == 0;
}

/* 0: goes well; 1: fails with errno; 2: half of it goes well. */
static int fate(int file) {
    if (!is_ours(file)) return 0;
    seen++;
    if (mode == 'E') { errno = EIO; return seen == due; }
    errno = ENOSPC;
    if (mode == 'S' && seen == due) return 2;
    return seen >= due;
}

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *data, size_t size) {
    int what = fate(file);
    if (what == 1) return -1;
    return REAL(write)(file, data, what == 2 ? size / 2 : size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    int what = fate(file);
    if (what == 1) return -1;
    return REAL(pwrite)(file, data, what == 2 ? size / 2 : size, at);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    int what = fate(file);
    if (what == 1) return -1;
    return REAL(pwrite64)(file, data, what == 2 ? size / 2 : size, at);
}

int ftruncate(int file, off_t size) { return fate(file) ? -1 : REAL(ftruncate)(file, size); }
int ftruncate64(int file, off64_t size) { return fate(file) ? -1 : REAL(ftruncate64)(file, size); }
int fsync(int file) { return fate(file) ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return fate(file) ? -1 : REAL(fdatasync)(file); }
