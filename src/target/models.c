/* The devices: see target.h. Figures are NVIDIA's: A100 80GB PCIe data sheet; H100 and H200 SXM data sheets and the
 * Hopper architecture white paper; Ada (RTX 4090) and Blackwell (RTX 5090) GeForce white papers; B200 as in the DGX
 * B200 data sheet, an eighth of it. Cache bandwidths are what microbenchmarks of others report, rounded. */
#include "target/target.h"

#include <string.h>

#include "support/processors.h"

#define T 1e12
#define G 1e9
#define KI 1024.0
#define MI (1024.0 * 1024.0)
#define REGISTERS (256 * KI)
#define LINE 32 /* bytes a clock that one multiprocessor keeps coming: half of what the wires could carry */

const ef_target ef_targets[] = {
    /* A processor with 512-bit vectors, of which a core runs one multiply-add a clock; memory of a small share of a
     * server. */
    {"cpu", false, 2, 3 * G, 20 * G, 60 * G, 32 * MI, 1 * MI, 2 * KI, 30 * G, {0}, 2 * 96 * G, false, 1},
    {"a100",
     true,
     108,
     1.41 * G,
     1.935 * T,
     4.5 * T,
     40 * MI,
     164 * KI,
     REGISTERS,
     LINE * 1.41 * G,
     {[EF_F16] = 312 * T, [EF_BF16] = 312 * T, [EF_F32] = 156 * T, [EF_F64] = 19.5 * T},
     19.5 * T,
     false,
     2.2},
    {"h100",
     true,
     132,
     1.98 * G,
     3.35 * T,
     5.5 * T,
     50 * MI,
     228 * KI,
     REGISTERS,
     LINE * 1.98 * G,
     {[EF_F16] = 989 * T, [EF_BF16] = 989 * T, [EF_F32] = 494 * T, [EF_F64] = 67 * T},
     67 * T,
     true,
     1.8},
    /* measured on one: 4.3 to 4.45 TB/s of copying, about 790 TFLOP/s of products in bfloat16, 7.8 TB/s from the cache
     * by attention over tiles of 64 positions */
    {"h200",
     true,
     132,
     1.98 * G,
     4.45 * T,
     8 * T,
     50 * MI,
     228 * KI,
     REGISTERS,
     LINE * 1.98 * G,
     {[EF_F16] = 790 * T, [EF_BF16] = 790 * T, [EF_F32] = 395 * T, [EF_F64] = 67 * T},
     67 * T,
     true,
     1.8},
    {"b200",
     true,
     148,
     1.965 * G,
     8 * T,
     10 * T,
     126 * MI,
     228 * KI,
     REGISTERS,
     LINE * 1.965 * G,
     {[EF_F16] = 2250 * T, [EF_BF16] = 2250 * T, [EF_F32] = 1125 * T, [EF_F64] = 37 * T},
     75 * T,
     true,
     1.8},
    {"rtx4090",
     true,
     128,
     2.52 * G,
     1.008 * T,
     5 * T,
     72 * MI,
     100 * KI,
     REGISTERS,
     LINE * 2.52 * G,
     {[EF_F16] = 165 * T, [EF_BF16] = 165 * T, [EF_F32] = 82.6 * T, [EF_F64] = 1.3 * T},
     82.6 * T,
     false,
     1.8},
    {"rtx5090",
     true,
     170,
     2.41 * G,
     1.792 * T,
     7 * T,
     96 * MI,
     100 * KI,
     REGISTERS,
     LINE * 2.41 * G,
     {[EF_F16] = 209.5 * T, [EF_BF16] = 209.5 * T, [EF_F32] = 104.8 * T, [EF_F64] = 1.64 * T},
     104.8 * T,
     true,
     1.8},
};
const unsigned ef_target_count = sizeof ef_targets / sizeof *ef_targets;

const ef_target *ef_target_named(const char *name)
{
    for (unsigned i = 0; i < ef_target_count; i++)
        if (strcmp(ef_targets[i].name, name) == 0)
            return &ef_targets[i];
    return NULL;
}

ef_target ef_target_with_threads(const ef_target *target, uint32_t threads)
{
    ef_target t = *target;
    if (t.gpu)
        return t;
    t.units = threads ? threads : ef_processors();
    t.vector = target->vector / target->units * t.units;
    return t;
}

double ef_target_room(const ef_target *target)
{
    return target->gpu ? target->register_bytes + target->shared_bytes : 0;
}

ef_rates ef_target_rates(const ef_target *target)
{
    double products = target->gpu ? target->matrix[EF_F16] : target->vector;
    double block_byte = target->gpu ? 1e6 / target->unit_load : 0;
    return (ef_rates){1e6 / target->memory, 1e6 / products, target->launch_us, block_byte};
}

#define MATRIX_ROWS 16 /* the least height of a product on the matrix unit: fewer rows cost as much */

double ef_target_products(const ef_target *target, ef_dtype dtype, double rows)
{
    double full = target->matrix[dtype] * (rows < MATRIX_ROWS ? rows / MATRIX_ROWS : 1);
    return full > target->vector ? full : target->vector;
}
