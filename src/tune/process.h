/* Worker processes: started without a shell, spoken to in lines over one socket, ended with all that they started.
 *
 * A worker reads requests from its standard input and writes replies to its standard output; both are one end of a
 * socket whose other end no other process has. So a worker that outlives this process sees the end of its input, and a
 * message to a dead worker is an error and no signal. Each worker leads a process group of its own: what a worker
 * started (compilers) ends with it, and Ctrl-C at a terminal reaches this process alone. */
#ifndef EF_TUNE_PROCESS_H
#define EF_TUNE_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

#include "support/diag.h"
#include "support/strbuf.h"

#define EF_PROCESS_LINE (64u << 20) /* the longest reply that is not garbage, bytes */

typedef struct {
    pid_t pid;          /* 0: not running */
    int fd;             /* of the socket, does not block */
    ef_strbuf in, out;  /* received, not yet taken; to be sent */
    size_t sent, taken; /* how much of out is sent, of in was taken */
} ef_process;

/* Starts argv[0] (looked up in PATH), its standard error to the file `log`, its temporary files in `tmp`. False and a
 * message when it cannot. */
bool ef_process_start(ef_process *process, const char *const *argv, const char *log, const char *tmp, ef_diag *diag);
/* Ends it and its group, and frees everything. `how`: what ended it ("signal 11 (Segmentation fault)", "exit 1"), at
 * most `room` bytes; NULL: not asked for. */
void ef_process_end(ef_process *process, char *how, size_t room);
/* Queues a line (without its end) and sends what can be sent. False when the process is gone. */
bool ef_process_write(ef_process *process, const char *line, size_t length);
bool ef_process_send(ef_process *process);
/* Receives what is there. False when the process is gone or its line has no end. */
bool ef_process_receive(ef_process *process);
/* The next whole line without its end, valid until the next receive; NULL when there is none. */
const char *ef_process_line(ef_process *process, size_t *length);
/* Stops the group, or lets it go on. */
void ef_process_pause(const ef_process *process, bool pause);

#endif
