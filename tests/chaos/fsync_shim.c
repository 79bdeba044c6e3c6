/*
 * Tells, in order, what a process does to the files under a folder. Loaded with LD_PRELOAD.
 *
 * FSYNC_SHIM_ROOT  the folder; FSYNC_SHIM_LOG  where to tell it, a line for each event:
 *   O fd path              opened (told afterwards)
 *   C fd                   closed (told before)
 *   W fd offset length head tokens…   written (told afterwards); offset -1: at the end or where the file stood;
 *                          head: the first 24 bytes in hexadecimal; tokens: numbers N of every "token-N" (six digits) in it
 *   M fd text              the same for a file named `marker`, but told before, with the text
 *   T fd length            truncated (told afterwards)
 *   B fd                   fsync or fdatasync begins
 *   E fd result            it ended
 * Writes are told when they are over and syncs when they begin, so that a sync covers every write above its B.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES 65536
#define ROOM 65536

enum { UNKNOWN, WATCHED, MARKER };

static volatile char kinds[FILES];
static int told = -1;
static const char *root;

static void begin(void) {
    const char *log = getenv("FSYNC_SHIM_LOG");
    if (told >= 0 || log == NULL) return;
    root = getenv("FSYNC_SHIM_ROOT");
    told = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

__attribute__((constructor)) static void loaded(void) { begin(); }

static void tell(const char *format, ...) {
    char line[4096];
    int kept = errno;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (length >= (int)sizeof line) abort();
    if (syscall(SYS_write, told, line, (size_t)length) != length) abort();
    errno = kept;
}

static int kind(int fd) { return fd >= 0 && fd < FILES ? kinds[fd] : UNKNOWN; }

static int opened(int fd, const char *path) {
    begin();
    if (fd < 0 || fd >= FILES) return fd;
    kinds[fd] = UNKNOWN;
    if (told >= 0 && root != NULL && path[0] == '/' && strncmp(path, root, strlen(root)) == 0) {
        const char *name = strrchr(path, '/') + 1;
        kinds[fd] = strcmp(name, "marker") == 0 ? MARKER : WATCHED;
        tell("O %d %s\n", fd, path);
    }
    return fd;
}

static void mark(int fd, const void *bytes, size_t length) {
    if (kind(fd) == MARKER) tell("M %d %.*s\n", fd, (int)length, (const char *)bytes);
}

static ssize_t wrote(int fd, long long offset, const void *bytes, ssize_t length) {
    if (kind(fd) != WATCHED || length < 0) return length;
    static __thread char line[ROOM];
    int kept = errno;
    const char *at = bytes, *end = at + length;
    int size = snprintf(line, ROOM, "W %d %lld %zd ", fd, offset, length);
    for (int i = 0; i < 24 && i < length; i++) size += snprintf(line + size, ROOM - size, "%02x", (unsigned char)at[i]);
    char last[7] = "";
    while ((at = memmem(at, (size_t)(end - at), "token-", 6)) != NULL && end - at >= 12) {
        at += 6;
        if (strncmp(last, at, 6) != 0) {
            memcpy(last, at, 6);
            if (size + 9 >= ROOM) abort();
            size += snprintf(line + size, ROOM - size, " %s", last);
        }
    }
    line[size++] = '\n';
    if (syscall(SYS_write, told, line, (size_t)size) != size) abort();
    errno = kept;
    return length;
}

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (next == NULL) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list args; \
        va_start(args, flags); \
        mode = (mode_t)va_arg(args, int); \
        va_end(args); \
    }

int open(const char *path, int flags, ...) {
    NEXT(open);
    MODE(flags)
    return opened(next(path, flags, mode), path);
}

int open64(const char *path, int flags, ...) {
    NEXT(open64);
    MODE(flags)
    return opened(next(path, flags, mode), path);
}

int openat(int folder, const char *path, int flags, ...) {
    NEXT(openat);
    MODE(flags)
    return opened(next(folder, path, flags, mode), path);
}

int openat64(int folder, const char *path, int flags, ...) {
    NEXT(openat64);
    MODE(flags)
    return opened(next(folder, path, flags, mode), path);
}

int close(int fd) {
    NEXT(close);
    if (kind(fd) != UNKNOWN) {
        kinds[fd] = UNKNOWN;
        tell("C %d\n", fd);
    }
    return next(fd);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    NEXT(write);
    mark(fd, bytes, length);
    return wrote(fd, -1, bytes, next(fd, bytes, length));
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    NEXT(pwrite);
    return wrote(fd, offset, bytes, next(fd, bytes, length, offset));
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    NEXT(pwrite64);
    return wrote(fd, offset, bytes, next(fd, bytes, length, offset));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    NEXT(writev);
    ssize_t length = next(fd, parts, count);
    if (length >= 0) wrote(fd, -1, "", 0);
    return length;
}

static int truncated(int fd, long long length, int result) {
    if (kind(fd) == WATCHED && result == 0) tell("T %d %lld\n", fd, length);
    return result;
}

int ftruncate(int fd, off_t length) {
    NEXT(ftruncate);
    return truncated(fd, length, next(fd, length));
}

int ftruncate64(int fd, off64_t length) {
    NEXT(ftruncate64);
    return truncated(fd, length, next(fd, length));
}

int fsync(int fd) {
    NEXT(fsync);
    if (kind(fd) != WATCHED) return next(fd);
    tell("B %d\n", fd);
    int result = next(fd);
    tell("E %d %d\n", fd, result);
    return result;
}

int fdatasync(int fd) {
    NEXT(fdatasync);
    if (kind(fd) != WATCHED) return next(fd);
    tell("B %d\n", fd);
    int result = next(fd);
    tell("E %d %d\n", fd, result);
    return result;
}
