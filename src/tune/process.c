/* Worker processes: see process.h. */
#define _GNU_SOURCE /* SOCK_CLOEXEC: between a socket and a flag set later another thread may start a process */
#include "tune/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/arena.h"

/* ---- starting ---- */

/* Signals that this process blocks or ignores must reach the worker all the same. */
static void own_group(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(attributes, 0);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &all);
}

/* This process's environment with another TMPDIR, whose text is `entry`. Freed by the caller. */
static char **with_directory(char *entry)
{
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **copy = ef_xcalloc(count + 2, sizeof *copy);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "TMPDIR=", 7) != 0)
            copy[kept++] = environ[i];
    copy[kept] = entry;
    return copy;
}

bool ef_process_start(ef_process *p, const char *const *argv, const char *log, const char *tmp, ef_diag *diag)
{
    char entry[300];
    int end[2];
    *p = (ef_process){.fd = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) != 0)
        return ef_fail(diag, "cannot talk to a worker process: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    own_group(&attributes);
    posix_spawn_file_actions_adddup2(&actions, end[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, end[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    snprintf(entry, sizeof entry, "TMPDIR=%s", tmp);
    char **environment = with_directory(entry);
    int error = posix_spawnp(&p->pid, argv[0], &actions, &attributes, (char *const *)argv, environment);
    free(environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(end[1]);
    if (error) {
        close(end[0]);
        p->pid = 0;
        return ef_fail(diag, "cannot start a worker, '%.200s': %s", argv[0], strerror(error));
    }
    p->fd = end[0];
    fcntl(p->fd, F_SETFL, O_NONBLOCK);
    return true;
}

/* ---- ending ---- */

/* Waits for the end of a process, at most this many hundredths of a second. */
static bool reap(pid_t pid, int *status, int hundredths)
{
    for (int i = 0; i <= hundredths; i++) {
        pid_t got = waitpid(pid, status, WNOHANG);
        if (got == pid)
            return true;
        if (got < 0 && errno != EINTR)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return false;
}

void ef_process_end(ef_process *p, char *how, size_t room)
{
    int status = 0;
    if (how)
        snprintf(how, room, "an unknown cause");
    if (p->pid > 0) {
        /* It may be ending by itself: that is the status to report. One that is killed may take a while to die in a
         * driver: it is given a second, then it is left to the system. */
        bool ended = reap(p->pid, &status, how ? 20 : 0);
        kill(-p->pid, SIGKILL);
        ended = ended || reap(p->pid, &status, 100);
        if (how && ended && WIFSIGNALED(status))
            snprintf(how, room, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        else if (how && ended)
            snprintf(how, room, "exit %d", WEXITSTATUS(status));
    }
    if (p->fd >= 0)
        close(p->fd);
    ef_strbuf_free(&p->in);
    ef_strbuf_free(&p->out);
    *p = (ef_process){.fd = -1};
}

void ef_process_pause(const ef_process *p, bool pause)
{
    if (p->pid > 0)
        kill(-p->pid, pause ? SIGSTOP : SIGCONT);
}

/* ---- lines ---- */

bool ef_process_send(ef_process *p)
{
    while (p->sent < p->out.length) {
        ssize_t n = send(p->fd, p->out.text + p->sent, p->out.length - p->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        p->sent += (size_t)n;
    }
    ef_strbuf_free(&p->out);
    p->sent = 0;
    return true;
}

bool ef_process_write(ef_process *p, const char *line, size_t length)
{
    ef_strbuf_add(&p->out, line, length);
    ef_strbuf_add(&p->out, "\n", 1);
    return ef_process_send(p);
}

/* What was taken makes room. */
static void shift(ef_process *p)
{
    if (p->taken == 0)
        return;
    memmove(p->in.text, p->in.text + p->taken, p->in.length - p->taken + 1);
    p->in.length -= p->taken;
    p->taken = 0;
}

bool ef_process_receive(ef_process *p)
{
    char chunk[65536];
    shift(p);
    for (;;) {
        ssize_t n = recv(p->fd, chunk, sizeof chunk, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        if (n == 0)
            return false;
        ef_strbuf_add(&p->in, chunk, (size_t)n);
        if (p->in.length > EF_PROCESS_LINE)
            return false;
    }
}

const char *ef_process_line(ef_process *p, size_t *length)
{
    char *start = p->in.text ? p->in.text + p->taken : NULL;
    char *end = start ? memchr(start, '\n', p->in.length - p->taken) : NULL;
    if (!end)
        return NULL;
    *end = 0;
    *length = (size_t)(end - start);
    p->taken += *length + 1;
    return start;
}
