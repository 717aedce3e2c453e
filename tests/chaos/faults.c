/* Faults at file events, for LD_PRELOAD: whatever changes a file below one folder is counted, and at a chosen event the
 * process is killed, or the system refuses. Python and SQLite both come through here. See faults.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { COUNT, KILL, TEAR, REFUSE, REFUSE_FROM };

static char prefix[4096];
static int action = COUNT, number = 0;
static long at = 0, events = 0;

void chaos_arm(const char *folder, int what, long event, int error) {
    snprintf(prefix, sizeof prefix, "%s", folder);
    action = what; at = event; number = error; events = 0;
}
long chaos_events(void) { return events; }

/* Whether the system refuses this event; `room` says whether it needs room on the disk. */
static int fault(const char *path, int room) {
    if (!prefix[0] || !path || strncmp(path, prefix, strlen(prefix))) return 0;
    events++;
    if (action == COUNT || events < at) return 0;
    if (action == REFUSE_FROM) return number != ENOSPC || room ? (errno = number, 1) : 0;
    if (events != at) return 0;
    if (action == REFUSE) { errno = number; return 1; }
    if (action == KILL) kill(getpid(), SIGKILL);
    return 2; /* TEAR: half of it is written first */
}

static const char *path_of(int file, char *buffer, size_t size) {
    char link[64];
    if (!prefix[0]) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, buffer, size - 1);
    if (length < 0) return NULL;
    buffer[length] = 0;
    return buffer;
}

/* Paths that are not absolute are below no folder of ours: fedclade is called with absolute ones. */
#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, name)
#define GUARD(path, room) do { int f = fault(path, room); if (f == 1) return -1; if (f == 2) kill(getpid(), SIGKILL); } while (0)

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    char buffer[4096];
    int f = fault(path_of(file, buffer, sizeof buffer), 1);
    if (f == 1) return -1;
    if (f == 2) { (void)!real(file, data, size / 2); kill(getpid(), SIGKILL); }
    return real(file, data, size);
}

#define PWRITE(name) \
ssize_t name(int file, const void *data, size_t size, off_t offset) { \
    REAL(ssize_t, #name, int, const void *, size_t, off_t); \
    char buffer[4096]; \
    int f = fault(path_of(file, buffer, sizeof buffer), 1); \
    if (f == 1) return -1; \
    if (f == 2) { (void)!real(file, data, size / 2, offset); kill(getpid(), SIGKILL); } \
    return real(file, data, size, offset); \
}
PWRITE(pwrite)
PWRITE(pwrite64)

#define ON_FILE(name) \
int name(int file) { \
    REAL(int, #name, int); \
    char buffer[4096]; \
    GUARD(path_of(file, buffer, sizeof buffer), 0); \
    return real(file); \
}
ON_FILE(fsync)
ON_FILE(fdatasync)

#define TRUNCATE(name) \
int name(int file, off_t size) { \
    REAL(int, #name, int, off_t); \
    char buffer[4096]; \
    GUARD(path_of(file, buffer, sizeof buffer), 0); \
    return real(file, size); \
}
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    GUARD(to, 0);
    return real(from, to);
}
int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    GUARD(path, 0);
    return real(path);
}
int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    GUARD(path, 0);
    return real(path);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    GUARD(path, 1);
    return real(path, mode);
}

#define OPEN(name) \
int name(const char *path, int flags, ...) { \
    REAL(int, #name, const char *, int, ...); \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    if (flags & O_CREAT) GUARD(path, 1); \
    return real(path, flags, mode); \
}
OPEN(open)
OPEN(open64)
