/* First schedules, one function a backend; private to src/kernel. */
#ifndef EF_KERNEL_GUESS_H
#define EF_KERNEL_GUESS_H

#include "kernel/schedule.h"

ef_schedule ef_guess_c(const ef_kgraph *graph, uint32_t threads);
ef_schedule ef_guess_triton(const ef_kgraph *graph, uint32_t units);

#endif
