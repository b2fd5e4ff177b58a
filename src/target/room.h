/* Whether a kernel's block can hold its tiles on a GPU: a schedule of which it is known beforehand that the compiler
 * refuses it, or spills whole tiles, need not be measured.
 *
 * What is counted is the least that any compiler needs: the largest tile that is computed, and the states of a loop, in
 * registers; and the operands that a loop's products load, once for each stage but one, in shared memory. Tiles are
 * padded to powers of two, as Triton's are. */
#ifndef EF_TARGET_ROOM_H
#define EF_TARGET_ROOM_H

#include "kernel/schedule.h"
#include "target/target.h"

typedef struct {
    double registers; /* bytes of one block at least */
    double shared;
    double register_room; /* bytes that its threads can have at most, 255 registers each */
} ef_room;

ef_room ef_room_of(const ef_kgraph *graph, const ef_schedule *schedule, uint32_t kernel, const ef_target *target);
/* Always of a CPU. */
bool ef_room_fits(const ef_kgraph *graph, const ef_schedule *schedule, uint32_t kernel, const ef_target *target);

#endif
