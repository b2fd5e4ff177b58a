/* The roofline of a program: what no implementation on a device can beat. */
#ifndef EF_TARGET_FLOOR_H
#define EF_TARGET_FLOOR_H

#include "ir/expr.h"
#include "target/target.h"

typedef struct {
    double bytes;      /* read and written at least: inputs once, as far as they are used, and outputs once */
    double operations; /* done at least: one for each element that is read, so that it has an effect, and written */
    double us;         /* the larger time of the two, with one launch */
} ef_floor;

/* No algebra can go below it, so it counts no products: (A B) v costs less than it says as A (B v). */
ef_floor ef_floor_of(const ef_program *program, const ef_target *target);

#endif
